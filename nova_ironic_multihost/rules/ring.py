# SPDX-License-Identifier: Apache-2.0


"""Which member prefers which node.

A consistent hash over the members: every compute service that sees the same
members and uses the same number of points computes the same preference,
whatever the order in which it learned of them, and a member that comes or
goes changes the preference of its own share of the nodes only. A preference
is not an ownership; :mod:`nova_ironic_multihost.rules.ownership` decides that.
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

    :param members: iterable of hosts; at least one.
    :param points: points per member on the ring, 1 or more. More points
        spread the nodes more evenly; the table in the documentation (page
        "The hash ring") says what they cost.
    :raises ValueError: when there is no member.

    ``hashring`` is the tooz ring behind it; nobody may change it.
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
        """Return the member that prefers the node.

        :param node_uuid: uuid of an Ironic node, as Ironic spells it.
        """
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
        """Count the nodes that each member prefers.

        :param node_uuids: iterable of node uuids.
        :returns: dict of member -> number of nodes, every member included.
        """
        counts = collections.Counter(
            self.host_for(node_uuid) for node_uuid in node_uuids)
        return {member: counts[member] for member in self.members}


class Preferences:
    """An immutable map: node uuid, zone of its owner -> preferred member.

    A machine does not change its rack, so a node whose owner is in an
    explicit availability zone is wanted only by members of that zone and by
    members without one, unless nodes may cross zones. By a member without
    one it is wanted only if that would want it from anybody: else it would
    be on its way to yet another member, in a third zone perhaps.

    :param members: host -> its explicit availability zone, or
        None; may be empty, then nobody is preferred for anything.
    :param points: points per member on the ring, 1 or more.
    :param cross_zones: whether nodes may cross zones.
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
        """Return the ring of those that may take nodes of a zone, or None.

        :param zone: explicit availability zone of the node's owner; None if
            it has none or nobody owns the node.
        """
        if zone is None:
            return self.ring
        return self._zones.get(zone, self._open)

    def host_for(self, node_uuid: str, zone: str | None = None
                 ) -> HostKey | None:
        """Return the member that prefers the node, None if nobody may."""
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
        """Whether ``host`` is preferred for the node with any owner at all.

        Then it is so among the members of its own zone alone: who comes first
        on a ring comes first on any ring of fewer members.
        """
        return self.takeover_target(node_uuid, self.members.get(host)) == host

    def may_inherit(self, host: HostKey, node_uuid: str,
                    zones: Iterable[str | None]) -> bool:
        """Whether ``host`` is preferred for what somebody in a zone has.

        For the node itself, or for an instance on it.

        :param zones: explicit availability zones of owners, or None.
        """
        return any(
            self.prefers(host, node_uuid, zone)
            or bool(self._own)
            and self.takeover_target(node_uuid, zone) == host
            for zone in zones
        )

    def may_keep(self, host: HostKey, zone: str | None) -> bool:
        """Whether a node's owner takes the dead host's instance on it, too.

        :param zone: as for :meth:`takeover_target`.
        """
        return host in self.members and (
            self.cross_zones or self.members[host] == zone)

    def takeover_target(self, node_uuid: str, zone: str | None = None
             ) -> HostKey | None:
        """Return the member that is to have a dead host's instance, or None.

        An instance was asked for in the zone of its host and stays there: it
        goes to a member of that very zone, unless nodes may cross zones.

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
    """Return the preferences of these members, the given ones if they are.

    Building a ring takes milliseconds, but an audit that changes nothing
    should do nothing. Who joined and who left is logged.

    :param preferences: the :class:`Preferences` so far, or None.
    :param members: host -> explicit availability zone or None.
    :param points: points per member.
    :param cross_zones: whether nodes may cross zones.
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
    """Return the preferences of these members, the given ones if they are.

    Parameters as for :func:`refreshed`, which also logs.
    """
    wanted = dict(members), points, cross_zones
    if preferences and wanted == (preferences.members, preferences.points,
                                  preferences.cross_zones):
        return preferences
    return Preferences(*wanted)
