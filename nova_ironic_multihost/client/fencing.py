# SPDX-License-Identifier: Apache-2.0

"""May a compute service be fenced, and what happens to its nodes and servers?

Without I/O. A fenced compute service is forced down and disabled in nova.
Forced down: it is dead for certain, so others take over its servers
(:mod:`.rules.takeover`). Disabled: monitoring tools start one again that is
enabled and forced down.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import enum
import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

#: The beginning of nova's disabled_reason of a fenced compute service.
REASON = 'nova-ironic-multihost: fenced'

# The most characters of nova's disabled_reason.
_REASON_LENGTH = 255


def refusal(services: tuple[cloud_state.Service, ...],
            service: cloud_state.Service) -> str | None:
    """Return why a compute service may not be fenced, None if it may."""
    if service.forced_down:
        return None
    if service.up:
        return (f'{service.host} is up: nova hears from it. Power it off, or '
                'end nova-compute there; nova calls it down after '
                '[DEFAULT]service_down_time, 60 s as a rule')
    return outage(services)


def outage(services: tuple[cloud_state.Service, ...]) -> str | None:
    """Return the sentence for a cloud without a live compute service."""
    if any(s.up for s in services):
        return None
    return ('No compute service is up, so nobody could take anything over. '
            'Look at RabbitMQ, nova-conductor and the database first: when '
            'one of them is down, each compute service looks dead and none is')


def missed(service: cloud_state.Service) -> bool:
    """Return whether nova misses a compute service that should run."""
    return service.reached and not (
        service.up or service.disabled or service.forced_down)


def not_alone(services: tuple[cloud_state.Service, ...],
              service: cloud_state.Service, at: float,
              window: float) -> str | None:
    """Return why a silent host is not the only dead one, None if it is.

    For tools that power a host off for its silence alone: several silent
    hosts mean an outage of nova rather than dead hosts. Beside a single other
    compute service that one has to be up.

    :param at: the time of ``services`` by nova's clock
    :param window: seconds in which one host may be fenced
    """
    unknown = sorted(other.host for other in services if not other.reached)
    if unknown:
        return (f'nova misses {service.host}, and does not reach the database '
                f'of the cell of {", ".join(unknown)}. Mend that first')
    if service.seen is None:
        return (f'nova has never had a heartbeat of {service.host}. Start '
                'nova-compute there, or delete its compute service')
    others = [other for key, other in cloud_state.CloudState(
        services=services).service_of.items() if key != service.key]
    up = sum(other.up for other in others)
    silent = sorted(other.host for other in others if missed(other))
    if silent or 2 * up <= len(others):
        told = f', and it misses {", ".join(silent)}' if silent else ''
        return (f'nova misses {service.host}, and not it alone: {up} of '
                f'{len(others)} others are up{told}. Look at RabbitMQ, '
                'nova-conductor, the network and the clocks, and power off '
                'only hosts that are dead')
    # A fence is the last write to the row of a dead compute service.
    fenced = sorted(other.host for other in others if other.forced_down
                    and (other.seen is None or at - other.seen < window))
    if fenced:
        return (f'nova misses {service.host}, and {", ".join(fenced)} was '
                f'fenced within {window:.0f} s, or is fenced and alive. Look '
                'for the cause that ends them; unfence the hosts that are '
                'back')
    return None


def wanted(service: cloud_state.Service,
           why: str | None = None,
           renew: bool = False) -> dict[str, typing.Any]:
    """Return the request to nova that fences it, {} if it is fenced.

    If an operator has disabled it, the operator's reason stays.

    :param why: added to the reason
    :param renew: replace the reason of an earlier fence
    """
    reason = (f'{REASON}: {why}' if why else REASON)[:_REASON_LENGTH]
    body: dict[str, typing.Any] = {}
    if not service.forced_down:
        body['forced_down'] = True
    # With a stop marker it would enable itself at its next start.
    if not service.disabled or service.stop_marker or (
            renew and service.reason.startswith(REASON)
            and service.reason != reason):
        body['status'] = 'disabled'
        body['disabled_reason'] = reason
    return body


def unwanted(service: cloud_state.Service) -> dict[str, typing.Any]:
    """Return the request to nova that ends a fence, {} without a fence.

    It stays disabled if something other than a fence has disabled it.
    """
    body: dict[str, typing.Any] = {}
    if service.forced_down:
        body['forced_down'] = False
    if service.disabled and service.reason.startswith(REASON):
        body['status'] = 'enabled'
    return body


def alive(looks: Sequence[cloud_state.Service]) -> bool:
    """Return whether a compute service sends heartbeats.

    ``seen`` changes with every write to the row, also those of operators. So
    two changes are needed while the operators' settings stay the same.

    :param looks: the compute service as read several times
    """
    return len({look.seen for look in looks
                if _settings(look) == _settings(looks[-1])}) > 2


def _settings(service: cloud_state.Service) -> tuple[bool, bool, str]:
    """Return the fields that operators set."""
    return service.forced_down, service.disabled, service.reason


class Obstacle(enum.Enum):
    """Why no host takes a server or a node; the value is for people.

    :ivar passes: whether it ends by itself.
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
        """Use the text as the value."""
        obstacle = object.__new__(cls)
        obstacle._value_ = text
        obstacle.passes = passes
        return obstacle


@dataclasses.dataclass(frozen=True)
class FencePlan:
    """Which hosts take the servers and free nodes of a compute service.

    :ivar servers: host, as nova spells it -> number of servers it takes over
    :ivar nodes: host, as nova spells it -> number of free nodes it takes
    :ivar stuck_servers: obstacle -> names of servers that stay
    :ivar stuck_nodes: obstacle -> uuids of free nodes that stay
    """

    servers: Mapping[str, int]
    nodes: Mapping[str, int]
    stuck_servers: Mapping[Obstacle, tuple[str, ...]]
    stuck_nodes: Mapping[Obstacle, tuple[str, ...]]

    @property
    def server_count(self) -> int:
        """The number of servers, moving or not."""
        return sum(self.servers.values()) + sum(
            map(len, self.stuck_servers.values()))

    @property
    def node_count(self) -> int:
        """The number of free nodes, moving or not."""
        return sum(self.nodes.values()) + sum(
            map(len, self.stuck_nodes.values()))

    @property
    def stuck(self) -> int:
        """The number of servers and free nodes that stay."""
        return sum(map(len, (*self.stuck_servers.values(),
                             *self.stuck_nodes.values())))

    @property
    def empty(self) -> bool:
        """Whether the compute service has no servers and free nodes."""
        return not (self.server_count or self.node_count)

    @property
    def moves(self) -> bool:
        """Whether some of the servers and free nodes may still move."""
        return bool(self.servers or self.nodes) or any(
            obstacle.passes for obstacle in self.stuck_servers)


def plan(seen: cloud_state.CloudState, host: str, migrating: Set[str],
         settings: ownership_report.SharedSettings) -> FencePlan:
    """Return which hosts take the servers and free nodes of a host.

    :param seen: with its zones
    :param host: counts as fenced, even if it is not
    :param migrating: uuids of servers with a migration in progress
    :param settings: of nova.conf on the other hosts
    """
    targets = _Targets(seen, host, migrating, settings)
    servers = [(server.name or server.uuid, targets.of_server(server))
               for server in seen.instances
               if server.key == targets.host and not server.deleted]
    nodes = [(node, targets.of_node(node)) for node in seen.owned_by(host)
             if not targets.serves(node)]
    return FencePlan(_taken(seen, servers), _taken(seen, nodes),
                     _stuck(servers), _stuck(nodes))


# The host that takes a server or a node, or why no host does.
_Target: typing.TypeAlias = HostKey | Obstacle


def _taken(seen: cloud_state.CloudState,
           targets: list[tuple[str, _Target]]) -> dict[str, int]:
    counts = collections.Counter(
        seen.service_of[target].host for _, target in targets
        if not isinstance(target, Obstacle))
    return dict(sorted(counts.items()))


def _stuck(targets: list[tuple[str, _Target]]
           ) -> dict[Obstacle, tuple[str, ...]]:
    found: dict[Obstacle, list[str]] = {}
    for name, target in sorted(targets, key=lambda one: one[0]):
        if isinstance(target, Obstacle):
            found.setdefault(target, []).append(name)
    return {obstacle: tuple(found[obstacle]) for obstacle in Obstacle
            if obstacle in found}


class _Targets:
    """Finds the host that takes a server or a node of a fenced host."""

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 migrating: Set[str],
                 settings: ownership_report.SharedSettings) -> None:
        self._seen = seen
        self._migrating = migrating
        self._successors = forecast.Successors(seen, host, settings)
        self.host = self._successors.host
        servers = {s.uuid: s for s in seen.instances if not s.deleted}
        self._server_on = {n.uuid: servers[n.instance_uuid]
                           for n in seen.nodes if n.instance_uuid in servers}
        self._node_held_for = {server.uuid: node for node, server
                               in self._server_on.items()}

    def serves(self, node: str) -> bool:
        """Return whether Ironic holds a node for a server of this host."""
        server = self._server_on.get(node)
        return server is not None and server.key == self.host

    def of_node(self, node: str) -> _Target:
        """Return the target of a node without a server of this host."""
        if node not in self._seen.node_of:
            return Obstacle.HIDDEN
        server = self._server_on.get(node)
        if server is not None and server.key in self._seen.up_hosts:
            # The record follows the server.
            return server.key
        return self._successors.of_node(node) or self._obstacle(node)

    def of_server(self, server: cloud_state.CloudServer) -> _Target:
        """Return the target of a server of this host."""
        if server.uuid in self._migrating:
            return Obstacle.MIGRATING
        node = self._node_held_for.get(server.uuid)
        if node is None:
            if server.node and takeover.needs_no_machine(
                    server.vm_state, server.task_state):
                # The new owner of the node takes over the server.
                return self.of_node(server.node)
            return Obstacle.NO_MACHINE
        if server.node not in (None, node):
            return Obstacle.OTHER_MACHINE
        return self._successors.of_server(node) or self._obstacle(node)

    def _obstacle(self, node: str) -> Obstacle:
        return (Obstacle.NO_TARGET if self._successors.served(node)
                else Obstacle.NO_PARTITION)


def sentences(found: FencePlan) -> Iterator[str]:
    """Yield a sentence for each host that takes something, and obstacle."""
    for host in sorted({*found.servers, *found.nodes}):
        yield (f'{host} takes {_servers(found.servers.get(host, 0))} and '
               f'{_nodes(found.nodes.get(host, 0))}')
    yield from obstacles(found)


def obstacles(found: FencePlan) -> Iterator[str]:
    """Yield a sentence for each obstacle."""
    for stuck, counted in ((found.stuck_servers, _servers),
                           (found.stuck_nodes, _nodes)):
        for obstacle, names in stuck.items():
            stay = 'stays' if len(names) == 1 else 'stay'
            yield (f'{counted(len(names))} ({_some(names)}) {stay} '
                   f'{obstacle.value}')


def counts(found: FencePlan) -> str:
    """Return the numbers of servers and free nodes, in words."""
    return (f'{_servers(found.server_count)} and '
            f'{_nodes(found.node_count)}')


#: Why a server or a node may still wait; no API shows these causes.
HIDDEN_CAUSES = (
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

#: The least number of reads that can show heartbeats.
LOOKS = 3


class TooEarly(Exception):
    """nova does not report it as dead; the message names the remedy."""


class NotYet(TooEarly):
    """nova does not report it as dead yet, but has had no heartbeat since."""


def declare(cloud: cloud_client.CloudClient, host: str, sure: bool = False,
            why: str | None = None, patience: float = 0,
            tell: Callable[[Exception], object] = lambda error: None,
            renew: bool = False) -> tuple[cloud_state.Service, bool]:
    """Force a compute service down and disable it, in one request.

    :param host: in any spelling
    :param sure: it is off for certain, even if nova reports it as up
    :param why: added to the disabled_reason
    :param patience: seconds to retry while nova does not answer or does not
        report it as dead. New heartbeats end the retries: it is alive
    :param tell: called with the error before a retry
    :param renew: ``why`` replaces the reason of an earlier fence
    :returns: (the service before the change, whether it was changed)
    :raises TooEarly: nova reports it as up, or no other one as up
    :raises CloudError: nova has not done it, or that is not known
    """
    reads: list[cloud_state.Service] = []

    def attempt() -> tuple[cloud_state.Service, bool]:
        known = cloud.computes(host)
        service = services.named(known, host)
        reads.append(service)
        refused = refusal(known, service)
        if refused and not sure:
            if alive(reads):
                raise TooEarly(f'{refused}. Its heartbeats go on coming: it '
                               'is ALIVE, and nobody waits for it to die.')
            raise NotYet(f'{refused}.')
        body = wanted(service, why, renew)
        if body:
            services.expect_bare_metal(cloud, known, service)
        services.change(cloud, service, body)
        return service, bool(body)

    return services.patiently(
        attempt, patience, (cloud_state.Unanswered, NotYet), tell)


def returned(looks: Iterable[tuple[cloud_state.Service, ...]],
             hosts: Iterable[str]) -> Iterator[cloud_state.Service]:
    """Yield each compute service as soon as it may be unfenced.

    That is when it sends heartbeats, or is not forced down any more. The
    others are not yielded.

    :param looks: all compute services, as read several times
    :param hosts: in any spelling
    """
    reads: dict[HostKey, list[cloud_state.Service]] = {
        host_key(host): [] for host in hosts}
    for known in looks:
        for host in list(reads):
            service = services.named(known, host)
            reads[host].append(service)
            if alive(reads[host]) or not service.forced_down:
                del reads[host]
                yield service
        if not reads:
            return
