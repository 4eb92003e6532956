# SPDX-License-Identifier: Apache-2.0

"""Forecast who takes what a compute service has, when it is fenced or drained.

Without I/O. A fenced compute service is forced down and disabled in nova:
others take over its servers (:mod:`.rules.takeover`) and take its free nodes.
A drained one is disabled: it keeps its nodes with servers, and the audits of
the others take its free nodes (:mod:`.rules.ownership`, rule 9).
"""

import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import enum
import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


def open_for_builds(services: tuple[cloud_state.Service, ...]
                    ) -> list[cloud_state.Service]:
    """Return the compute services that nova sends builds to."""
    return [s for s in services if s.up and not s.disabled]


class Obstacle(enum.Enum):
    """Why no host takes a server or a node; the value is for people."""

    MIGRATING = (
        'until their migration is over: that of an evacuation ends within two '
        'minutes, any other one has to be ended')
    NO_PARTITION = (
        'because no other compute service that is enabled and up has nodes of '
        'their conductor group and shard: enable or start one there, or give '
        'their nodes in Ironic a group and shard that one serves')
    NO_TARGET = (
        'because no other compute service of this availability zone and '
        'partition is enabled and up: enable or start one')
    NO_MACHINE = (
        'because Ironic holds no node for them: they can only be deleted, or '
        'wait until this compute service is back')
    OTHER_MACHINE = (
        'because Ironic holds another node for them than nova has: compare '
        '"openstack baremetal node list --long" with "openstack server show"')
    SERVING = 'until the server on each is deleted'
    STRAY = (
        'because they are held for servers that nova does not have: '
        '"nova-ironic-multihost leaks" says what becomes of them')
    HIDDEN = (
        'because Ironic does not show them: they are gone, or hidden from '
        'this account; only their compute service lets them go')


#: Why a drained compute service keeps a node that is not free.
_NOT_FREE = frozenset({Obstacle.SERVING, Obstacle.STRAY, Obstacle.HIDDEN})

# The host that takes a server or a node, or why no host does.
_Target: typing.TypeAlias = HostKey | Obstacle
_Names: typing.TypeAlias = Mapping[Obstacle, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class HostForecast:
    """Which hosts take the servers and free nodes of a compute service.

    :ivar servers: host, as nova spells it -> number of servers it takes over
    :ivar nodes: host, as nova spells it -> number of free nodes it takes
    :ivar stuck_servers: obstacle -> names of servers that stay
    :ivar stuck_nodes: obstacle -> uuids of free nodes that stay
    :ivar kept_nodes: the same of nodes that are not free, of a drained one
    """

    servers: Mapping[str, int]
    nodes: Mapping[str, int]
    stuck_servers: _Names
    stuck_nodes: _Names
    kept_nodes: _Names

    @property
    def server_count(self) -> int:
        """The number of servers, moving or not."""
        return sum(self.servers.values()) + _count(self.stuck_servers)

    @property
    def node_count(self) -> int:
        """The number of free nodes, moving or not."""
        return sum(self.nodes.values()) + _count(self.stuck_nodes)

    @property
    def stuck(self) -> int:
        """The number of servers and free nodes that stay."""
        return _count(self.stuck_servers) + _count(self.stuck_nodes)

    @property
    def empty(self) -> bool:
        """Whether the compute service has no servers and free nodes."""
        return not (self.server_count or self.node_count)

    @property
    def moves(self) -> bool:
        """Whether some of the servers and free nodes may still move."""
        return bool(self.servers or self.nodes
                    or Obstacle.MIGRATING in self.stuck_servers)

    @property
    def stuck_names(self) -> tuple[_Names, _Names]:
        """The servers and free nodes that stay."""
        return self.stuck_servers, self.stuck_nodes

    @property
    def free(self) -> str:
        """The number of free nodes, in words."""
        return _nodes(self.node_count)

    @property
    def all(self) -> str:
        """The numbers of servers and free nodes, in words."""
        return f'{_servers(self.server_count)} and {self.free}'

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for each host that takes something."""
        for host in sorted({*self.servers, *self.nodes}):
            taken = [words(counts[host]) for words, counts in (
                (_servers, self.servers), (_nodes, self.nodes))
                if host in counts]
            yield f'{host} takes {" and ".join(taken)}'

    def obstacles(self) -> Iterator[str]:
        """Yield a sentence for each obstacle."""
        for stuck, noun in ((self.stuck_servers, 'server'),
                            (self.stuck_nodes, 'free node'),
                            (self.kept_nodes, 'node')):
            for obstacle, names in stuck.items():
                stay = 'stays' if len(names) == 1 else 'stay'
                yield (f'{arguments.counted(len(names), noun)} '
                       f'({arguments.some(names)}) {stay} {obstacle.value}')


def of_host(seen: cloud_state.CloudState, host: str,
            settings: ownership_report.SharedSettings,
            migrating: Collection[str] = (),
            drained: bool = False) -> HostForecast:
    """Return which hosts take the servers and free nodes of a host.

    :param seen: with its zones
    :param host: counts as fenced or drained, even if it is not
    :param settings: of nova.conf on the other hosts
    :param migrating: uuids of servers with a migration in progress
    :param drained: it keeps its servers
    """
    targets = Successors(seen, host, settings, migrating)
    servers = [(server.name or server.uuid, targets.of_instance(server))
               for server in seen.instances
               if server.key == targets.host and not server.deleted]
    nodes = [(node, targets.of_drained(node) if drained
              else targets.of_owned(node)) for node in seen.owned_by(host)
             if drained or not targets.serves(node)]
    if drained:
        servers = []
    stuck = _stuck(nodes)
    kept = _NOT_FREE if drained else frozenset()
    return HostForecast(
        _taken(seen, servers), _taken(seen, nodes), _stuck(servers),
        {one: stuck[one] for one in stuck if one not in kept},
        {one: stuck[one] for one in stuck if one in kept})


def _taken(seen: cloud_state.CloudState,
           targets: list[tuple[str, _Target]]) -> dict[str, int]:
    counts = collections.Counter(
        seen.service_of[target].host for _, target in targets
        if not isinstance(target, Obstacle))
    return dict(sorted(counts.items()))


def _stuck(targets: list[tuple[str, _Target]]) -> _Names:
    return {obstacle: names for obstacle in Obstacle if (names := tuple(
        sorted(name for name, target in targets if target is obstacle)))}


def _count(stuck: _Names) -> int:
    return sum(map(len, stuck.values()))


def _servers(number: int) -> str:
    return arguments.counted(number, 'server')


def _nodes(number: int) -> str:
    return arguments.counted(number, 'free node')


class Successors:
    """The hosts that share the nodes when one compute service is down.

    :param seen: with its zones
    :param host: counts as down, even if it is up
    :param settings: of nova.conf on the other hosts
    :param migrating: uuids of servers with a migration in progress
    """

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 settings: ownership_report.SharedSettings,
                 migrating: Collection[str] = ()) -> None:
        self.host = host_key(host)
        self._seen = seen
        self._migrating = frozenset(migrating)
        servers = {s.uuid: s for s in seen.instances if not s.deleted}
        self._server_on = {n.uuid: servers[n.instance_uuid]
                           for n in seen.nodes if n.instance_uuid in servers}
        self._node_held_for = {server.uuid: node for node, server
                               in self._server_on.items()}
        report = ownership_report.OwnershipReport(
            dataclasses.replace(seen, services=tuple(
                dataclasses.replace(service, up=False)
                if service.key == self.host else service
                for service in seen.services)), settings)
        self._report = report
        self._zones = report.zones

    def served(self, node: str) -> bool:
        """Return whether others serve the partition of a node."""
        part = self._partition(node)
        return part.whole or bool(self._report.preferences(part).members)

    def of_node(self, node: str) -> HostKey | None:
        """Return the next owner of a free node, None if there is none."""
        return self._report.preferences(self._partition(node)).host_for(
            node, self._zones.get(self.host))

    def of_server(self, node: str) -> HostKey | None:
        """Return the next host of the server on a node, or None."""
        preferences = self._report.preferences(self._partition(node))
        zone = self._zones.get(self.host)
        owner = self._seen.owner_of.get(node)
        if owner is not None and preferences.may_keep(owner, zone):
            return owner
        return preferences.takeover_target(node, zone)

    def serves(self, node: str) -> bool:
        """Return whether Ironic holds a node for a server of this host."""
        server = self._server_on.get(node)
        return server is not None and server.key == self.host

    def of_owned(self, node: str) -> _Target:
        """Return the target of a node without a server of this host."""
        if node not in self._seen.node_of:
            return Obstacle.HIDDEN
        server = self._server_on.get(node)
        if server is not None and server.key in self._seen.up_hosts:
            # The record follows the server.
            return server.key
        return self.of_node(node) or self._obstacle(node)

    def of_instance(self, server: cloud_state.CloudServer) -> _Target:
        """Return the target of a server of this host."""
        if server.uuid in self._migrating:
            return Obstacle.MIGRATING
        node = self._node_held_for.get(server.uuid)
        if node is None:
            if server.node and takeover.needs_no_machine(
                    server.vm_state, server.task_state):
                # The new owner of the node takes over the server.
                return self.of_owned(server.node)
            return Obstacle.NO_MACHINE
        if server.node not in (None, node):
            return Obstacle.OTHER_MACHINE
        return self.of_server(node) or self._obstacle(node)

    def of_drained(self, node: str) -> _Target:
        """Return the target of a node of this host if it is drained."""
        server = self._seen.server_of.get(node)
        if server is None:
            return self.of_owned(node)
        instance = self._seen.instance_of.get(server)
        return (Obstacle.STRAY if instance is None or instance.deleted
                else Obstacle.SERVING)

    def _obstacle(self, node: str) -> Obstacle:
        return (Obstacle.NO_TARGET if self.served(node)
                else Obstacle.NO_PARTITION)

    def _partition(self, node: str) -> ownership_report.NodeShare:
        found = self._report.partitions
        its = self._seen.node_of.get(node)
        part = found.of_node(its) if its else found.of_host(self.host)
        return part or ownership_report.NodeShare(frozenset(), frozenset())
