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


"""Who shares the nodes: peers and members.

A *peer* is a compute service of the same partition: any service with an
Ironic compute node or, with ``[ironic]conductor_group``, those of them that
``[ironic]peer_list`` names; with ``[ironic]shard`` nobody but this host.
A *member* is a peer that is up. This host is always its own member: it may
be new and have no compute node by which others, or itself, would find it.

Host names are compared in lower case, as nova's services table and DNS do.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class ComputeService:
    """What is known of one nova-compute service.

    :param host: its name, as nova spells it.
    :param up: whether nova's servicegroup takes it for up; False also when
        it is forced down.
    """

    host: str
    up: bool


@dataclasses.dataclass(frozen=True)
class Partition:
    """The set of nodes that a group of compute services shares.

    All nodes, or those of one ``[ironic]conductor_group`` and/or ``shard``.

    :param conductor_group: name of the group; the empty string is Ironic's
        default group, None means any group.
    :param shard: name of the shard, or None for any.
    :param peer_list: hosts that the operator named for the conductor group.
    """

    conductor_group: str | None = None
    shard: str | None = None
    peer_list: tuple[str, ...] = ()

    def peers(self, host):
        """Return the hosts that may be members, lower case, None for any.

        :param host: this compute service.
        """
        if self.shard:
            return frozenset({host.lower()})
        if self.conductor_group is not None:
            return frozenset(name.lower() for name in self.peer_list)
        return None


def members(services, partition, host):
    """Return the hosts that share the nodes of the partition.

    :param services: iterable of :class:`ComputeService`.
    :param partition: :class:`Partition` of this compute service.
    :param host: this compute service.
    :returns: frozenset of host names in lower case, ``host`` among them.
    """
    peers = partition.peers(host)
    live = {service.host.lower() for service in services if service.up}
    if peers is not None:
        live &= peers
    return frozenset(live | {host.lower()})
