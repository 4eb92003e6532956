# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Which member prefers which node.

A consistent hash over the members: every compute service that sees the same
members and uses the same number of partitions computes the same preference,
whatever the order in which it learned of them, and a member that comes or
goes changes the preference of its own share of the nodes only. A preference
is not an ownership; :mod:`nova_ironic_multihost.core.ownership` decides that.
"""

import collections

from oslo_log import log as logging
from tooz import hashring

LOG = logging.getLogger(__name__)


class Ring:
    """An immutable map: node uuid -> the member that prefers the node.

    :param members: iterable of host names in lower case; at least one.
    :param partitions: points per member on the ring, 1 or more. More points
        spread the nodes more evenly; the table in the documentation (page
        "The hash ring") says what they cost.
    :raises ValueError: when there is no member.

    ``hashring`` is the tooz ring behind it; nobody may change it.
    """

    def __init__(self, members, partitions):
        self.members = frozenset(members)
        self.partitions = partitions
        if not self.members:
            raise ValueError('a ring needs at least one member')
        self.hashring = hashring.HashRing(self.members,
                                           partitions=partitions)

    def host_for(self, node_uuid):
        """Return the member that prefers the node.

        :param node_uuid: uuid of an Ironic node, as Ironic spells it.
        """
        host, = self.hashring.get_nodes(node_uuid.encode('utf-8'))
        return host

    def prefers(self, host, node_uuid):
        """Whether ``host``, in lower case, is the node's preferred member."""
        return host in self.hashring.get_nodes(node_uuid.encode('utf-8'))

    def shares(self, node_uuids):
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

    :param members: host in lower case -> its explicit availability zone, or
        None; may be empty, then nobody is preferred for anything.
    :param partitions: points per member on the ring, 1 or more.
    :param cross_zones: whether nodes may cross zones.
    """

    def __init__(self, members, partitions, cross_zones=False):
        self.members = dict(members)
        self.partitions = partitions
        self.cross_zones = cross_zones
        zones = set() if cross_zones else set(self.members.values()) - {None}
        self.ring = _ring(self.members, partitions)
        # Of those that may take the nodes of a zone without a member.
        self._open = _ring(
            (host for host, zone in self.members.items() if zone is None),
            partitions) if zones else self.ring
        self._zones = {
            zone: _ring((host for host, its in self.members.items()
                         if its in (zone, None)), partitions)
            for zone in zones}
        self._own = {
            zone: _ring((host for host, its in self.members.items()
                         if its == zone), partitions)
            for zone in zones}
        # One for each way in which the owner's zone matters.
        self._cases = (None, *zones, object()) if zones else (None,)

    def ring_for(self, zone):
        """Return the ring of those that may take nodes of a zone, or None.

        :param zone: explicit availability zone of the node's owner; None if
            it has none or nobody owns the node.
        """
        if zone is None:
            return self.ring
        return self._zones.get(zone, self._open)

    def host_for(self, node_uuid, zone=None):
        """Return the member that prefers the node, None if nobody may."""
        ring = self.ring_for(zone)
        host = ring and ring.host_for(node_uuid)
        if (ring is not self.ring and zone in self._own
                and self.members[host] is None
                and not self.ring.prefers(host, node_uuid)):
            return self._own[zone].host_for(node_uuid)
        return host

    def prefers(self, host, node_uuid, zone=None):
        """Whether ``host``, in lower case, is the node's preferred member."""
        return self.host_for(node_uuid, zone) == host

    def may_prefer(self, host, node_uuid):
        """Whether ``host`` is preferred for the node with any owner at all.

        :param host: host in lower case.
        """
        return any(
            self.prefers(host, node_uuid, zone) for zone in self._cases) or (
            bool(self._own) and self.heir(
                node_uuid, self.members.get(host)) == host)

    def heir(self, node_uuid, zone=None):
        """Return the member that is to have a dead host's instance, or None.

        An instance was asked for in the zone of its host and stays there: it
        goes to a member of that very zone, unless nodes may cross zones.

        :param zone: explicit availability zone of the dead host, or None.
        """
        if self.cross_zones:
            ring = self.ring
        else:
            ring = self._open if zone is None else self._own.get(zone)
        return ring and ring.host_for(node_uuid)


def _ring(hosts, partitions):
    hosts = frozenset(hosts)
    return Ring(hosts, partitions) if hosts else None


def refreshed(preferences, members, partitions, cross_zones=False):
    """Return the preferences of these members, the given ones if they are.

    Building a ring takes milliseconds, but an audit that changes nothing
    should do nothing. Who joined and who left is logged.

    :param preferences: the :class:`Preferences` so far, or None.
    :param members: host in lower case -> explicit availability zone or None.
    :param partitions: points per member.
    :param cross_zones: whether nodes may cross zones.
    """
    members = dict(members)
    if preferences and (
            preferences.members, preferences.partitions,
            preferences.cross_zones) == (members, partitions, cross_zones):
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
    return Preferences(members, partitions, cross_zones)
