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
is not an ownership; :mod:`nova_ironic_multihost.ownership` decides that.
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


def refreshed(ring, members, partitions):
    """Return the ring for these members, the given one if it is that.

    Building a ring takes milliseconds, but an audit that changes nothing
    should do nothing. Who joined and who left is logged.

    :param ring: the :class:`Ring` so far, or None.
    :param members: host names in lower case; at least one.
    :param partitions: points per member.
    """
    members = frozenset(members)
    if ring and (ring.members, ring.partitions) == (members, partitions):
        return ring
    before = ring.members if ring else frozenset()
    LOG.info('Compute services that share the nodes: %(count)d; joined: '
             '%(joined)s; left: %(left)s.', {
                 'count': len(members),
                 'joined': ', '.join(sorted(members - before)) or 'none',
                 'left': ', '.join(sorted(before - members)) or 'none'})
    return Ring(members, partitions)
