# SPDX-License-Identifier: Apache-2.0

"""The world that the computes of the simulation share.

A model of nova's database, of placement and of Ironic, as far as ownership
depends on them. It checks the promises at the moment at which they could be
broken: when a record moves, when something is deleted, when a build fails.

Time is a number of ticks. A service is up while the time stamp of its last
heartbeat is less than :data:`DOWN_TIME` ticks away; what a host sees of that
depends on its own clock and on that of the conductor which has written it.
"""

import collections
import dataclasses
import datetime

from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover

#: Ticks between two heartbeats of a host.
INTERVAL = 2

#: Ticks after which a service that sends no heartbeat is down.
DOWN_TIME = 4 * INTERVAL

#: Outages in a row after which a host that could never write looks dead.
UNLUCKY = DOWN_TIME // INTERVAL - 1

#: Ticks after which all that live have noticed a death.
NOTICED = DOWN_TIME + 2 * INTERVAL

START = datetime.datetime(2026, 1, 1)


class Broken(AssertionError):
    """A promise of the design is broken."""


@dataclasses.dataclass
class Service:
    """A row of nova's services and the host's mapping to the cell.

    :ivar beat: when its last heartbeat was written.
    :ivar stamp: the same by the clock of the conductor that wrote it.
    :ivar missed: it has missed one since, and that was its own fault.
    :ivar outages: the outages in which it could not write one since.
    :ivar disabled: an operator has done that.
    :ivar stop marker: what the host has said when it was told to end.
    :ivar closed: nova sends it no builds since it has said so.
    """

    host: str
    beat: int
    stamp: int = 0
    missed: bool = True
    outages: set[int] = dataclasses.field(default_factory=set, repr=False)
    disabled: bool = False
    forced_down: bool = False
    mapped: bool = True
    stop_marker: str = ''
    closed: bool = False

    def say(self, stop_marker):
        """adapters.nova_facts.ServiceRecord."""
        if self.disabled or self.forced_down:
            return False
        self.stop_marker, self.closed = stop_marker, False
        return True

    def take_back(self):
        """The same."""
        said = bool(self.stop_marker)
        self.stop_marker, self.closed = '', False
        return said

    def disable(self, disabled):
        """What nova's API does; it writes the reason, too."""
        self.take_back()
        self.disabled = disabled


@dataclasses.dataclass
class Row:
    """A row of nova's compute_nodes; never removed, as nova undeletes it."""

    node: str
    host: str
    partition: str = ''
    deleted: bool = False


@dataclasses.dataclass
class Provider:
    """A resource provider of placement with one unit of inventory.

    :ivar consumer: uuid of the instance that has its allocation, or None.
    :ivar disabled: it has the trait COMPUTE_STATUS_DISABLED.
    """

    reserved: bool = False
    consumer: str | None = None
    generation: int = 0
    disabled: bool = False


@dataclasses.dataclass
class Instance:
    """A row of nova's instances.

    :ivar cast_to: host to which its build was sent.
    :ivar sent: how often its build waits in the queue of that host.
    :ivar builder: process that carries it out.
    :ivar building: its build has neither ended nor failed.
    :ivar deleted: its row is deleted, or its build is tried elsewhere.
    :ivar task: nova's task_state: what it is in the middle of, or None.
    :ivar error: nova's conductor found no other node to evacuate it to.
    """

    uuid: str
    node: str
    cast_to: str
    host: str | None = None
    building: bool = True
    deleted: bool = False
    task: str | None = None
    error: bool = False
    sent: int = 1
    builder: object = dataclasses.field(default=None, repr=False)

    @property
    def state(self):
        """What an audit reads of it."""
        return InstanceState(
            self.host, self.deleted, self.node if self.host else None,
            'building' if self.building else
            'error' if self.error else 'active', self.task)


@dataclasses.dataclass
class Operation:
    """Something that a host was asked to do to an instance.

    :ivar cast_to: the host that the instance was on then.
    """

    instance: Instance
    cast_to: str


@dataclasses.dataclass(frozen=True)
class State:
    """What members are made from, of one host."""

    up: bool
    disabled: bool
    forced_down: bool
    recorded: bool
    stop_marker: str = ''
    closed: bool = False
    #: Where systemd watches, and it has been up since its process began.
    running: bool = False
    stamp: int = dataclasses.field(default=0, compare=False)

    @property
    def member(self):
        """Whether the host may take nodes."""
        return self.up and not self.disabled


@dataclasses.dataclass(frozen=True)
class Move:
    """A record that changed its owner."""

    when: int
    node: str
    before: str
    after: str
    reason: ownership.Reason


class World:
    """All that is shared.

    :param zones: host -> its explicit availability zone.
    :param watched: systemd kills a host whose lease has run out.
    :ivar aggregates: nova's host aggregates, one for each zone.
    :ivar services: host -> :class:`Service`.
    :ivar rows: node uuid -> :class:`Row`.
    :ivar providers: node uuid -> :class:`Provider`.
    :ivar machines: node uuid -> uuid of the instance that Ironic has, or
        None: the nodes that Ironic has.
    :ivar instances: uuid -> :class:`Instance`; no row for those of others.
    :ivar processes: host -> :class:`.host.Process` of those that run.
    :ivar history: what :meth:`states` was, oldest first.
    :ivar moves: list of :class:`Move`.
    :ivar undeleted: node -> host that has brought its record back, and makes
        it its own next.
    :ivar operations: list of :class:`Operation` that wait in queues.
    :ivar late: functions that do writes which everybody takes for lost.
    :ivar outage: number of the last time when no heartbeat could be written.
    :ivar ahead: ticks by which the clock of nova-conductor is ahead.
    :ivar clocks: host -> ticks by which its own clock is ahead.
    :ivar disturbed: when the views of the members last differed.
    :ivar broken: what promises were broken, in words.
    :ivar narrow: number of moves that were right when they were looked at
        last, and not any more when they were made.
    """

    def __init__(self, zones=None, watched=False):
        self.zones = zones or {}
        self.watched = watched
        self.aggregates = tuple(
            peers.Aggregate(zone, frozenset(
                host for host, its in self.zones.items() if its == zone), zone)
            for zone in sorted(set(self.zones.values())))
        self.clock = 0
        self.moment = 0
        self.services = {}
        self.rows = {}
        self.providers = {}
        self.machines = {}
        self.instances = {}
        self.nova = None
        self.processes = {}
        self.operations = []
        self.late = []
        self.outage, self._writable = 0, True
        self.ahead = 0
        self.clocks = collections.Counter()
        self._arriving = False
        self.history = [{}]
        self.moves = []
        self.undeleted = {}
        self.narrow = 0
        self.broken = []
        self.disturbed = 0
        self._believed = {}
        self.serials = collections.Counter()

    def breach(self, what):
        """Raise Broken, and keep it: the product may catch what it raises."""
        self.broken.append(what)
        raise Broken(what)

    def new(self, kind):
        """Return a name that nothing else has."""
        self.serials[kind] += 1
        return f'{kind}{self.serials[kind]}'

    # nova's services

    def up(self, host):
        """Whether nova takes the host for up, where the clock is right."""
        service = self.services.get(host)
        return (service is not None and not service.forced_down
                and abs(self.clock - service.stamp) < DOWN_TIME)

    def fresh(self, host):
        """Whether it is too early to take the host for dead."""
        service = self.services.get(host)
        return (service is not None and not service.forced_down
                and self.clock - service.beat < DOWN_TIME - INTERVAL)

    def live(self, host):
        """Whether the host lives, and has sent all heartbeats that it could.

        Nobody can write them in an outage. That is not its fault. One that is
        unlucky in :data:`UNLUCKY` outages, one after the other, is taken for
        dead by those that could write between them.
        """
        service, process = self.services.get(host), self.processes.get(host)
        return (service is not None and process is not None
                and process.beating
                and not (service.forced_down or service.missed)
                and len(service.outages) < UNLUCKY)

    @property
    def writable(self):
        """Whether heartbeats can be written."""
        return self._writable

    @writable.setter
    def writable(self, writable):
        self.outage += self._writable and not writable
        self._writable = writable

    def tick(self):
        """Let time go by; hosts send their heartbeats."""
        self.clock += 1
        for index, service in enumerate(self.services.values()):
            if (self.clock + index) % INTERVAL == 0:
                process = self.processes.get(service.host)
                self.beat(service, process is not None and process.beating)

    def beat(self, service, sent=True):
        """Write the heartbeat of a service, if that can be."""
        if not sent:
            service.missed = True
        elif not self.writable:
            service.outages.add(self.outage)
        else:
            service.missed = False
            service.outages.clear()
            service.beat = self.clock
            service.stamp = self.clock + self.ahead
            self.processes[service.host].heard = True

    def states(self):
        """Return {host: :class:`State`} of this moment."""
        recorded = {row.host for row in self.live_rows()}
        return {host: State(self.up(host), service.disabled,
                            service.forced_down, host in recorded,
                            service.stop_marker, service.closed,
                            self.watched and host in self.processes
                            and self.processes[host].heard,
                            service.stamp)
                for host, service in self.services.items()}

    def note(self):
        """Remember the states if they changed; before and after each event.

        While an audit is under way that looked at older states, and when they
        change, nodes may move once more.
        """
        self.moment += 1
        states = self.states()
        if states != self.history[-1]:
            self.history.append(states)
            self.disturbed = self.moment
        # With the heartbeats of now.
        self.history[-1] = states
        if any(process.outdated for process in self.processes.values()):
            self.disturbed = self.moment
        # Each counts for itself how long another has been about to end, and
        # notices for itself who is dead.
        believed = {process.host: process.believed for process
                    in self.processes.values()
                    if process.serving and not process.ending}
        if believed != self._believed or len(set(believed.values())) > 1:
            self._believed = believed
            self.disturbed = self.moment

    def disable(self, host, disabled):
        """An operator disables a compute service, or enables it."""
        self.services[host].disable(disabled)
        if process := self.processes.get(host):
            process.switched()

    def close(self, service, words, asked):
        """A host that ends disables itself, if it has still said these words.

        :param asked: number of the states that it has read before.
        """
        if service.stop_marker != words:
            return False
        zone = self.zones.get(service.host)
        if not (self._arriving or self.clocks[service.host] or any(
                state.member and not state.closed
                for states in self.history[asked:]
                for host, state in states.items()
                if host != service.host and self.zones.get(host) == zone)):
            self.breach(f'{service.host} is closed, and nobody builds in its '
                        'zone')
        service.closed = True
        return True

    @property
    def version(self):
        """Number of the latest states in the history."""
        return len(self.history) - 1

    def listed_services(self, version, now):
        """Return the services that have a record and are enabled.

        :param version: of which moment, see :attr:`version`.
        :param now: what the clock of the host says that asks.
        """
        return [self.compute_service(host, state, now) for host, state
                in self.history[version].items()
                if state.recorded and not (state.disabled or state.closed)]

    def compute_service(self, host, state, now):
        """Return the :class:`.peers.ComputeService` of a state."""
        return peers.ComputeService(
            host, not state.forced_down
            and abs(now - state.stamp) < DOWN_TIME,
            state.disabled, state.forced_down, stop_marker=state.stop_marker,
            beat=START + datetime.timedelta(seconds=state.stamp))

    # records

    def live_rows(self):
        """Return the rows that are not deleted."""
        return [row for row in self.rows.values() if not row.deleted]

    def owner(self, node):
        """Return the host that has the record of the node, or None."""
        row = self.rows.get(node)
        return None if row is None or row.deleted else row.host

    def create(self, node, host):
        """Create a record; if there is one already it is taken.

        That is what nova.db.main.api:compute_node_create does.
        """
        row = self.rows.setdefault(node, Row(node, host))
        if row.host != host or row.deleted:
            row.host, row.deleted = host, False
            self.disturbed = self.moment

    def move(self, node, host, reason, decided_on, sure):
        """Move a record, whoever owns it; False when there is none.

        :param reason: why, a :class:`.ownership.Reason`.
        :param decided_on: the host that it was to be moved from.
        :param sure: nothing that the decision depends on has changed since
            it was looked at last. Nova's database cannot compare and swap,
            so that a host that stands still just then is forgiven a move.
        """
        row = self.rows[node]
        if row.deleted:
            return False
        before, row.host = row.host, host
        creator = self.undeleted.pop(node, None)
        if before == host:
            return True
        self.processes[host].took()
        if creator == host:
            # It creates the record.
            return True
        move = Move(self.moment, node, before, host, reason)
        if sure:
            self._judge(move, decided_on)
        else:
            self.narrow += 1
            self.disturbed = self.moment
        self.moves.append(move)
        if reason is not ownership.Reason.PULLED and before in self.processes:
            self.processes[before].lost_to_peers(node)
        return True

    def _judge(self, move, decided_on):
        """Raise Broken for a move that must not be."""
        self._judge_taker(move)
        provider = self.providers.get(move.node)
        consumer = provider and provider.consumer
        here = self.machines.get(move.node) in [
            instance.uuid for instance in self.instances.values()
            if instance.host == move.after]
        if move.reason in (ownership.Reason.INSTANCE_HERE,
                           ownership.Reason.TAKEN_OVER) and not here:
            self.breach("G3: a host took a node with another's instance: "
                        f'{move}')
        if (self.live(move.before) or self.fresh(move.before)) and not here:
            if consumer:
                self.breach('G3: a node with an allocation moved between '
                            f'live hosts: {move}')
            if move.reason is not ownership.Reason.PULLED:
                self.breach(f'G1: a live host lost a node to a peer: {move}')
            if move.before != decided_on:
                self.breach('G1: a node moved on, and then once more for '
                            f'what had been decided before: {move}')
        if not self.history[-1][move.after].recorded:
            # Others see it from this node on.
            return
        if self._follows_build(move):
            return
        for earlier in reversed(self.moves):
            if earlier.when <= self.disturbed:
                return
            # With its server it went where that could go.
            if (earlier.node == move.node and not self._homeless(earlier)
                    and earlier.reason is not ownership.Reason.TAKEN_OVER):
                self.breach(f'G1: {earlier}, then {move}, and no member '
                            'came or went')

    def _follows_build(self, move):
        """Whether a node goes back to a host that has built on it.

        nova's scheduler chose that host before the node was pulled, and
        allocated the node afterwards.
        """
        instance = self.instances.get(self.machines.get(move.node))
        return instance is not None and (
            instance.host == instance.cast_to == move.after)

    def _homeless(self, move):
        """Whether a node came from a zone without a member.

        It goes to members without a zone, and from there to anybody.
        """
        zone = self.zones.get(move.before)
        return zone and not any(
            self.zones.get(host) == zone and state.member
            for host, state in self.history[-1].items())

    def _judge_taker(self, move):
        taker = self.processes[move.after]
        if (not taker.serving
                and move.reason is not ownership.Reason.INSTANCE_HERE):
            self.breach(f'a host took a node before it had started: {move}')
        if not self.services[move.after].mapped:
            self.breach('a host that the scheduler cannot use took a node: '
                        f'{move}')
        states = [states.get(move.after) for states
                  in self.history[taker.sources.version:]]
        if (move.reason not in (ownership.Reason.INSTANCE_HERE,
                                ownership.Reason.TAKEN_OVER)
                and not (self.clocks[move.after] or taker.sources.seen[1])
                and not any(state and (state.member or self._now_up(state))
                            for state in states)):
            self.breach(f'a host that is no member took a node: {move}')
        zones = {self.zones.get(move.before), self.zones.get(move.after)}
        # With an instance of its own it gets back what another has created
        # anew at the same moment, see create.
        if (None not in zones and len(zones) > 1
                and move.reason is not ownership.Reason.INSTANCE_HERE):
            self.breach(f'a node changed its zone: {move}')
        if (move.reason is ownership.Reason.PULLED
                and taker.sources.listing[move.node] is not None):
            self.breach(f'G3: a host pulled a node that is in use: {move}')
        if (move.reason is ownership.Reason.PULLED
                and not taker.may_pull(move.node)):
            self.breach(f'a host that came back pulled too early: {move}')

    def _now_up(self, state):
        """Whether a state that was read late is that of a member.

        A stamp may be ahead, and the clock catches up.
        """
        return not (state.disabled or state.forced_down) and (
            abs(self.clock - state.stamp) < DOWN_TIME)

    def destroy(self, node, host):
        """Delete a record unless its host has changed; whether it did."""
        row = self.rows[node]
        if row.deleted or row.host != host:
            return False
        self._deleting(node, 'record')
        row.deleted = True
        return True

    def undelete(self, node, host):
        """Bring a deleted record back, with the owner that it had.

        :param host: that creates it, and makes it its own next.
        """
        self.rows[node].deleted = False
        self.undeleted[node] = host

    # placement

    def provide(self, node):
        """Return the provider of a node; make one if there is none."""
        return self.providers.setdefault(node, Provider())

    def set_reserved(self, node, reserved, generation):
        """Change an inventory; False when the generation is another."""
        provider = self.providers.get(node)
        return provider is not None and self.set_provider(
            node, reserved, provider.disabled, generation)

    def set_provider(self, node, reserved, disabled, generation):
        """Change both; the same."""
        provider = self.providers.get(node)
        if provider is None or provider.generation != generation:
            return False
        provider.reserved, provider.disabled = reserved, disabled
        provider.generation += 1
        return True

    def allocate(self, node, consumer):
        """Allocate a node; False when it is not to be had."""
        provider = self.providers.get(node)
        if not self._recheck(provider):
            return False
        provider.consumer = consumer
        provider.generation += 1
        return True

    def deallocate(self, consumer, node=None):
        """Free what an instance has allocated, all or one node."""
        for uuid, provider in self.providers.items():
            if provider.consumer == consumer and node in (None, uuid):
                provider.consumer = None
                provider.generation += 1

    def delete_provider(self, node):
        """Delete a provider with all its allocations."""
        self._deleting(node, 'resource provider')
        self.providers.pop(node, None)

    def _deleting(self, node, what):
        if node in self.machines:
            self.breach(f'G2: the {what} of {node} is deleted, and Ironic '
                        'has the node')

    # builds

    def offered(self):
        """Return the nodes that nova's scheduler may choose."""
        return [row.node for row in self.live_rows()
                if self._recheck(self.providers.get(row.node))
                and self.up(row.host) and self.services[row.host].mapped
                and not self.services[row.host].disabled
                and not self.services[row.host].closed]

    @staticmethod
    def _recheck(provider):
        return provider and not (
            provider.reserved or provider.consumer or provider.disabled)

    def schedule(self, node):
        """Choose a node for a new instance; nothing is allocated yet.

        :param node: one that is :meth:`offered`.
        :returns: the :class:`Instance`.
        """
        instance = Instance(self.new('instance'), node, self.owner(node))
        self.instances[instance.uuid] = instance
        return instance

    def fail(self, instance):
        """Send a build elsewhere: it leaves no trace here."""
        instance.host = None
        instance.building = False
        instance.deleted = True
        self.deallocate(instance.uuid)

    def unclaimed(self):
        """Return the instances whose build has a node and no host yet."""
        return [instance for instance in self.instances.values()
                if instance.building and not instance.deleted
                and instance.host is None
                and self.consumer(instance.node) == instance.uuid]

    def consumer(self, node):
        """Return who has allocated a node, or None."""
        provider = self.providers.get(node)
        return provider and provider.consumer

    def give_up(self, uuid, host):
        """A host sets a build to ERROR that has not come to it."""
        instance = self.instances[uuid]
        if instance not in self.unclaimed():
            return False
        if instance.sent and instance.cast_to == host:
            self.breach(f'G3: {host} gives up {instance}, which waits in '
                        'its queue')
        instance.building = False
        return True

    def destroy_instance(self, instance):
        """Delete an instance for good."""
        instance.deleted = True
        instance.building = False
        self.deallocate(instance.uuid)

    # takeover

    def set_states(self, uuid, seen, vm_state, task):
        """Write both states of an instance, if they are what was seen.

        :param seen: (vm_state, task_state), which nova's database compares,
            and no host; None for a vm_state that is not compared.
        :returns: whether they were.
        """
        instance = self.instances[uuid]
        now = instance.state
        if instance.deleted or seen not in (
                (now.vm_state, now.task_state), (None, now.task_state)):
            return False
        if task is None and takeover.before_mark(now.task_state) not in (
                None, evacuation.TASK):
            self.breach(f'G6: nobody does what {instance} was asked for')
        instance.building = vm_state == 'building'
        instance.error = vm_state == 'error'
        instance.task = task
        return True

    def take_over(self, uuid, taking, taken, before, host, asked):
        """Write the new host of an instance, if its mark is still there.

        :param taking: the mark that it has to have.
        :param taken: the mark that it has then.
        :param before: host that it was on when that was decided.
        :param asked: number of the states that were read right before, see
            :attr:`version`.
        :returns: whether it was.
        """
        instance = self.instances[uuid]
        if instance.deleted or instance.task != taking:
            return False
        # Its own, by a write that is late, changes nothing.
        if instance.host not in (before, host):
            self.breach(f'G6: {host} took {instance}, which another had '
                        'taken before')
        if not self._arriving:
            self._judge_takeover(instance, host, asked)
        instance.host = host
        instance.task = taken
        return True

    def arrive(self):
        """Do the first of the writes that are late.

        When that was decided is long ago.
        """
        self._arriving = True
        self.late.pop(0)()
        self._arriving = False

    def _judge_takeover(self, instance, host, asked):
        taker = self.processes[host]
        seen = [states.get(instance.host) for states in self.history[asked:]]
        if not any(state is None or state.forced_down
                   or self.watched and not state.running for state in seen):
            self.breach(f'G6: {host} took {instance} of a host that nobody '
                        'has declared dead')
        # A build ends in ERROR then, a delete is done, wherever that is.
        needs_none = takeover.needs_no_machine(
            instance.state.vm_state, instance.task)
        machine = self.machines.get(instance.node)
        if (machine == instance.uuid or not needs_none) and (
                self.zones.get(host) != self.zones.get(instance.host)):
            self.breach(f'{host} took {instance} of another zone')
        if machine != instance.uuid and (machine or not needs_none):
            self.breach(f'{host} took {instance}, which has no machine')
        if not taker.serving or not self.services[host].mapped:
            self.breach(f'{host} took {instance} before it could serve it')

    def act(self, instance, host):
        """A host does something to the machine of an instance."""
        if instance.host != host:
            self.breach(f'G6: {host} acts on {instance}, which is on '
                        'another')

    # Ironic

    def attach(self, node, instance):
        """Reserve a node in Ironic; False when it has another instance."""
        if self.machines.get(node, instance) not in (None, instance):
            return False
        if node not in self.machines:
            return False
        self.machines[node] = instance
        return True

    def detach(self, instance):
        """Tear a machine down."""
        for node, its in self.machines.items():
            if its == instance:
                self.machines[node] = None

    # what an operator sees

    def leaked(self):
        """Return the nodes whose instance nova has deleted."""
        return [node for node, instance in self.machines.items()
                if instance in self.instances
                and self.instances[instance].deleted]
