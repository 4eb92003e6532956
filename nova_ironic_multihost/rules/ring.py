# SPDX-License-Identifier: Apache-2.0


"""Which member prefers which node: a consistent hash over the members.

Compute services that see the same members and use the same number of points
compute the same preferences. A member that joins or leaves changes the
preference of its own share of the nodes only. A preference is not yet an
ownership (:mod:`.ownership`).
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import warnings

from oslo_log import log as logging
with warnings.catch_warnings(record=True):
    # It imports eventlet, where that is installed, which warns about itself
    # and resets the filters to be heard: nothing for who gives a command.
    from tooz import hashring

from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)


class Ring:
    """An immutable map: node uuid -> the member that prefers the node.

    ``hashring`` is the tooz ring behind it.

    :param members: hosts; at least one.
    :param points: points per member, 1 or more. More points spread nodes more
        evenly (documentation, page "The hash ring").
    :raises ValueError: there is no member.
    """

    def __init__(self, members: Iterable[HostKey], points: int) -> None:
        self.members = frozenset(members)
        self.points = points
        if not self.members:
            raise ValueError('a ring needs at least one member')
        self.hashring = hashring.HashRing(self.members, partitions=points)
        # A node is looked up several times in a row. Replaced whole.
        self._last: tuple[str, HostKey] | None = None

    def host_for(self, node_uuid: str) -> HostKey:
        """Return the member that prefers a node."""
        last = self._last
        if last is not None and last[0] == node_uuid:
            return last[1]
        host: HostKey
        host, = self.hashring.get_nodes(node_uuid.encode('utf-8'))
        self._last = node_uuid, host
        return host

    def prefers(self, host: HostKey, node_uuid: str) -> bool:
        """Whether ``host`` is the node's preferred member."""
        return self.host_for(node_uuid) == host

    def shares(self, node_uuids: Iterable[str]) -> dict[HostKey, int]:
        """Count the nodes that each member prefers, 0 included."""
        counts = collections.Counter(
            self.host_for(node_uuid) for node_uuid in node_uuids)
        return {member: counts[member] for member in self.members}


class Preferences:
    """An immutable map: node uuid, zone of its owner -> preferred member.

    A machine does not change its rack. So members of the owner's availability
    zone, and members without a zone, may take a node, unless nodes may cross
    zones. A member without a zone gets such a node only if the ring of all
    members picks it too; otherwise the node would move again.

    :param members: host -> its explicit availability zone or None; if it is
        empty nobody is preferred.
    :param points: points per member, 1 or more.
    :param cross_zones: nodes may cross zones.
    """

    def __init__(self, members: Mapping[HostKey, str | None], points: int,
                 cross_zones: bool = False) -> None:
        self.members = dict(members)
        self.points = points
        self.cross_zones = cross_zones
        zones = set() if cross_zones else set(self.members.values()) - {None}
        self.ring = _ring(self.members, points)
        # Of those that may take the nodes of a zone without a member.
        self._open = _ring(
            (host for host, zone in self.members.items() if zone is None),
            points) if zones else self.ring
        self._zones: dict[str | None, Ring | None] = {
            zone: _ring((host for host, its in self.members.items()
                         if its in (zone, None)), points)
            for zone in zones}
        self._own: dict[str | None, Ring | None] = {
            zone: _ring((host for host, its in self.members.items()
                         if its == zone), points)
            for zone in zones}

    def ring_for(self, zone: str | None) -> Ring | None:
        """Return the ring of the members that may take nodes of a zone.

        None if there is no such member.

        :param zone: explicit availability zone of the owner, or None.
        """
        if zone is None:
            return self.ring
        return self._zones.get(zone, self._open)

    def host_for(self, node_uuid: str, zone: str | None = None
                 ) -> HostKey | None:
        """Return the member that prefers the node, None if there is none."""
        ring = self.ring_for(zone)
        if ring is None or self.ring is None:
            return None
        host = ring.host_for(node_uuid)
        own = self._own.get(zone)
        if (own is not None and self.members[host] is None
                and not self.ring.prefers(host, node_uuid)):
            return own.host_for(node_uuid)
        return host

    def prefers(self, host: HostKey, node_uuid: str, zone: str | None = None
                ) -> bool:
        """Whether ``host`` is the node's preferred member."""
        return self.host_for(node_uuid, zone) == host

    def may_prefer(self, host: HostKey, node_uuid: str) -> bool:
        """Whether ``host`` is preferred for the node with some owner.

        It is then preferred among the members of its own zone alone: the first
        host on a ring is first on each ring of fewer members.
        """
        return self.takeover_target(node_uuid, self.members.get(host)) == host

    def may_inherit(self, host: HostKey, node_uuid: str,
                    zones: Iterable[str | None]) -> bool:
        """Whether ``host`` is preferred for a node, or an instance on it.

        :param zones: explicit availability zones of possible owners, or None.
        """
        return any(
            self.prefers(host, node_uuid, zone)
            or bool(self._own)
            and self.takeover_target(node_uuid, zone) == host
            for zone in zones
        )

    def may_keep(self, host: HostKey, zone: str | None) -> bool:
        """Whether the owner of a node also takes a dead host's instance on it.

        :param zone: explicit availability zone of the dead host, or None.
        """
        return host in self.members and (
            self.cross_zones or self.members[host] == zone)

    def takeover_target(self, node_uuid: str, zone: str | None = None
             ) -> HostKey | None:
        """Return the member that takes a dead host's instance, or None.

        The instance stays in the availability zone of its host, unless nodes
        may cross zones.

        :param zone: explicit availability zone of the dead host, or None.
        """
        if self.cross_zones:
            ring = self.ring
        else:
            ring = self._open if zone is None else self._own.get(zone)
        return ring.host_for(node_uuid) if ring is not None else None


def _ring(hosts: Iterable[HostKey], points: int) -> Ring | None:
    hosts = frozenset(hosts)
    return Ring(hosts, points) if hosts else None


def refreshed(preferences: Preferences | None,
              members: Mapping[HostKey, str | None], points: int,
              cross_zones: bool = False) -> Preferences:
    """Return the preferences of these members; log which joined and left.

    :param preferences: those so far, or None. They are returned if nothing has
        changed, as a ring takes milliseconds.
    """
    found = same_or_new(preferences, members, points, cross_zones)
    before = set(preferences.members) if preferences else set()
    if before != set(members):
        LOG.info('Compute services that share the nodes: %(count)d; joined: '
                 '%(joined)s; left: %(left)s.', {
                     'count': len(members),
                     'joined': ', '.join(sorted(set(members) - before))
                     or 'none',
                     'left': ', '.join(sorted(before - set(members)))
                     or 'none'})
    return found


def same_or_new(preferences: Preferences | None,
                members: Mapping[HostKey, str | None], points: int,
                cross_zones: bool = False) -> Preferences:
    """Return the preferences of these members, without a log line.

    The given ones if nothing has changed.
    """
    wanted = dict(members), points, cross_zones
    if preferences and wanted == (preferences.members, preferences.points,
                                  preferences.cross_zones):
        return preferences
    return Preferences(*wanted)
