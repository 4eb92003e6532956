# SPDX-License-Identifier: Apache-2.0

"""What becomes of the servers and nodes of a compute service that is fenced.

Pure. *Fenced* is one that is forced down in nova, and disabled. Forced down:
somebody has made sure that it does nothing any more, so that others take over
its servers too (:mod:`.rules.takeover`). Disabled: tools that watch nova take
one that is enabled and forced down for one that is to be used again.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import enum
import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import successors
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

#: How the reason of a compute service begins that was disabled with a fence.
REASON = 'nova-ironic-multihost: fenced'

# Letters that nova takes for a reason.
_REQUESTS = 255


def refusal(services: tuple[cloud_state.Service, ...],
            service: cloud_state.Service) -> str | None:
    """Say why a compute service is not to be fenced, None if it may be."""
    if service.forced_down:
        return None
    if service.up:
        return (f'{service.host} is up: nova hears from it. Power it off, or '
                'end nova-compute there; nova calls it down after '
                '[DEFAULT]service_down_time, 60 s as a rule')
    if not any(s.up for s in services):
        return ('No compute service is up, so nobody could take anything '
                'over. Look at RabbitMQ, nova-conductor and the database '
                'first: when one of them is down, each compute service looks '
                'dead and none is')
    return None


def wanted(service: cloud_state.Service,
           why: str | None = None,
           renew: bool = False) -> dict[str, typing.Any]:
    """Return what nova is to be asked for, {} if it is fenced already.

    One that an operator has disabled keeps its reason.

    :param why: added to the reason
    :param renew: whether it takes the place of the reason of another fence
    """
    reason = (f'{REASON}: {why}' if why else REASON)[:_REQUESTS]
    body: dict[str, typing.Any] = {}
    if not service.forced_down:
        body['forced_down'] = True
    # One that has written its stop marker is enabled again by its next start.
    if not service.disabled or service.stop_marker or (
            renew and service.reason.startswith(REASON)
            and service.reason != reason):
        body['status'] = 'disabled'
        body['disabled_reason'] = reason
    return body


def unwanted(service: cloud_state.Service) -> dict[str, typing.Any]:
    """Return what nova is to be asked for so that it is fenced no more.

    One that was disabled otherwise than with a fence stays disabled.
    """
    body: dict[str, typing.Any] = {}
    if service.forced_down:
        body['forced_down'] = False
    if service.disabled and service.reason.startswith(REASON):
        body['status'] = 'enabled'
    return body


def alive(looks: Sequence[cloud_state.Service]) -> bool:
    """Whether a compute service sends heartbeats.

    :param looks: it, at some looks. nova shows when it was written to last,
        by whomever; so one change says nothing, nor does one that comes with
        what an operator has said.
    """
    return len({look.seen for look in looks
                if _said(look) == _said(looks[-1])}) > 2


def _said(service: cloud_state.Service) -> tuple[bool, bool, str]:
    """Return what operators say of a compute service."""
    return service.forced_down, service.disabled, service.reason


class Obstacle(enum.Enum):
    """Why nobody takes a server or a node; the value is for people to read.

    :ivar passes: whether that ends by itself.
    """

    MIGRATING = (
        True, 'until their migration is over: that of an evacuation ends '
        'within two minutes, any other one has to be ended')
    NO_PARTITION = (
        False, 'because no other compute service that is enabled and up has '
        'nodes of their conductor group and shard: enable or start one there, '
        'or give their nodes in Ironic a group and shard that one serves')
    NO_TARGET = (
        False, 'because no other compute service of this availability zone '
        'and partition is enabled and up: enable or start one')
    NO_MACHINE = (
        False, 'because Ironic holds no node for them: they can only be '
        'deleted, or wait until this compute service is back')
    OTHER_MACHINE = (
        False, 'because Ironic holds another node for them than nova has: '
        'compare "openstack baremetal node list --long" with "openstack '
        'server show"')
    HIDDEN = (
        False, 'because Ironic does not show them: they are gone, or hidden '
        'from this account; only their compute service lets them go')

    passes: bool

    def __new__(cls, passes: bool, text: str) -> 'Obstacle':
        """Take the text for the value."""
        obstacle = object.__new__(cls)
        obstacle._value_ = text
        obstacle.passes = passes
        return obstacle


@dataclasses.dataclass(frozen=True)
class FencePlan:
    """What becomes of what a compute service has.

    :ivar servers: host, as nova spells it -> servers that it takes over
    :ivar nodes: the same for free nodes
    :ivar stuck_servers: obstacle -> names of servers that stay
    :ivar stuck_nodes: obstacle -> uuids of free nodes that stay
    """

    servers: Mapping[str, int]
    nodes: Mapping[str, int]
    stuck_servers: Mapping[Obstacle, tuple[str, ...]]
    stuck_nodes: Mapping[Obstacle, tuple[str, ...]]

    @property
    def server_count(self) -> int:
        """How many servers there are."""
        return sum(self.servers.values()) + sum(
            map(len, self.stuck_servers.values()))

    @property
    def node_count(self) -> int:
        """How many free nodes there are."""
        return sum(self.nodes.values()) + sum(
            map(len, self.stuck_nodes.values()))

    @property
    def stuck(self) -> int:
        """How many servers and free nodes stay."""
        return sum(map(len, (*self.stuck_servers.values(),
                             *self.stuck_nodes.values())))

    @property
    def empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.server_count or self.node_count)

    @property
    def moves(self) -> bool:
        """Whether something is left that may move by itself."""
        return bool(self.servers or self.nodes) or any(
            obstacle.passes for obstacle in self.stuck_servers)


def plan(seen: cloud_state.CloudState, host: str, migrating: Set[str],
         settings: ownership_report.SharedSettings) -> FencePlan:
    """Say who takes what a compute service has.

    :param seen: with its zones
    :param host: counts as fenced, whether it is or not
    :param migrating: uuids of servers with a migration in progress
    :param settings: what the others have in nova.conf
    """
    fates = _Fates(seen, host, migrating, settings)
    servers = [(server.name or server.uuid, fates.of_server(server))
               for server in seen.instances
               if server.key == fates.host and not server.deleted]
    nodes = [(node, fates.of_node(node)) for node in seen.owned_by(host)
             if not fates.serves(node)]
    return FencePlan(_taken(seen, servers), _taken(seen, nodes),
                _stuck(servers), _stuck(nodes))


_Fate: typing.TypeAlias = HostKey | Obstacle


def _taken(seen: cloud_state.CloudState,
           fates: list[tuple[str, _Fate]]) -> dict[str, int]:
    counts = collections.Counter(
        seen.service_of[action].host for _, action in fates
        if not isinstance(action, Obstacle))
    return dict(sorted(counts.items()))


def _stuck(fates: list[tuple[str, _Fate]]
           ) -> dict[Obstacle, tuple[str, ...]]:
    found: dict[Obstacle, list[str]] = {}
    for name, action in sorted(fates, key=lambda one: one[0]):
        if isinstance(action, Obstacle):
            found.setdefault(action, []).append(name)
    return {obstacle: tuple(found[obstacle]) for obstacle in Obstacle
            if obstacle in found}


class _Fates:
    """Who takes a server or a node of one compute service, or why nobody."""

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 migrating: Set[str],
                 settings: ownership_report.SharedSettings) -> None:
        self._seen = seen
        self._migrating = migrating
        self._heirs = successors.Successors(seen, host, settings)
        self.host = self._heirs.host
        living = {s.uuid: s for s in seen.instances if not s.deleted}
        self._servers = {n.uuid: living[n.instance_uuid] for n in seen.nodes
                         if n.instance_uuid in living}
        self._machines = {server.uuid: node
                          for node, server in self._servers.items()}

    def serves(self, node: str) -> bool:
        """Whether a node is held for a server of this compute service."""
        server = self._servers.get(node)
        return server is not None and server.key == self.host

    def of_node(self, node: str) -> _Fate:
        """Of any other node that is recorded here."""
        if node not in self._seen.node_of:
            return Obstacle.HIDDEN
        server = self._servers.get(node)
        if server is not None and server.key in self._seen.up_hosts:
            # The record follows the server.
            return server.key
        return self._heirs.of_node(node) or self._nobody(node)

    def of_server(self, server: cloud_state.CloudServer) -> _Fate:
        """Of a server."""
        if server.uuid in self._migrating:
            return Obstacle.MIGRATING
        node = self._machines.get(server.uuid)
        if node is None:
            if server.node and takeover.needs_no_machine(
                    server.vm_state, server.task_state):
                # It goes to whoever takes its node.
                return self.of_node(server.node)
            return Obstacle.NO_MACHINE
        if server.node not in (None, node):
            return Obstacle.OTHER_MACHINE
        return self._heirs.of_server(node) or self._nobody(node)

    def _nobody(self, node: str) -> Obstacle:
        return (Obstacle.NO_TARGET if self._heirs.served(node)
                else Obstacle.NO_PARTITION)


def sentences(found: FencePlan) -> Iterator[str]:
    """Say who takes what, and what stays and why."""
    for host in sorted({*found.servers, *found.nodes}):
        yield (f'{host} takes {_servers(found.servers.get(host, 0))} and '
               f'{_nodes(found.nodes.get(host, 0))}')
    yield from obstacles(found)


def obstacles(found: FencePlan) -> Iterator[str]:
    """Say what stays and why."""
    for stuck, counted in ((found.stuck_servers, _servers),
                           (found.stuck_nodes, _nodes)):
        for obstacle, names in stuck.items():
            stay = 'stays' if len(names) == 1 else 'stay'
            yield (f'{counted(len(names))} ({_some(names)}) {stay} '
                   f'{obstacle.value}')


def counts(found: FencePlan) -> str:
    """Say how much there is."""
    return (f'{_servers(found.server_count)} and '
            f'{_nodes(found.node_count)}')


#: What may keep a server that somebody is to take over, and is not to be seen.
HINT = (
    'Servers stay with [ironic_multihost]instance_takeover = never. A node '
    'that a build was sent to waits until the build is found, for ten minutes '
    'at most. The logs of the others say what they take')


def _servers(number: int) -> str:
    return arguments.counted(number, 'server')


def _nodes(number: int) -> str:
    return arguments.counted(number, 'free node')


def _some(names: tuple[str, ...], shown: int = 3) -> str:
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')
