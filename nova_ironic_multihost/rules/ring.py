# SPDX-License-Identifier: Apache-2.0

"""The hash ring: which member is preferred for which node.

All compute services with the same members and number of points compute the
same preferences. A member that comes or goes changes only its own share of the
nodes. A preference is not ownership (:mod:`.ownership`).
"""

import collections
from collections import abc
import functools
import logging
import typing
import warnings

from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)


@functools.cache
def _hashring() -> typing.Any:
    """Return tooz.hashring; the help of a command does not wait for it."""
    # Once: this changes filters of all threads. tooz imports eventlet, which
    # would warn users of commands.
    with warnings.catch_warnings(record=True):
        from tooz import hashring
    return hashring


class Ring:
    """Immutable map: node uuid -> preferred member of one or more."""

    # ``points`` per member: 1 or more (page "The hash ring" of the docs).
    def __init__(self, members: abc.Iterable[HostKey], points: int) -> None:
        self.members = frozenset(members)
        self.hashring = _hashring().HashRing(self.members, partitions=points)
        # A node is looked up several times in a row. Replaced as a whole.
        self._last: tuple[str, HostKey] | None = None

    def host_for(self, node_uuid: str) -> HostKey:
        """Return the member that the ring prefers for the node."""
        last = self._last
        if last is not None and last[0] == node_uuid:
            return last[1]
        host: HostKey
        host, = self.hashring.get_nodes(node_uuid.encode('utf-8'))
        self._last = node_uuid, host
        return host

    def shares(self, node_uuids: abc.Iterable[str]) -> dict[HostKey, int]:
        """Return member -> number of nodes that the ring gives to it."""
        counts = collections.Counter(
            self.host_for(node_uuid) for node_uuid in node_uuids)
        return {member: counts[member] for member in self.members}


class Preferences:
    """An immutable map: node uuid and zone of its owner -> preferred member.

    The machine stays in its rack, so only members of its zone, or of none, get
    the node. A member without a zone gets it only if the ring of all members
    prefers it too; otherwise the node would move on, perhaps to a third zone.
    ``cross_zones`` lifts both.
    """

    def __init__(self, members: abc.Mapping[HostKey, str | None], points: int,
                 cross_zones: bool = False) -> None:
        self.members = dict(members)
        self.points = points
        self.cross_zones = cross_zones
        self._zones = frozenset(self.members.values())
        self._rings = functools.cache(self._ring)
        self.ring = self._rings(self._zones)

    def _ring(self, zones: abc.Set[str | None]) -> Ring | None:
        members = [host for host, zone in self.members.items()
                   if zone in zones]
        return Ring(members, self.points) if members else None

    def _of(self, *zones: str | None) -> Ring | None:
        """Return the ring of the members of some zones; None: no zone."""
        return self._rings(self._zones.intersection(zones))

    def host_for(self, node_uuid: str, zone: str | None = None
                 ) -> HostKey | None:
        """Return the preferred member for the node, None if there is none."""
        anywhere = self.cross_zones or zone is None
        ring = self.ring if anywhere else self._of(zone, None)
        if ring is None or self.ring is None:
            return None
        host = ring.host_for(node_uuid)
        if (not anywhere and self.members[host] is None
                and self.ring.host_for(node_uuid) != host
                and (ring_of_zone := self._of(zone))):
            return ring_of_zone.host_for(node_uuid)
        return host

    def prefers(self, host: HostKey, node_uuid: str, zone: str | None = None
                ) -> bool:
        """Return whether ``host`` is the preferred member for the node."""
        return self.host_for(node_uuid, zone) == host

    def may_prefer(self, host: HostKey, node_uuid: str) -> bool:
        """Return whether ``host`` is preferred with some owner of the node."""
        # A member that is first on a ring is first on any with fewer members.
        return self.takeover_target(node_uuid, self.members.get(host)) == host

    def may_inherit(self, host: HostKey, node_uuid: str,
                    zones: abc.Iterable[str | None]) -> bool:
        """Return whether ``host`` gets the node or its instance from zones."""
        return any(
            self.prefers(host, node_uuid, zone)
            or self.takeover_target(node_uuid, zone) == host
            for zone in zones)

    def may_keep(self, host: HostKey, zone: str | None) -> bool:
        """Return whether a node's owner may take over the instance on it."""
        return host in self.members and (
            self.cross_zones or self.members[host] == zone)

    def takeover_target(self, node_uuid: str, zone: str | None = None
                        ) -> HostKey | None:
        """Return the member that takes over the instance on a node."""
        # Users asked for the dead host's zone; only cross_zones changes it.
        ring = self.ring if self.cross_zones else self._of(zone)
        return ring.host_for(node_uuid) if ring is not None else None


def refreshed(preferences: Preferences | None,
              members: abc.Mapping[HostKey, str | None], points: int,
              cross_zones: bool = False) -> Preferences:
    """Return the preferences of these members; log who joined and left."""
    wanted = dict(members), points, cross_zones
    if preferences and wanted == (preferences.members, preferences.points,
                                  preferences.cross_zones):
        return preferences
    before = set(preferences.members) if preferences else set()
    if before != set(members):
        LOG.info('Compute services that share the nodes: %(count)d; joined: '
                 '%(joined)s; left: %(left)s.', {
                     'count': len(members),
                     'joined': ', '.join(sorted(set(members) - before))
                     or 'none',
                     'left': ', '.join(sorted(before - set(members)))
                     or 'none'})
    return Preferences(*wanted)
