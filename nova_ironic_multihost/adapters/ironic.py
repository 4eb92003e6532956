# SPDX-License-Identifier: Apache-2.0

"""Ironic's listings as plain JSON, the cache of nodes, instances' machines.

An openstacksdk object takes forty times the memory, so objects are made only
of nodes that nova asks for. Ironic's link to the next page loses most filters
(NodesController._get_nodes_collection), so it is not used.
"""

from __future__ import annotations

from collections import abc
import contextlib
import datetime
import email.utils
import functools
import json
import typing
import zlib

from nova.compute import power_state
from nova.compute import vm_states
from nova import objects
from openstack.baremetal.v1 import node as sdk_node
from openstack import exceptions
from openstack import utils
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules import peers

#: The first API version that counts the nodes of shards.
COUNTED = '1.82'

_MINIMAL_FIELDS = ('uuid', 'instance_uuid')

#: Node objects kept in memory; the tracker asks for one several times.
MADE = 256


def node(body: bytes, connection: typing.Any) -> sdk_node.Node:
    """Return a node as an openstacksdk object."""
    return sdk_node.Node.existing(
        connection=connection._get_connection(), **content(body))


def content(body: bytes) -> dict[str, typing.Any]:
    """Return {field: value} of a :attr:`.rules.mirror.NodeRow.body`."""
    return dict(zip(names.node_fields(), json.loads(zlib.decompress(body)),
                    strict=True))


@contextlib.contextmanager
def _listing_errors():
    """Turn any error into a ListingError."""
    try:
        yield
    except (ListingError, MarkerNotFound):
        raise
    except Exception as exc:
        text = ' '.join(str(exc).split())
        raise ListingError(f'{type(exc).__name__}: {text}') from exc


class NodePages:
    """Ironic's listings (port Pages)."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    @_listing_errors()
    def page(self, partition: peers.Partition, after: str | None,
             limit: int, wanted: abc.Callable[[str], bool] | None
             ) -> ListingPage:
        filters, _ = query(partition)
        return self._page(
            partition, after, limit, wanted, filters, _fields(wanted))

    @_listing_errors()
    def newest(
        self,
        partition: peers.Partition,
        after: str | None,
        limit: int,
        wanted: abc.Callable[[str], bool] | None,
    ) -> ListingPage:
        filters, _ = query(partition)
        return self._page(
            partition, after, limit, wanted,
            {'sort_key': 'updated_at', 'sort_dir': 'desc'},
            [*_fields(wanted), *filters])

    def _page(self, partition, after, limit, wanted, params, fields):
        filters, versions = query(partition)
        try:
            for version in versions:
                self._driver._can_send_version(version)
        except names.IronicAPIVersionNotAvailable as exc:
            raise ListingError(
                f'it cannot list the nodes of a conductor group or a shard: '
                f'{exc} Upgrade Ironic, or unset [ironic]conductor_group and '
                f'[ironic]shard in nova.conf') from exc
        answer = self._get('/nodes', {
            **params, 'limit': limit, 'fields': ','.join(fields),
            **({'marker': after} if after else {})}, after)
        found = answer.json()
        return ListingPage(
            tuple(_row(its, wanted, filters) for its in found['nodes']),
            'next' in found, _moment(answer.headers.get('Date')))

    @_listing_errors()
    def node(self, node: str) -> NodeRow:
        answer = self._get(f'/nodes/{node}', {
            'fields': ','.join(names.node_fields())}, node)
        return _row(answer.json(), lambda node: True, {})

    @_listing_errors()
    def touched(self, node: str) -> datetime.datetime | None:
        moment = self._get(f'/nodes/{node}', {}, node).json()['updated_at']
        return timeutils.parse_isotime(moment) if moment else None

    @_listing_errors()
    def total(self, partition: peers.Partition) -> int | None:
        """Count the nodes of the partition's shard, or of all shards."""
        if not utils.supports_microversion(
                self._driver.ironic_connection, COUNTED):
            return None
        try:
            answer = self._get('/shards', {})
        except exceptions.ForbiddenException:
            return None
        return sum(shard['count'] for shard in answer.json()['shards']
                   if not partition.shard
                   or _filter_matches(shard['name'], partition.shard))

    def _get(self, path, params, mark=None):
        connection = self._driver.ironic_connection
        # As openstack.resource:Resource._get_microversion chooses it.
        answer = connection.get(
            path, params=params, microversion=(
                connection.default_microversion
                or utils.maximum_supported_microversion(
                    connection, sdk_node.Node._max_microversion)))
        # The node after which the page begins, or that was asked for.
        if mark and answer.status_code == 404:
            raise MarkerNotFound(f'node {mark} is gone')
        exceptions.raise_from_response(answer)
        return answer


def query(partition: peers.Partition
          ) -> tuple[dict[str, str], list[str]]:
    """Return (query parameters, API versions that they need).

    An older Ironic would ignore a filter and list all nodes.
    """
    filters = {}
    versions = []
    if partition.conductor_group is not None:
        filters['conductor_group'] = partition.conductor_group
        versions.append('1.46')
    if partition.shard:
        filters['shard'] = partition.shard
        versions.append('1.82')
    return filters, versions


def _fields(wanted):
    return names.node_fields() if wanted else _MINIMAL_FIELDS


def _filter_matches(theirs: str | None, wanted: str) -> bool:
    """Whether a filter matches, as far as the database's collation shows."""
    # MariaDB ignores case and accents; PostgreSQL and SQLite do not.
    return (theirs or '').casefold() == wanted.casefold()


def _row(found: dict[str, typing.Any],
         wanted: abc.Callable[[str], bool] | None,
         filters: dict[str, str]) -> NodeRow:
    uuid, instance = found['uuid'], found['instance_uuid']
    if not all(_filter_matches(found.get(name, value), value)
               for name, value in filters.items()):
        return NodeRow(uuid, instance, here=False)
    if wanted is None or not wanted(uuid):
        return NodeRow(uuid, instance)
    return NodeRow(uuid, instance, _compressed(json.dumps(
        [found[name] for name in names.node_fields()],
        sort_keys=True, separators=(',', ':'))))


def _compressed(text: str) -> bytes:
    """Compress a text with less than the 256 kB of zlib's default settings."""
    one = zlib.compressobj(zlib.Z_BEST_SPEED, wbits=12, memLevel=5)
    return one.compress(text.encode()) + one.flush()


def _moment(date: str | None) -> datetime.datetime | None:
    """Return the time in an HTTP header, None if there is none."""
    try:
        return email.utils.parsedate_to_datetime(date) if date else None
    except ValueError:
        return None


class IronicMachines:
    """Machines of this host's instances, by nova's driver (port Machines)."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    def provision_state(self, instance: objects.Instance) -> str | None:
        node = self._node(instance)
        return None if node is None else node.provision_state

    def vm_state(self, instance: objects.Instance) -> str | None:
        """Return the vm_state of an instance's machine, None if unknown."""
        node = self._node(instance)
        if node is None or node.provision_state != 'active':
            return None
        # Without the power state of the BMC, nova's last one counts.
        return {'power on': vm_states.ACTIVE,
                'power off': vm_states.STOPPED}.get(node.power_state) or {
            power_state.RUNNING: vm_states.ACTIVE,
            power_state.SHUTDOWN: vm_states.STOPPED}.get(
                instance.power_state)

    def _node(self, instance):
        """Return the node that Ironic has an instance on, None if none."""
        if instance.node is None:
            return None
        try:
            node = self._driver._get_node(instance.node)
        except names.NodeNotFound:
            return None
        return node if node.instance_id == instance.uuid else None

    def deployed_since(self, instance: objects.Instance,
                       moment: datetime.datetime | None) -> bool:
        if moment is None:
            return False
        # openstacksdk lacks the field; the API selects fields since 1.8.
        answer = self._driver.ironic_connection.get(
            f'/nodes/{instance.node}', microversion='1.8',
            params={'fields': 'provision_updated_at,last_error'})
        exceptions.raise_from_response(answer)
        # provision_updated_at changes, too, when no worker is free; then
        # last_error is set, which a deployment clears
        # (ironic.conductor.utils:provisioning_error_handler).
        node = answer.json()
        changed = node['provision_updated_at']
        return (changed is not None and not node['last_error']
                and timeutils.parse_isotime(changed) > moment)


class NodeCache(abc.MutableMapping):
    """The nodes of this host by uuid, in place of nova's dict ``node_cache``.

    A view of the mirror, plus the objects of single reads since the last audit
    of all nodes. nova iterates over it in one thread while others change it.

    :param nodes: returns the rows of the nodes that this host owns.
    """

    def __init__(self, make: abc.Callable[[bytes], typing.Any],
                 nodes: abc.Callable[[], abc.Mapping[str, NodeRow]],
                 mirror: lister.Lister) -> None:
        self._made = functools.lru_cache(MADE)(make)
        self._nodes = nodes
        self._lister = mirror
        # Uuid -> object of a single read.
        self._read: dict[str, typing.Any] = {}
        # Of the rows of an audit; it may be outdated.
        self._by_instance: dict[str | None, str] = {}
        self._indexed: abc.Mapping[str, NodeRow] = {}

    def row(self, uuid: str) -> NodeRow | None:
        """Return the row of a node from a listing, None if there is none."""
        known = self._nodes().get(uuid)
        return None if known is None else self._lister.newest(known)

    def __getitem__(self, uuid):
        row = self.row(uuid)
        return self._read[uuid] if row is None else self._made(row.body)

    def __setitem__(self, uuid, node):
        self._read[uuid] = node

    def __delitem__(self, uuid):
        self._read.pop(uuid, None)
        self._lister.forget(uuid)

    def __contains__(self, uuid):
        return uuid in self._read or self.row(uuid) is not None

    def __iter__(self):
        return (uuid for uuid in {**self._nodes(), **self._read}
                if uuid in self)

    def __bool__(self):
        return next(iter(self), None) is not None

    def __len__(self):
        return len([*self])

    def items(self):
        """Return an iterator over the (uuid, node) pairs."""
        return ((uuid, node) for uuid in self
                if (node := self.get(uuid)) is not None)

    def values(self):
        """Return an iterator over the nodes."""
        return (node for _, node in self.items())

    def instances(self) -> dict[str, str]:
        """Return {uuid of a node: uuid of its instance}."""
        found = {uuid: node.instance_id
                 for uuid, node in list(self._read.items())}
        found.update((uuid, row.instance) for uuid in self._nodes()
                     if (row := self.row(uuid)) is not None)
        return {uuid: instance for uuid, instance in found.items()
                if instance is not None}

    def of_instance(self, instance: str) -> typing.Any:
        """Return the node of an instance, None if it is unknown."""
        nodes = self._nodes()
        if self._indexed is not nodes:
            self._by_instance = {
                row.instance: uuid for uuid, row in nodes.items()}
            self._indexed = nodes
        node = self.get(self._by_instance.get(instance))
        return (node if node is not None and node.instance_id == instance
                else None)

    def renew(self) -> None:
        """Drop all objects, which may be older than the mirror."""
        self._read.clear()
        self._made.cache_clear()

    def forget(self, uuid: str) -> None:
        """Remove a node that has changed, until it is read again."""
        # Wait for a read of the node that has begun.
        _one_at_a_time(uuid)(self.__delitem__)(uuid)

    def read(self, uuid: str, get: abc.Callable[[str], typing.Any],
             is_mine: abc.Callable[[str], bool]) -> typing.Any:
        """Return a node from the cache, or read it with ``get``."""
        @_one_at_a_time(uuid)
        def read():
            node = self.get(uuid)
            if node is None:
                node = get(uuid)
                # A listing meanwhile may be newer.
                if self.row(uuid) is not None:
                    return self[uuid]
                if is_mine(uuid):
                    self[uuid] = node
            return node

        return read()


def _one_at_a_time(uuid):
    # nova's own lock (IronicDriver._unprovision).
    return names.synchronized(f'ironic-node-{uuid}')
