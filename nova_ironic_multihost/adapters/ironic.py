# SPDX-License-Identifier: Apache-2.0

"""Ironic's listings as plain JSON, a page at a time.

An openstacksdk object of a node costs forty times what its JSON costs, so
they are made of nodes that nova asks for, and of no others.

Each page is asked for with all its parameters: the link to the next one that
Ironic gives has lost most filters (ironic.api.controllers.v1.node:
NodesController._get_nodes_collection), and lists nodes of others.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import datetime
import email.utils
import json
import typing
import zlib

from openstack.baremetal.v1 import node as sdk_node
from openstack import exceptions
from openstack import utils
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules import peers

#: Since when Ironic counts the nodes of its shards.
COUNTED = '1.82'

_SLIM = ('uuid', 'instance_uuid')


def node(body: bytes, connection: typing.Any) -> sdk_node.Node:
    """Return a node as openstacksdk would have listed it.

    :param body: :attr:`.rules.mirror.NodeRow.body`.
    :param connection: to Ironic.
    """
    return sdk_node.Node.existing(
        connection=connection._get_connection(), **content(body))


def content(body: bytes) -> dict[str, typing.Any]:
    """Return {field: value} of a node, the fields that nova works with.

    :param body: :attr:`.rules.mirror.NodeRow.body`.
    """
    return dict(zip(names.node_fields(), json.loads(zlib.decompress(body)),
                    strict=True))


@contextlib.contextmanager
def _asking():
    """Have whatever goes wrong as a ListingError."""
    try:
        yield
    except (ListingError, MarkerNotFound):
        raise
    except Exception as exc:
        text = ' '.join(str(exc).split())
        raise ListingError(f'{type(exc).__name__}: {text}') from exc


class NodePages:
    """Implements the port :class:`.engine.base.ports.NodePages`.

    Uses ``_can_send_version``, which is private to nova's driver and to its
    subclasses.

    :param driver: the virt driver.
    """

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    @_asking()
    def page(self, partition: peers.Partition, after: str | None,
             limit: int, wanted: Callable[[str, str | None], bool] | None,
             unused: bool = False) -> ListingPage:
        """List nodes in the order in which they were created."""
        filters, _ = query(partition)
        if unused:
            filters['associated'] = 'false'
        return self._page(
            partition, after, limit, wanted, filters, _fields(wanted))

    @_asking()
    def newest(
        self,
        partition: peers.Partition,
        after: str | None,
        limit: int,
        wanted: Callable[[str, str | None], bool],
    ) -> ListingPage:
        """List nodes, the one that was touched last first."""
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

    @_asking()
    def node(self, node: str) -> NodeRow:
        """Ask for one node."""
        answer = self._get(f'/nodes/{node}', {
            'fields': ','.join(names.node_fields())}, node)
        return _row(answer.json(), lambda node, instance: True, {})

    @_asking()
    def touched(self, node: str) -> datetime.datetime | None:
        """Ask when a node was touched last."""
        moment = self._get(f'/nodes/{node}', {}, node).json()['updated_at']
        return timeutils.parse_isotime(moment) if moment else None

    @_asking()
    def total(self, partition: peers.Partition) -> int | None:
        """Count the nodes, if this process may, and Ironic can.

        Of a conductor group Ironic counts none.
        """
        if not utils.supports_microversion(
                self._driver.ironic_connection, COUNTED):
            return None
        try:
            answer = self._get('/shards', {})
        except exceptions.ForbiddenException:
            return None
        return sum(shard['count'] for shard in answer.json()['shards']
                   if not partition.shard
                   or _same(shard['name'], partition.shard))

    def _get(self, path, params, mark=None):
        """Ask Ironic.

        :param mark: uuid of a node that the answer depends on.
        """
        connection = self._driver.ironic_connection
        # As openstacksdk does it (openstack.resource:Resource.
        # _get_microversion, whose arguments are not always the same).
        answer = connection.get(
            path, params=params, microversion=(
                connection.default_microversion
                or utils.maximum_supported_microversion(
                    connection, sdk_node.Node._max_microversion)))
        if mark and answer.status_code == 404:
            raise MarkerNotFound(f'node {mark} is gone')
        exceptions.raise_from_response(answer)
        return answer


def query(partition: peers.Partition
          ) -> tuple[dict[str, str], list[str]]:
    """Say how Ironic lists the nodes of a partition, and of no other.

    :param partition: :class:`.membership.Partition`.
    :returns: (filters, versions): dict of query parameters, and the list of
        the Ironic API versions that must be available for them. An older
        Ironic would ignore a filter and list everybody's nodes.
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
    return names.node_fields() if wanted else _SLIM


def _same(theirs: str | None, wanted: str) -> bool:
    """Whether a filter lets it through, as far as that can be known.

    The collation of Ironic's database decides: MariaDB looks at no case, and
    at no accents either; PostgreSQL and SQLite look at both.
    """
    return (theirs or '').casefold() == wanted.casefold()


def _row(found: dict[str, typing.Any],
         wanted: Callable[[str, str | None], bool] | None,
         filters: dict[str, str]) -> NodeRow:
    uuid, instance = found['uuid'], found['instance_uuid']
    if not all(_same(found.get(name, value), value)
               for name, value in filters.items()):
        return NodeRow(uuid, instance, here=False)
    if wanted is None or not wanted(uuid, instance):
        return NodeRow(uuid, instance)
    return NodeRow(uuid, instance, _compressed(json.dumps(
        [found[name] for name in names.node_fields()],
        sort_keys=True, separators=(',', ':'))))


def _compressed(text: str) -> bytes:
    """Return as few bytes as there need be, as many are kept.

    zlib's own settings take a quarter of a MB for each that it makes.
    """
    one = zlib.compressobj(zlib.Z_BEST_SPEED, wbits=12, memLevel=5)
    return one.compress(text.encode()) + one.flush()


def _moment(date: str | None) -> datetime.datetime | None:
    """Return the moment in a header of HTTP, None if it has none."""
    try:
        return email.utils.parsedate_to_datetime(date) if date else None
    except ValueError:
        return None
