# SPDX-License-Identifier: Apache-2.0

"""Forecast who takes what a compute service has, when it is fenced or drained.

Without I/O. A fenced compute service is forced down and disabled in nova:
others take over its servers (:mod:`.rules.takeover`) and take its free nodes.
A drained one is disabled: it keeps its nodes with servers, and the audits of
the others take its free nodes (:mod:`.rules.ownership`, rule 9).

A forecast shows the end. The others count a host that was just started or
enabled from their next audit on, and no API shows when that was: until then
they take its part, too, and give it back later.
"""

import collections
from collections import abc
import dataclasses
import enum
import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


class Obstacle(enum.Enum):
    """Why no host takes a server or a node; the value is for people."""

    MIGRATING = (
        'until their migration is over: that of an evacuation ends within two '
        'minutes, any other one has to be ended')
    NO_TARGET = (
        'because no other compute service of their availability zone, '
        'conductor group and shard is enabled and up: enable or start one, '
        'or give their nodes in Ironic a group and shard that one serves')
    NO_MACHINE = (
        'because Ironic holds no node, or another one, for them: compare '
        '"openstack baremetal node list --long" with "openstack server show"; '
        'without a node they can only be deleted, or wait until this compute '
        'service is back')
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
# Host, as nova spells it, or obstacle -> names of servers, uuids of nodes.
_Names: typing.TypeAlias = abc.Mapping[str | Obstacle, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class HostForecast:
    """Which hosts take the servers and free nodes of a compute service.

    :ivar kept: nodes that are not free, of a drained compute service
    """

    servers: _Names
    nodes: _Names
    kept: _Names

    @property
    def _targets(self) -> abc.Set[str | Obstacle]:
        return {*self.servers, *self.nodes}

    @property
    def stuck(self) -> bool:
        """Whether some of the servers and free nodes stay."""
        return any(isinstance(target, Obstacle) for target in self._targets)

    @property
    def empty(self) -> bool:
        """Whether the compute service has no servers and free nodes."""
        return not self._targets

    @property
    def moves(self) -> bool:
        """Whether some of the servers and free nodes may still move."""
        return any(target is Obstacle.MIGRATING or isinstance(target, str)
                   for target in self._targets)

    @property
    def free(self) -> str:
        """The number of free nodes, in words."""
        return _count(self.nodes, 'free node')

    @property
    def all(self) -> str:
        """The numbers of servers and free nodes, in words."""
        return f'{_count(self.servers, "server")} and {self.free}'

    def sentences(self) -> abc.Iterator[str]:
        """Yield a sentence for each host that takes something."""
        for host in sorted(target for target in self._targets
                           if isinstance(target, str)):
            taken = [arguments.counted(len(names[host]), noun)
                     for names, noun in ((self.servers, 'server'),
                                         (self.nodes, 'free node'))
                     if host in names]
            yield f'{host} takes {" and ".join(taken)}'

    def obstacles(self) -> abc.Iterator[str]:
        """Yield a sentence for each obstacle."""
        for targets, noun in ((self.servers, 'server'),
                              (self.nodes, 'free node'), (self.kept, 'node')):
            for obstacle in filter(targets.get, Obstacle):
                names = targets[obstacle]
                stay = 'stays' if len(names) == 1 else 'stay'
                yield (f'{arguments.counted(len(names), noun)} '
                       f'({arguments.some(names)}) {stay} {obstacle.value}')


def _count(targets: _Names, noun: str) -> str:
    return arguments.counted(sum(map(len, targets.values())), noun)


def of_host(seen: cloud_state.CloudState, host: str,
            settings: ownership_report.SharedSettings,
            migrating: abc.Collection[str] = (),
            drained: bool = False) -> HostForecast:
    """Return which hosts take the servers and free nodes of a host.

    :param host: counts as fenced or drained, even if it is not
    :param settings: of nova.conf on the other hosts
    :param migrating: uuids of servers with a migration in progress
    :param drained: it keeps its servers
    """
    key = host_key(host)
    report = ownership_report.OwnershipReport(
        seen.with_fenced({key}), settings)
    node_of = {server.uuid: node for node, server in seen.server_on.items()}

    def taker(node: str, used: bool = False) -> _Target:
        return report.taker(node, key, used) or Obstacle.NO_TARGET

    def of_node(node: str) -> _Target:
        server = seen.server_on.get(node)
        if node not in seen.node_of:
            return Obstacle.HIDDEN
        if server is not None and server.host_key in seen.up_hosts:
            # The record follows the server.
            return server.host_key
        return taker(node)

    def of_server(server: cloud_state.CloudServer) -> _Target:
        if server.uuid in migrating:
            return Obstacle.MIGRATING
        node = node_of.get(server.uuid)
        if node is None:
            # The new owner of the node takes over a build or a delete.
            return of_node(server.node) if (
                server.node and takeover.needs_no_machine(
                    server.vm_state, server.task_state)
                ) else Obstacle.NO_MACHINE
        if server.node not in (None, node):
            return Obstacle.NO_MACHINE
        return taker(node, used=True)

    def of_drained(node: str) -> _Target:
        server = seen.server_of.get(node)
        if server is None:
            return of_node(node)
        instance = seen.instance_of.get(server)
        return (Obstacle.STRAY if instance is None or instance.deleted
                else Obstacle.SERVING)

    owned = seen.owned_by(host)
    if drained:
        nodes = [(node, of_drained(node)) for node in owned]
        return HostForecast({}, *(
            _names(seen, (one for one in nodes
                          if (one[1] in _NOT_FREE) is kept))
            for kept in (False, True)))
    return HostForecast(
        _names(seen, ((server.name or server.uuid, of_server(server))
                      for server in seen.servers_of(host))),
        _names(seen, ((node, of_node(node)) for node in owned
                      if node not in seen.server_on
                      or seen.server_on[node].host_key != key)), {})


def _names(seen: cloud_state.CloudState,
           targets: abc.Iterable[tuple[str, _Target]]) -> _Names:
    found = collections.defaultdict[str | Obstacle, list[str]](list)
    for name, target in targets:
        found[target if isinstance(target, Obstacle)
              else seen.names[target]].append(name)
    return {target: tuple(sorted(names)) for target, names in found.items()}
