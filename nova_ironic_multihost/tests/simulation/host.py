# SPDX-License-Identifier: Apache-2.0

"""One nova-compute of the simulation.

Audits, looks between them and what placement is offered are the product's
(:mod:`nova_ironic_multihost.engine`); nova's manager and resource tracker are
modelled. Each question that the product asks and each step by which nova
carries out the answer is a moment at which it stands still and everything
else may go on, for any time.
"""

import contextlib
import functools
import itertools
import types
from unittest import mock
import weakref

import greenlet
# It imports eventlet, which cannot be imported in a greenlet.
import tooz.hashring  # noqa: F401

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import lister
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.engine.base import ports
from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.engine.nodes import node_moves
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.simulation import evacuations
from nova_ironic_multihost.tests.simulation import lifecycle
from nova_ironic_multihost.tests.simulation.threads import Local
from nova_ironic_multihost.tests.simulation.threads import Lock
from nova_ironic_multihost.tests.simulation.threads import pause
from nova_ironic_multihost.tests.simulation import world as worlds
from nova_ironic_multihost.tests.unit.engine import listings

#: Times that nova's tracker tries to write to a provider that changes.
ATTEMPTS = 4

#: Why a host leaves a node alone that is recorded on it and has an instance.
LEFT = frozenset({
    ownership.Reason.INSTANCE_ELSEWHERE, ownership.Reason.INSTANCE_OF_DEAD,
    ownership.Reason.INSTANCE_WAITS, ownership.Reason.TAKEOVER_FAILED,
    ownership.Reason.STARTING,
    ownership.Reason.UNMAPPED})


class NotReadyError(ports.ListingError):
    """Ironic does not answer."""


class LostError(Exception):
    """The conductor does not answer in time, as MessagingTimeout."""


class Writes:
    """How a host's writes arrive, and their answers.

    :ivar faults: what becomes of the next writes: ``lost`` and never done,
        ``unanswered`` but done, or done ``later``, after everybody thinks
        that it is lost. What nova does in several writes may also be
        ``dropped``: it logs an error, or the guard cannot read, and goes on.
    """

    def __init__(self, world):
        self._world = world
        self.faults = []

    def operate(self, act):
        """Let nova do something, as :meth:`write`."""
        if self.faults[:1] == ['dropped']:
            pause()
            self.faults.pop(0)
        else:
            self.write(act)

    def write(self, act):
        """Do something after a pause, or not.

        :raises LostError: nobody knows.
        """
        pause()
        fault = self.faults.pop(0) if self.faults else None
        if fault == 'later':
            self._world.late.append(act)
        if fault in ('lost', 'later'):
            raise LostError
        done = act()
        if fault == 'unanswered':
            raise LostError
        return done


class Instances:
    """The port of that name: what nova's manager does for instances.

    Implements :class:`nova_ironic_multihost.engine.base.ports.Machines`, too.
    """

    def __init__(self, world, host, writes):
        self._world = world
        self._host = host
        self._writes = writes

    def busy(self, host):
        pause()
        return {instance.uuid: instance.state
                for instance in self._world.instances.values()
                if not instance.deleted and instance.host == host
                and (instance.building or instance.task in takeover.TASKS
                     or takeover.is_mark(instance.task))}

    def of_host(self, host, after):
        pause()
        return {} if after else {
            instance.uuid: instance.state
            for instance in self._world.instances.values()
            if not instance.deleted and instance.host == host}

    def read(self, uuid):
        pause()
        instance = self._world.instances[uuid]
        state = instance.state
        return None if instance.deleted else types.SimpleNamespace(
            uuid=uuid, host=instance.host, node=instance.node,
            vm_state=state.vm_state, task_state=state.task_state)

    def set_states(self, row, vm_state, task_state):
        seen, row.task_state = row.task_state, task_state
        return self._writes.write(lambda: self._world.set_states(
            row.uuid, (None, seen), vm_state, task_state))

    def init(self, row):
        self._writes.operate(lambda: self._init(row.uuid))

    delete = init

    def fail(self, row, reason):
        """It is in ERROR then, and its user deletes it."""
        self._writes.operate(lambda: self._end(row.uuid))

    def deployed(self, row):
        self._writes.write(lambda: self._world.set_states(
            row.uuid, (None, row.task_state), 'active', None))

    def began(self, uuid, action):
        return None

    def asked_last(self, uuid):
        pause()
        return evacuation.asked_last(self._world.nova.actions(uuid))

    def notify(self, event, payload):
        pass

    def provision_state(self, row):
        pause()
        machine = self._world.machines.get(row.node)
        return 'active' if machine == row.uuid else None

    def deployed_since(self, row, moment):
        return False

    def _init(self, uuid):
        """ComputeManager._init_instance, and its terminate_instance."""
        instance = self._world.instances[uuid]
        if (instance.deleted or instance.host != self._host
                or takeover.is_anothers(instance.task, self._host)):
            # The guard.
            return
        if instance.task == evacuation.TASK:
            self._world.breach(f'nova sets {instance} to ERROR at its start')
        self._world.act(instance, self._host)
        if (instance.task == 'deleting' or self._world.machines.get(
                instance.node) != uuid):
            # In nova the latter is in ERROR, and its user deletes it.
            self._end(uuid)
        else:
            instance.task = None
            instance.building = False

    def _end(self, uuid):
        instance = self._world.instances[uuid]
        if not instance.deleted and instance.host == self._host:
            self._world.detach(uuid)
            self._world.destroy_instance(instance)


class Builds:
    """The port of that name. All is done at a stroke."""

    def __init__(self, world, process):
        self._world = world
        self._process = process

    def unclaimed(self):
        return frozenset(SentBuild(instance.uuid, instance.node)
                         for instance in self._world.unclaimed())

    def receive(self):
        """What has come waits for its turn in the process."""
        for instance in self._world.instances.values():
            if (instance.sent and instance.cast_to == self._process.host
                    and not self._process.arrivals.here(instance.uuid)):
                self._process.arrivals.begin(instance.uuid)

    def give_up(self, build, reason, absent):
        return absent() and self._world.give_up(
            build.instance, self._process.host)


class Audits:
    """What a process has audited. It is asked for records at a stroke."""

    def __init__(self, process, world):
        self._process = process
        self._world = world
        self.cloud = self

    @property
    def last(self):
        return self._process.auditor.last

    @property
    def recorded(self):
        return self._process.auditor.recorded

    def records(self, nodes):
        return [Record(row.node, row.host, row.partition)
                for row in self._world.live_rows() if row.node in nodes]


class Sources:
    """The ports of :mod:`.engine.base.ports` to the world.

    :ivar lag: by how many changes the next reading of the services is old.
    :ivar seen: what was read last: the number of the states, see
        :attr:`.world.World.version`, and how wrong the host's clock was.
    :ivar hidden: nodes that a listing leaves out.
    :ivar blind: Ironic shows no node, listed or asked for, from the next
        listing on.
    :ivar unseen: nodes that Ironic does not show, listed or asked for, for a
        while.
    :ivar glitch: number of the next audits during which it lasts; that of
        a single node is over after one.
    :ivar failing: Ironic does not answer.
    :ivar refused: the questions of :class:`.listings.Ironic` that Ironic does
        not answer, while it answers others.
    :ivar looked: this audit knows which nodes are recorded on the host.
    :ivar mine: nodes that were recorded on the host all the while in which
        this audit read that.
    :ivar stop markers: (host, stop marker) -> when a look saw it first.
    :ivar listed: node -> its instance or None, when it listed them last: in
        an audit or in a look.
    :ivar read: audit or look -> {node: its :meth:`situation` when its record
        was read}.
    :ivar writes: how what it writes to instances arrives.
    """

    def __init__(self, world, host):
        self._world = world
        self._host = host
        self.lag = 0
        self.seen = 0, 0
        self.hidden = frozenset()
        self.blind = False
        self.failing = False
        self.refused = frozenset()
        self.unseen = frozenset()
        self.glitch = 0
        self._gone = frozenset()
        self.looked = False
        self.mine = frozenset()
        self.stop_markers = {}
        self.listed = {}
        self.read = weakref.WeakKeyDictionary()
        self._listings = weakref.WeakKeyDictionary()
        #: Audit or look -> number of the states that it has read last.
        self._asked = weakref.WeakKeyDictionary()
        self.writes = Writes(world)
        #: Lists that Ironic was asked for, and has not answered.
        self.asking = 0
        self.recorder = None
        #: When nova said which services there are.
        self.answered = 0

    @property
    def asked(self):
        """The number of the states that this thread has read last."""
        return self._asked.get(greenlet.getcurrent(), self.version)

    @property
    def version(self):
        """The number of the states that were read last."""
        return self.seen[0]

    def situation(self, node):
        """Return (owner, whether it is up, instance, consumer) as of now."""
        world = self._world
        owner = world.owner(node)
        provider = world.providers.get(node)
        return (owner, world.up(owner), world.live(owner),
                world.machines.get(node), provider and provider.consumer)

    def services(self):
        pause()
        self._world.note()
        version = max(self.version, self._world.version - self.lag)
        if not self.overlap():
            self.seen = version, self._world.clocks[self._host]
        self.lag = 0
        self._asked[greenlet.getcurrent()] = version
        self._hear(self._world.history[version])
        self.answered = self.clock()
        return self._world.listed_services(version, self.now())

    def service(self, host):
        pause()
        state = self._world.states().get(host)
        if state:
            self._hear({host: state})
        return state and self._world.compute_service(host, state, self.now())

    def _hear(self, states):
        """Note the stop markers, for looks count from then on."""
        if self.is_look():
            for host, state in states.items():
                if state.stop_marker:
                    self.stop_markers.setdefault(
                        (host, state.stop_marker), self._world.clock)

    def now(self):
        """What the clock of the host says."""
        return self._world.clock + self._world.clocks[self._host]

    def recorded(self):
        """Return the nodes that are recorded on the host at this moment."""
        return frozenset(row.node for row in self._world.live_rows()
                         if row.host == self._host)

    def list(self):
        """Ironic lists its nodes, at a stroke."""
        with self.recorder.asking():
            self.asking += 1
            try:
                pause()
            finally:
                self.asking -= 1
            if self.failing:
                raise NotReadyError
        # Whatever it is, it lasts for a whole audit.
        self._gone = self._missing()
        self.listed = dict(self._world.machines)

    def use(self):
        """An audit or a look goes by what was listed last."""
        self._listings[greenlet.getcurrent()] = dict(self.listed)

    @property
    def visible(self):
        """What the listing shows."""
        return {node: instance for node, instance in self.listed.items()
                if node not in self._gone | self.hidden}

    @property
    def listing(self):
        """What the audit or the look that goes on has listed."""
        return self._listings.get(greenlet.getcurrent(), self.listed)

    def decided(self, audit, nodes):
        """A look has decided on nodes that an audit is at."""
        self._listings[audit].update(
            (node, self.listing.get(node)) for node in nodes)

    def _missing(self):
        if self.blind:
            return frozenset(self._world.machines)
        mine = {row.node for row in self._world.live_rows()
                if row.host == self._host}
        if self._gone and len(mine & self.unseen) < 2:
            self.glitch = 0
        if not self.glitch:
            return frozenset()
        self.glitch -= 1
        return self.unseen

    def node(self, uuid):
        pause()
        if self.failing:
            raise NotReadyError
        if uuid in self._gone or uuid not in self._world.machines:
            return None
        self.listing[uuid] = self._world.machines[uuid]
        return NodeRow(uuid, self._world.machines[uuid], b'read')

    def instances(self, hosts):
        pause()
        return {instance.uuid for instance in self._world.instances.values()
                if instance.host in hosts and not instance.deleted}

    def instance_states(self, instances):
        pause()
        found = (self._world.instances.get(uuid) for uuid in instances)
        return {instance.uuid: instance.state
                for instance in found if instance}

    def take_over(self, instances, host, eligible):
        """adapters.nova_facts.take_over: each line is a call."""
        pause()
        outcomes = dict.fromkeys(instances, False)
        if self.ending():
            return outcomes
        as_seen = [uuid for uuid, state in instances.items()
                   if self._world.instances[uuid].state == state
                   and not self._world.nova.in_progress(uuid)]
        # A new process of the host hardly ever begins with an old number.
        attempts = {uuid: int(self._world.new(f'{self._host}:{uuid}:')
                              .rpartition(':')[2]) for uuid in instances}
        outcomes |= {uuid: self._outcome(
            self._mark, uuid, instances[uuid], host, attempts[uuid])
                     for uuid in as_seen}
        # The services are read: a host that is back keeps its own. Who does
        # not read them goes by what there is now.
        self._asked[greenlet.getcurrent()] = self._world.version
        dead = eligible({state.host for state in instances.values()})
        asked = self._asked[greenlet.getcurrent()]
        pause()
        now = {uuid: self._world.instances[uuid].state for uuid in instances}
        return {uuid: self._outcome(
                    self._move, uuid, instances[uuid], host, now[uuid],
                    instances[uuid].host_key in dead, asked, attempts[uuid])
                if outcome is True else outcome
                for uuid, outcome in outcomes.items()}

    def _outcome(self, act, *args):
        try:
            return act(*args)
        except LostError as exc:
            self.failed()
            return exc

    def _mark(self, instance, state, host, attempt):
        taking = takeover.taking(state.task_state, host_key(host), attempt)
        return self.writes.write(lambda: self._world.set_states(
            instance, (state.vm_state, state.task_state),
            state.vm_state, taking))

    def _move(self, instance, state, host, now, dead, asked, attempt):
        taking = takeover.taking(state.task_state, host_key(host), attempt)
        taken = takeover.resting_or_taken(
            now.vm_state, state.task_state, host_key(host))
        if now.task_state != taking:
            return now.host == host
        if now.host != state.host or not dead:
            self.writes.write(lambda: self._world.set_states(
                instance, (None, taking), now.vm_state, state.task_state))
            return False
        return self.writes.write(lambda: self._world.take_over(
            instance, taking, taken, state.host, host, asked))

    def remove_provider(self, node):
        """adapters.nova_facts.NovaCloud.remove_provider."""
        pause()
        provider = self._world.providers.get(node)
        if provider is not None and provider.consumer:
            return False
        self._world.delete_provider(node)
        return True

    def records_of(self, hosts):
        pause()
        if self._host in hosts and not self.is_look():
            self.looked = True
            self.mine &= self.recorded()
        return [Record(row.node, row.host, row.partition)
                for row in self._world.live_rows() if row.host in hosts]

    def records(self, nodes):
        pause()
        if not self.is_look():
            self.mine -= set(nodes) - self.recorded()
        self.read.setdefault(greenlet.getcurrent(), {}).update(
            (node, self.situation(node)) for node in nodes)
        return [Record(row.node, row.host, row.partition)
                for row in self._world.live_rows() if row.node in nodes]

    def consumers(self, node):
        pause()
        provider = self._world.providers.get(node)
        # Nobody has what is not there.
        return frozenset(
            {provider.consumer} if provider and provider.consumer else ())

    def consumers_of(self, nodes):
        return {node: self.consumers(node) for node in nodes}

    def mapped(self, host):
        pause()
        service = self._world.services.get(host)
        return service is not None and service.mapped

    def aggregates(self):
        return self._world.aggregates

    def generations(self):
        pause()
        return {node: provider.generation
                for node, provider in self._world.providers.items()}


class Pages(listings.Ironic):
    """What Ironic lists of the world, to one host."""

    def __init__(self, sources):
        super().__init__()
        self._sources = sources

    def _answer(self, question):
        super()._answer(question)
        if question in self._sources.refused:
            raise NotReadyError(question)
        listed = self._sources.visible
        for node in [*self._table]:
            if node not in listed:
                self.delete(node)
        for node, instance in listed.items():
            self.create(node)
            if self._table[node].instance != instance:
                self.change(node, instance=instance)


class Reader(lister.Lister):
    """Reads at a stroke; how it reads is tested elsewhere."""

    def __init__(self, sources, recorder):
        super().__init__(Pages(sources), functools.partial(
            next, itertools.count(0, audit_state.Settings('').audit_interval)),
            recorder)
        # At a stroke: nothing waits for it.
        self._lock = Lock(3)
        self._sources = sources

    @property
    def mirror(self):
        self._sources.use()
        return super().mirror

    def read(self, partition, seconds, wanted, brief=False):
        self._sources.list()
        return super().read(partition, seconds, wanted)

    def node(self, node):
        # With the lock it reads fields, which decide nothing.
        return (super().node(node) if self._lock.held
                else self._sources.node(node))


class Process:
    """A nova-compute from its start to its end.

    To the product it is nova's resource tracker (``has``, ``drop``,
    ``audit``, ``move``, ``pull``, ``unchanged``) and its operations
    (``at_work``, ``left``, ``forget``).

    :ivar auditor: the product's.
    :ivar sources: what it asks.
    :ivar tracked: nodes whose record nova's tracker has at hand.
    :ivar providers: node -> (generation, reserved), nova's cache of
        placement.
    :ivar serving: its start is over, it takes builds and sends heartbeats.
    :ivar ending: it was told to end, and still sends heartbeats.
    :ivar frozen: it does nothing at all, as after SIGSTOP.
    :ivar muted: its heartbeats do not arrive.
    :ivar drowsy: ticks in which it does not look.
    :ivar stopped: ticks in which its machine was paused; its monotonic clock
        stood still.
    :ivar updating: nova's :class:`Lock` around claims and updates.
    """

    def __init__(self, world, settings):
        self._world = world
        self._settings = settings
        self._settled = False
        self._running = None
        self.host = settings.host
        self.sources = Sources(world, self.host)

        def clock():
            return world.clock - self.stopped

        self.stopped = 0
        self.dead = False
        #: nova has had a heartbeat of it.
        self.heard = False
        self.listening = True
        #: When its start was over.
        self.began = 0
        #: Work -> when it last began (a look: or ended), and when it last
        #: went on.
        self.turned = {Work.AUDIT: 0, Work.PEER_POLL: 0}
        self.went_on = dict(self.turned)
        self.sources.clock = self.clock = clock
        self.life = lifecycle.Lifecycle(world, self, clock)
        recorder = self.sources.recorder = metrics.Metrics(clock)
        self.auditor = auditor.Auditor(
            self.sources, Reader(self.sources, recorder), clock, recorder)
        self.auditor._lock = Lock(1)
        self.auditor.audit_changed = functools.partial(
            self._audit_changed, self.auditor.audit_changed)
        self._recheck = recheck.Recheck(self.auditor, self, self._is_ending)
        self._due_nodes = due_nodes.DueNodes(
            self.host, self.auditor, self, clock)
        self._due_nodes._thread = Local()
        self._rebalancer = node_moves.Rebalancer(
            self.auditor, self, self._due_nodes, self._recheck,
            lambda node: self.auditor.last.nodes[node].instance is None,
            recorder)
        self._background = due_nodes.BackgroundAudit(
            self._due_nodes, self, self._is_ending)
        self._look = peer_poll.PeerPoller(
            self.auditor, self, self._acquired, clock, self._is_ending,
            lambda nodes: self._recheck.to_move(
                nodes, settings.partition.label),
            recorder=recorder, note_pulled=self._due_nodes.note_pulled)
        self.life.watch(
            self.auditor, self._look, self._due_nodes, recorder)
        self.sources.ending = self._is_ending
        self._late_takes = 0
        # What is decided by the older view is judged by that one.
        self.sources.overlap = lambda: (
            self.auditing + self.looking + self.polling
            + (self._adopting is not None) > 1)
        self.sources.is_look = lambda: (
            greenlet.getcurrent() is self._look_greenlet)
        self._look_greenlet = None
        self.tracked = set()
        self.providers = {}
        #: Node -> generation of its provider when it was audited last.
        self._reported = {}
        self.serving = False
        self.frozen = False
        self.muted = False
        self.drowsy = 0
        self.updating = Lock(2)
        self._instances = Instances(world, self.host, self.sources.writes)
        self._recovery = recovery.Recovery(
            self.host, self._instances, self._instances, self,
            mock.Mock(step=lambda *args: takeover.Step.FAIL),
            # Each tick is longer than any pause.
            lambda: world.clock * backoff.LONGEST,
            lambda *call: not self._workers.append(self._greenlet(*call)),
            recorder=recorder, receive=self._receive)
        self.arrivals = lost_builds.InFlightBuilds(
            Builds(world, self), Audits(self, world),
            lambda build: False,
            types.SimpleNamespace(searched=(), holds=lambda uuid: False))
        # Operations are carried out at a stroke.
        self.at_work = frozenset()
        self.unfinished = set()
        self.last_note = object()
        self.refusals = stuck_instances.EvacuationRefusals(
            self.host, evacuations.Evacuations(world, self.sources.writes),
            lambda: self.auditor.preferences)
        self._workers = []
        self._sweeping = self._refusing = self._adopting = None
        self._looking = None
        self._polling = None
        self._audits = 0
        self._looked_for = frozenset()
        self._lost_to_peers = {}
        self._tending = None
        self._body = self._start
        self.life.prepare()

    def _is_ending(self):
        return self.ending

    @property
    def ending(self):
        return self.life.shutdown.begun()

    @property
    def believed(self):
        """Return whom it has waited for long enough, and who is dead to it.

        The former as the world tells. What it takes for dead is judged
        elsewhere: here it says that others may think otherwise.
        """
        services = self._world.services
        return frozenset(
            host for (host, words), since in self.sources.stop_markers.items()
            if services[host].stop_marker == words
            and self._world.clock - since >= worlds.DOWN_TIME
        ), self.auditor.heartbeats.outages.dead

    def took(self):
        """It takes a node, by a write that may have been under way."""
        self._late_takes += self.ending
        # An audit and a look.
        if self._late_takes > 2:
            self._world.breach(f'{self.host} is told to end and takes nodes')

    @property
    def auditing(self):
        """Whether an audit is under way."""
        return self._running is not None

    @property
    def looking(self):
        """Whether a look, or what it led to, is under way."""
        return self._looking is not None

    @property
    def polling(self):
        """Whether it is at what has changed in Ironic between two audits."""
        return self._polling is not None

    @property
    def locked(self):
        """Whether builds that come have to wait."""
        return self.updating.held

    @property
    def outdated(self):
        """Whether something is under way that looked at older states."""
        return ((self.auditing or self.looking or self.polling)
                and self.sources.version < self._world.version)

    @property
    def beating(self):
        """Whether its heartbeats arrive."""
        return self.serving and not self.frozen and not self.muted

    def lost_to_peers(self, node):
        """Another host took a node as if this one were dead."""
        if node not in self.tracked | self.sources.mine:
            # It creates the record at the moment, and reads it again.
            return
        # After its audit has read the records it notices at the next.
        self._lost_to_peers[node] = self._audits + (
            self.auditing and self.sources.looked)

    def may_pull(self, node):
        """Whether it was a member for long enough to pull a node."""
        delay = self._settings.pull_delay_audits
        # A look counts the audit that is being carried out meanwhile.
        audits = self._audits + (node in self._looked_for)
        return audits >= delay and (
            not delay or self._lost_to_peers.get(node) != audits)

    def step(self):
        """Go on until the next pause; begin an audit if there is none.

        :returns: whether the audit goes on after it.
        """
        if self.dead:
            return False
        if self._running is None:
            self._running = greenlet.greenlet(self._body)
            self.turned[Work.AUDIT] = self.clock()
        self._world.note()
        self._running.switch()
        self.went_on[Work.AUDIT] = self.clock()
        if self._running.dead:
            self._running = None
            self._body = self._audit_all
            self._audits += 1
            self._looked_for = frozenset()
        self._world.note()
        return self.auditing

    def finish(self):
        """Go on to the end of the audit; begin one if there is none.

        It may wait for the look, or the poll.
        """
        while self.step():
            if self.looking:
                self.look()
            if self.polling:
                self.poll()
            self._free_locks()

    def _free_locks(self):
        """Let threads go on that may have a lock."""
        if self._tending:
            self.tend()
        if self._adopting:
            self.adopt()

    def look(self):
        """Go on with the look until the next pause; begin one if none is.

        :returns: whether it goes on after it.
        """
        if self.dead:
            return False
        if not self.looking:
            self._looking = greenlet.greenlet(self._look_once)
            self.turned[Work.PEER_POLL] = self.clock()
        self._looking = self._go_on(self._looking)
        self.went_on[Work.PEER_POLL] = self.clock()
        if not self.looking:
            self.turned[Work.PEER_POLL] = self.clock()
        return self.looking

    def glance(self):
        """Read who is there, at a stroke, as each look begins.

        Its threads go on, and systemd may kill it.
        """
        if not self.frozen:
            self.life.threads.go_on(3)
        if self.life.killed():
            self.kill()
            del self._world.processes[self.host]
            return
        if self.serving and not (
                self.frozen or self.looking or self.ending):
            if self.drowsy:
                self.drowsy -= 1
                return
            one = self._greenlet(
                self.auditor.read_view, self._settings,
                list(self._world.services))
            seen = self.sources.seen
            while not one.dead:
                one.switch()
            self.sources.seen = seen
            self._world.note()

    def _go_on(self, one):
        """Go on with something; return it if it is not over."""
        self._world.note()
        one.switch()
        self._world.note()
        return None if one.dead else one

    def finish_look(self):
        """Go on to the end of the look; begin one if there is none.

        It may wait for the audit, or the poll.
        """
        while self.look():
            if self.auditing:
                self.step()
            if self.polling:
                self.poll()
            self._free_locks()

    def poll(self):
        """Go on with the poll until the next pause; begin one if none is.

        :returns: whether it goes on after it.
        """
        self._polling = self._go_on(
            self._polling or self._greenlet(self._poll_once))
        return self.polling

    def tend(self):
        """Go on with the thread ``placement`` until the next pause.

        :returns: whether it goes on after it.
        """
        self._tending = self._go_on(
            self._tending or self._greenlet(self._tend))
        return self._tending is not None

    def finish_tending(self, begin=True):
        """Go on to the end of that; begin it if there is none.

        It may wait for the audit, or the look, which have a lock.
        """
        while (begin or self._tending) and self.tend():
            if self.auditing:
                self.step()
            if self.looking:
                self.look()
            if self.polling:
                self.poll()
            if self._adopting:
                self.adopt()

    def _tend(self):
        self.life.provider_changes.once()

    def end(self):
        """It is told to end."""
        self.life.end()

    def may_close(self):
        """Ask the product, which looks again; audits go by what they saw."""
        seen = self.sources.seen
        try:
            return self._look.may_close(self._settings)
        finally:
            self.sources.seen = seen

    def switched(self):
        """nova's API has disabled or enabled it: service.note_switch."""
        if self.serving and not self.frozen:
            self.auditor.doubt()
            self._due_nodes.switches += 1

    def finish_poll(self):
        """Go on to the end of the poll that is under way."""
        while self.polling and self.poll():
            if self.auditing:
                self.step()
            if self.looking:
                self.look()
            self._free_locks()

    def _poll_once(self):
        """What the driver's timer does."""
        # One that fails is logged and repeated.
        with contextlib.suppress(ports.ListingError):
            self._due_nodes.read_ironic(self._settings)
            self._background.once()

    def _audit_changed(self, audit_changed, settings, nodes):
        """Tell the judge what a poll has decided while an audit is at it."""
        before = self.auditor.last.nodes
        audit_changed(settings, nodes)
        if self.auditing and self.sources.looked:
            self.sources.decided(self._running, [
                node for node, row in self.auditor.last.nodes.items()
                if row is not before.get(node)])

    def kill(self):
        """End it at once, wherever it is."""
        self.dead = True
        for one in (self._running, self._looking, self._polling,
                    self._sweeping, self._tending, self._refusing,
                    self._adopting,
                    *self._workers,
                    *self.life.threads.running):
            if one is not None:
                one.throw()
        self._running = self._looking = None
        self._polling = self._sweeping = None
        self._tending = self._refusing = self._adopting = None
        self._workers = []

    def _start(self):
        """nova.service.Service.start."""
        world = self._world
        for instance in list(world.instances.values()):
            if (instance.host == self.host and not instance.deleted
                    and (instance.task or instance.building)):
                row = self._instances.read(instance.uuid)
                if row is not None:
                    self._recovery.start(
                        functools.partial(self._instances.init, row), row)
        if self.host not in world.services:
            world.services[self.host] = worlds.Service(
                self.host, world.clock, world.clock, mapped=False)
        self._undo_stop()
        self._audit_all()
        # service.begin
        self.auditor.doubt()
        self.life.begin()
        self.began = self.clock()
        self.serving = True
        world.beat(world.services[self.host])

    def _audit_all(self):
        """ComputeManager.update_available_resource."""
        if self.ending:
            return
        self.sources.looked = False
        self.sources.mine = self.sources.recorded()
        starting = not self._settled
        try:
            found = self.auditor.audit(
                self._settings, self._settled, has=self.has)
        except ports.ListingError:
            return
        finally:
            self._settled = True
        self._due_nodes.follow(self._settings, found.view)
        self._due_nodes.begin(starting)
        if starting:
            self.tracked.update(
                record.node for record in self._due_nodes.ready())
        self._recovery.took_over(found.taken_over, found.at_rest)
        self._looked_for = frozenset()
        self._check_kept(found)
        self._undo_stop(found.view)
        self._due_nodes.skip_unchanged(found.nodes)
        self._rebalancer.once(self._settings.partition.label)
        pause()
        recorded = {record.node for record in (
            *self.auditor.last.records, *self._rebalancer.records)}
        for node in self.tracked - recorded:
            self._forget(node)
        for record in found.records:
            if record.node in found.nodes:
                continue
            self.sources.recorder.sign(Work.AUDIT)
            pause()
            if record.node in found.deleted:
                self._delete(record)
        for node in sorted(found.nodes):
            # While it starts it may have no time for that; a later audit has.
            if self._due_nodes.is_next(node) and not (
                    starting and node in self.tracked):
                self.audit(node)

    def _look_once(self):
        """What the driver's timer does."""
        self._look_greenlet = greenlet.getcurrent()
        # A look that fails is logged and repeated.
        with contextlib.suppress(ports.ListingError):
            view = self._look.once(self._settings)
            self._due_nodes.follow(self._settings, view)
            self._undo_stop(view)

    def _undo_stop(self, view=None):
        if self.life.shutdown.undo(
                view is None or bool(view.services[self.host].stop_marker)):
            self._due_nodes.switches += 1

    def _acquired(self, found, mine):
        self._recovery.took_over(found.taken_over, found.at_rest)
        if self.auditing and self.sources.looked:
            self._looked_for = frozenset(mine)
            self.sources.decided(self._running, mine)

    def has(self, node):
        """Whether ResourceTracker.compute_nodes has the node."""
        return node in self.tracked

    def note_unfinished(self, uuid):
        """As the guard does."""
        self.last_note = object()
        self.unfinished.add(uuid)

    def forget(self, uuids):
        """As the guard does."""
        self.unfinished -= uuids

    def silent(self, exc):
        """As the guard does."""
        return isinstance(exc, LostError)

    def _receive(self):
        """Operations are carried out one after the other."""
        if any(operation.cast_to == self.host
               for operation in self._world.operations):
            raise LostError

    def repeating(self):
        """What fails here is never written down."""
        return contextlib.nullcontext()

    def drop(self, node):
        """ResourceTracker.remove_node."""
        if node in self.tracked:
            self._forget(node)

    def _check_kept(self, found):
        """Raise Broken when it leaves what is free and its own to nobody."""
        for node, reason in found.reasons.items():
            used = reason in LEFT and self.sources.listing.get(node)
            if (node in self.sources.mine and not reason.mine
                    and not used and node not in self._world.undeleted):
                self._world.breach(
                    f'{self.host} leaves {node}, its own, to nobody: {reason}')

    def _forget(self, node):
        self.tracked.discard(node)
        self.providers.pop(node, None)

    def _delete(self, record):
        destroyed = self._world.destroy(record.node, record.host)
        self._forget(record.node)
        if destroyed:
            pause()
            self._world.delete_provider(record.node)

    def audit(self, node):
        """ResourceTracker.update_available_resource, of one node."""
        if not self._recheck.may_take(node):
            return
        with self._due_nodes.auditing(node):
            if self._due_nodes.audit_of(node).uncached:
                self.providers.pop(node, None)
            pause()
            with self.updating:
                if (node in self.tracked or self._take(node)) and (
                        self._report(node)):
                    self._due_nodes.touch(node)

    def _take(self, node):
        """ResourceTracker._init_compute_node; False when it fails."""
        world = self._world
        row = world.rows.get(node)
        if (row is None or row.deleted) and not self._may_create(node):
            return False
        if row is None:
            pause()
            world.create(node, self.host)
            pause()
            taken = world.owner(node) == self.host
        else:
            undeleted = row.deleted
            if undeleted:
                world.undelete(node, self.host)
            elif not self._recheck.still_valid(
                    node, Record(node, row.host)):
                return False
            taken = row.host == self.host or self._move(node, undeleted)
        if taken:
            self.tracked.add(node)
        return taken

    def move(self, nodes, judge):
        """calls.Tracker.move: each of the writes is a call."""
        moved = set()
        with self.updating:
            owners = self.auditor.last.owners
            records = judge(nodes)
            seen = self.sources.read.get(greenlet.getcurrent())
            for record in records:
                node = record.node
                pause()
                if self._world.move(
                        node, self.host, ownership.Reason.ADOPTED,
                        owners.get(node),
                        sure=seen[node] == self.sources.situation(node)):
                    moved.add(node)
                    self.tracked.add(node)
        return moved

    def pull(self, nodes, judge):
        """calls.Tracker.pull: each of the requests is a call."""
        idle = {}
        for node in nodes:
            pause()
            provider = self._world.provide(node)
            generation, reserved = provider.generation, provider.reserved
            pause()
            if not reserved and provider.consumer is None:
                idle[node] = generation
        if not idle:
            return set()
        with self.updating:
            held = {}
            for record in judge(list(idle)):
                node = record.node
                pause()
                if self._world.set_reserved(node, True, idle[node]):
                    # The generation guards the allocations up to now.
                    held[node] = self.sources.situation(node)[-1]
            # A poll may decide anew while the nodes are judged.
            owners = self.auditor.last.owners
            mine = [record.node for record
                    in (judge(list(held)) if held else ())]
            moved = [node for node in mine
                     if self._pull(node, held[node], owners.get(node))]
            self.tracked.update(moved)
            for node in moved:
                self.providers.pop(node, None)
            for node in held:
                if node in moved or node not in mine:
                    pause()
                    self._world.set_reserved(node, False, idle[node] + 1)
        return set(moved)

    def _pull(self, node, consumer, decided_on):
        seen = self.sources.read[greenlet.getcurrent()][node]
        pause()
        return self._world.move(
            node, self.host, ownership.Reason.PULLED, decided_on,
            sure=(*seen[:-1], consumer) == self.sources.situation(node))

    def unchanged(self, nodes):
        """calls.Tracker.unchanged: each of the questions is a call."""
        found = set()
        for node in nodes:
            known = self.providers.get(node)
            pause()
            if known and known[0] == self._world.provide(node).generation:
                found.add(node)
        return found

    def _may_create(self, node):
        # What has been decided is judged by what was seen then.
        seen = self.sources.seen
        allowed = self._recheck.may_create(node, self._settings)
        self.sources.seen = seen
        return allowed

    def _move(self, node, undeleted):
        world = self._world
        row = world.rows[node]
        owner = row.host
        if not self._report(node):
            return False
        # The generation guards the allocations up to now.
        consumer = world.consumer(node)
        pause()
        # What a look has decided on it anew counts.
        reason = self.auditor.last.reasons[node]
        decided_on = self.auditor.last.owners.get(node)
        seen = self.sources.situation(node)
        if reason is ownership.Reason.PULLED:
            seen = (*seen[:-1], consumer)
        # One that was undeleted was judged as one that is created.
        if row.deleted or row.host != owner or not (
                undeleted or self._recheck.still_valid(
                    node, Record(node, row.host))):
            return False
        pause()
        return world.move(node, self.host, reason, decided_on,
                          sure=seen == self.sources.situation(node))

    def _report(self, node):
        """ResourceTracker._update_to_placement; False when it fails."""
        for _ in range(ATTEMPTS):
            if node not in self.providers:
                provider = self._world.provide(node)
                self.providers[node] = (
                    provider.generation, provider.reserved, provider.disabled)
            generation, *before = self.providers[node]
            pause()
            offered = self._recheck.of(node)
            if offered is recheck.Offer.REFUSED:
                return False
            # ResourceTracker._sync_compute_service_disabled_trait
            service = self._world.services[self.host]
            wanted = [offered is recheck.Offer.NOTHING,
                      service.disabled or service.closed]
            self._reported[node] = generation
            if wanted == before:
                return True
            pause()
            if self._world.set_provider(node, *wanted, generation):
                self.providers[node] = generation + 1, *wanted
                self._reported[node] = generation + 1
                return True
            self.providers.pop(node, None)
        return False

    def generations(self, nodes):
        """Return those that nova has of its last audits."""
        return {node: self._reported[node] for node in nodes
                if node in self._reported}

    def lose(self, instance):
        """Take a build from the queue, or lose it."""
        instance.sent -= 1
        if not instance.sent and self.arrivals.here(instance.uuid):
            self.arrivals.end(instance.uuid)

    def build(self, instance):
        """Take a build from the queue, and claim its node.

        :returns: whether it goes on here; None if it is not carried out.
        """
        world = self._world
        self.lose(instance)
        consumer = world.consumer(instance.node)
        if instance.deleted or builds.outdated(
                instance.state, instance.node, self.host,
                lambda: consumer == instance.uuid):
            return None
        if instance.host is not None or consumer != instance.uuid:
            self._world.breach(f'G3: {instance} is built twice')
        if instance.node not in self.tracked:
            return False
        instance.building = True
        instance.host = self.host
        instance.builder = self
        return True

    def adopt(self, instance=None):
        """Go on with a build that was handed on; begin this one if none is.

        :returns: whether it goes on after it.
        """
        if self.dead or not (instance or self._adopting):
            return False
        self._adopting = self._go_on(
            self._adopting or self._greenlet(self._adopt, instance))
        return self._adopting is not None

    def _adopt(self, instance):
        """The guard takes the node before nova claims it."""
        self.arrivals.begin(instance.uuid)
        if not self.ending:
            node_moves.adopt(
                self.auditor, self, self._acquired, self._settings,
                instance.uuid, instance.node)
        pause()
        if instance.sent and self.build(instance) is False:
            self._world.fail(instance)
        elif self.arrivals.here(instance.uuid):
            self.arrivals.end(instance.uuid)

    def finish_adopting(self):
        """Go on to the end of that. It may wait for the audit or the look."""
        while self.adopt():
            if self.auditing:
                self.step()
            if self.looking:
                self.look()
            if self.polling:
                self.poll()
            if self._tending:
                self.tend()

    def reap(self):
        """Tear down what nova has deleted and the driver still lists."""
        found = self.auditor.last
        if found is None:
            return
        for node, machine in found.nodes.items():
            if (machine.instance is None or found.reasons[node]
                    is ownership.Reason.UNKNOWN):
                continue
            instance = self._world.instances.get(machine.instance)
            if instance and instance.deleted:
                self._world.detach(machine.instance)

    # Takeover, between and besides all audits.

    @staticmethod
    def _greenlet(function, *args):
        return greenlet.greenlet(lambda: function(*args))

    def sweep(self):
        """Go on with the sweep until the next pause; begin one if none is.

        :returns: whether it goes on after it.
        """
        self._sweeping = self._go_on(
            self._sweeping or self._greenlet(self._sweep))
        return self._sweeping is not None

    def _sweep(self):
        # What fails is repeated by the timer.
        with contextlib.suppress(LostError):
            self._recovery.sweep(self._look.view)

    def refuse(self):
        """Go on with the sweep for evacuations, in the same way."""
        self._refusing = self._go_on(
            self._refusing or self._greenlet(self._refuse))
        return self._refusing is not None

    def _refuse(self):
        with contextlib.suppress(LostError):
            self.refusals.sweep(self._look.view)

    def rebuild(self, instance):
        """The guard of an evacuation that comes here: it is refused."""
        self._workers.append(
            self._greenlet(self.refusals.refuse, instance.uuid))

    def recover(self, index):
        """Go on with bringing an instance to rest until the next pause.

        :returns: whether there is more to do.
        """
        if self._workers:
            worker = self._workers[index % len(self._workers)]
            if self._go_on(worker) is None:
                self._workers.remove(worker)
        return bool(self._workers)

    def carry_out(self, operation):
        """Do what waited in the queue, unless the instance is another's.

        :returns: whether that is known; else it goes on waiting.
        """
        instance = operation.instance
        if instance.deleted or instance.host != self.host:
            return True
        if takeover.is_anothers(instance.task, host_key(self.host)):
            return False
        self._world.act(instance, self.host)
        if instance.task == 'deleting':
            self._world.detach(instance.uuid)
            self._world.destroy_instance(instance)
        elif not takeover.is_mark(instance.task):
            instance.task = None
        return True
