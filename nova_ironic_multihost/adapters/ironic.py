# SPDX-License-Identifier: Apache-2.0

"""Ironic's listings as plain JSON, a page at a time.

An openstacksdk object takes forty times the memory, so objects are made only
of nodes that nova asks for. Ironic's link to the next page loses most filters
(NodesController._get_nodes_collection), so it is not used.
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

#: The first API version that counts the nodes of shards.
COUNTED = '1.82'

_MINIMAL_FIELDS = ('uuid', 'instance_uuid')


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
             limit: int, wanted: Callable[[str, str | None], bool] | None,
             unused: bool = False) -> ListingPage:
        """List nodes in the order of their creation."""
        filters, _ = query(partition)
        if unused:
            filters['associated'] = 'false'
        return self._page(
            partition, after, limit, wanted, filters, _fields(wanted))

    @_listing_errors()
    def newest(
        self,
        partition: peers.Partition,
        after: str | None,
        limit: int,
        wanted: Callable[[str, str | None], bool],
    ) -> ListingPage:
        """List nodes, the last changed first."""
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
        """Read one node."""
        answer = self._get(f'/nodes/{node}', {
            'fields': ','.join(names.node_fields())}, node)
        return _row(answer.json(), lambda node, instance: True, {})

    @_listing_errors()
    def touched(self, node: str) -> datetime.datetime | None:
        """Read the time of the last change of a node."""
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
         wanted: Callable[[str, str | None], bool] | None,
         filters: dict[str, str]) -> NodeRow:
    uuid, instance = found['uuid'], found['instance_uuid']
    if not all(_filter_matches(found.get(name, value), value)
               for name, value in filters.items()):
        return NodeRow(uuid, instance, here=False)
    if wanted is None or not wanted(uuid, instance):
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
