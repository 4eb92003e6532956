# SPDX-License-Identifier: Apache-2.0

"""A model of what carries a build: nova, placement, Ironic and RabbitMQ.

The product's keeper, postman, arrivals, recovery and rules run in it. nova's
queues and the steps of its builds, as they are in ComputeManager of nova 31 to
34, what the guard does between them, RabbitMQ and Ironic are modelled.

A process may be killed at each question that it asks, and stand still between
any two steps, also when others have taken over what it was at.
"""

import collections
import contextlib
import dataclasses
import types

from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import post

HOSTS = 'abc'
NODES = tuple(f'n{i}' for i in range(6))


class Broken(AssertionError):
    """A promise is broken."""


class Killed(BaseException):
    """The process that runs is killed here."""


@dataclasses.dataclass
class Machine:
    """A node of Ironic.

    :ivar instance: that has it, None if none has.
    :ivar state: its provision state.
    """

    instance: str | None = None
    state: str = 'available'


class World(post.Bus):
    """nova's database, placement, Ironic and RabbitMQ.

    Implements the ports that say the same to everybody. Each question may be
    where a process is killed; one that is killed asks nothing any more.

    :ivar countdown: questions until then; None: nobody is killed.
    :ivar broken: promises that were broken, for who asked may catch it.
    """

    def __init__(self):
        super().__init__(lambda: self.now)
        self.now = 0.0
        self.countdown = None
        self.broken = []
        self.ironic_answers = True
        self.up = dict.fromkeys(HOSTS, True)
        self.fenced = set()
        self.owners = {}
        self.machines = {node: Machine() for node in NODES}
        self.placed = {}
        self.node_of = {}
        self.attempts = collections.Counter()

    def check(self):
        super().check()
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                raise Killed

    def break_promise(self, what):
        self.broken.append(what)
        raise Broken(what)

    # The ports.

    def instance_states(self, uuids):
        self.check()
        return {uuid: self.placed[uuid] for uuid in uuids}

    def records(self, nodes):
        self.check()
        return [Record(node, self.owners[node]) for node in nodes]

    def unclaimed(self):
        self.check()
        return frozenset(
            SentBuild(uuid, self.node_of[uuid])
            for uuid, state in self.placed.items()
            if state.host is None and not state.deleted
            and state.vm_state == 'building' and self.node_of[uuid])

    def give_up(self, build, reason, absent):
        self.check()
        state = self.placed[build.instance]
        if (state.host is not None or self.node_of[build.instance]
                != build.node or not absent()):
            return False
        return self.break_promise(f'{build} was given up: {reason}')

    def count(self, instance):
        self.check()
        return self.attempts[instance]

    def repeatable(self, instance):
        return True

    def undo(self, instance, copy):
        """Undo what was done for a build, step by step."""
        uuid = instance.uuid
        machine = self.machines[instance.node]
        if machine.instance == uuid:
            if machine.state != 'available':
                self.break_promise(f'{uuid} was taken off its machine')
            self.check()
            machine.instance = None
        self.check()
        state = self.placed[uuid]
        if (state.host, state.vm_state, state.task_state) != (
                instance.host, 'building', instance.task_state):
            raise RuntimeError('somebody else is at it')
        self.set(uuid, host=None, node=None, task_state='scheduling')
        self.check()

    # What is in it.

    def view(self, host):
        return peers.view(
            [peers.ComputeService(
                one, up=up and one not in self.fenced,
                forced_down=one in self.fenced)
             for one, up in self.up.items()], peers.Partition(), host)

    def allocate(self, uuid):
        """Do what the scheduler and nova-conductor do for a build."""
        taken = set(self.node_of.values())
        free = [node for node, machine in self.machines.items()
                if machine.instance is None and node not in taken]
        if not free:
            return False
        node = self.node_of[uuid] = free[0]
        self.queues[self.owners[node]].append(
            QueuedRequest(RequestKind.BUILD, uuid, node))
        return True

    def set(self, uuid, **changes):
        self.placed[uuid] = dataclasses.replace(self.placed[uuid], **changes)

    def deploy(self, uuid, node):
        """Ironic is told to deploy."""
        machine = self.machines[node]
        others = [one for one, its in self.machines.items()
                  if its.instance == uuid and one != node]
        if machine.instance != uuid or machine.state != 'available' or others:
            self.break_promise(
                f'{uuid} is deployed twice, on {node} and {others}')
        machine.state = 'deploying'


class Instances:
    """What the recovery of a compute service has of nova, and its machines.

    :param world: :class:`World`.
    """

    def __init__(self, world):
        self.world = world

    def _states(self, wanted):
        self.world.check()
        return {uuid: state for uuid, state in self.world.placed.items()
                if not state.deleted and wanted(state)}

    def marked(self, host):
        marks = frozenset(takeover.marks(host, takeover.TASKS))
        return self._states(lambda state: state.task_state in marks)

    def busy(self, host):
        return self._states(
            lambda state: state.host == host and (
                state.vm_state == 'building'
                or state.task_state in takeover.TASKS))

    def of_host(self, host, after):
        found = self._states(lambda state: state.host == host)
        return {uuid: found[uuid] for uuid in sorted(found)
                if after is None or uuid > after}

    def read(self, uuid):
        self.world.check()
        state = self.world.placed[uuid]
        return None if state.deleted else types.SimpleNamespace(
            uuid=uuid, **dataclasses.asdict(state))

    def set_states(self, instance, vm_state, task_state):
        self.world.check()
        state = self.world.placed[instance.uuid]
        if state.deleted or state.task_state != instance.task_state:
            return False
        self.world.set(
            instance.uuid, vm_state=vm_state, task_state=task_state)
        instance.vm_state, instance.task_state = vm_state, task_state
        return True

    def asked_last(self, uuid):
        return 'create'

    def began(self, uuid, action):
        return None

    def init(self, instance):
        self.world.check()

    def deployed(self, instance):
        self.world.check()
        self.world.set(instance.uuid, vm_state='active', task_state=None)

    def fail(self, instance, reason):
        self.world.check()
        if self.world.attempts[instance.uuid] < forwarding.BUILD_ATTEMPTS:
            self.world.break_promise(f'{instance.uuid} ends in ERROR')
        self.world.set(instance.uuid, vm_state='error', task_state=None)

    def notify(self, event, payload):
        pass

    # Their machines.

    def provision_state(self, instance):
        self.world.check()
        machine = self.world.machines[instance.node]
        return machine.state if machine.instance == instance.uuid else None


class Operations:
    """What a compute service is at, which the guard knows."""

    def __init__(self):
        self.at_work = frozenset()
        self.unfinished = frozenset()

    def note_unfinished(self, uuid):
        self.unfinished |= {uuid}

    def forget(self, uuids):
        self.unfinished -= uuids

    def silent(self, exc):
        return isinstance(exc, OSError)


class Process:
    """A nova-compute."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.builds = []
        self.boxes = []
        self.threads = []
        #: Nodes that nova's resource tracker has.
        self.nodes = frozenset()
        self.audits = types.SimpleNamespace(
            cloud=world, preferences=None, recorded=None,
            last=types.SimpleNamespace(
                host_aggregates=types.SimpleNamespace(aggregates=()),
                view=types.SimpleNamespace(host=host_key(host))))
        self.looks = types.SimpleNamespace(view=None, eligible=frozenset())
        requests = build_backups.RequestSorter(
            host, self.audits, self.looks, world)

        def here(uuid):
            return self.arrivals.here(uuid)

        def clock():
            return world.now

        self.backups = build_backups.BackupStore(
            host, self, self, requests, here, clock)
        self.operations = Operations()
        instances = Instances(world)
        self.recovery = recovery.Recovery(
            host, instances, instances, self.operations,
            lost_builds.BuildRetry(self.backups, world, here, clock), clock,
            lambda *call: not self.threads.append((call[0], call[1:])),
            receive=self.receive)
        self.forwarder = queue_forwarder.QueueForwarder(
            host, self, self.audits, self.looks, requests,
            lost_builds.DeadHostBuilds(self, world, clock), clock)
        self.arrivals = lost_builds.InFlightBuilds(
            self, self.audits, self.backups.may_come, clock)
        self.look()
        self.track()
        for uuid in instances.of_host(host, None):
            self.recovery.start(lambda: None, instances.read(uuid))

    # The ports that a process has of its own.

    readable = True

    def open(self, host):
        self.boxes.append(self.world.open(host))
        return self.boxes[-1]

    def open_copies(self, host):
        self.boxes.append(self.world.open_copies(host))
        return self.boxes[-1]

    @staticmethod
    def seal(arguments):
        return arguments

    def copy(self, arguments):
        self.world.queues[f'{self.host} copies'].append(arguments['letter'])

    def unclaimed(self):
        return self.world.unclaimed()

    def give_up(self, build, reason, absent):
        return self.world.give_up(build, reason, absent)

    def receive(self):
        """All that waits has come."""
        self.deliver()

    # What goes on in it.

    def look(self):
        world = self.world
        self.looks.view = world.view(self.host)
        self.looks.eligible = frozenset(
            () if self.host in world.fenced else world.fenced)
        members = [host for host in HOSTS if host not in world.fenced
                   and (world.up[host] or host == self.host)]
        self.audits.preferences = ring.Preferences(
            dict.fromkeys(members or [self.host]), 32)

    def track(self):
        """Let nova's tracker take the nodes whose records are this host's."""
        self.nodes = frozenset(
            node for node, owner in self.world.owners.items()
            if owner == self.host)
        self.audits.recorded = self.nodes

    def kill(self):
        for box in self.boxes:
            if not box.closed:
                box.close()

    def deliver(self):
        """Take what waits in nova's queue, all at once."""
        waiting = self.world.queues[self.host]
        while waiting:
            request = waiting.pop(0)
            self.arrivals.begin(request.instance)
            self.backups.keep(
                request.instance, request.node, {'letter': request})
            self.builds.append((request, self.build(request)))

    def step(self, index):
        """Go on with one of the builds that are here, for one step."""
        if not self.builds:
            return
        index %= len(self.builds)
        request, work = self.builds[index]
        # nova holds a lock of the instance.
        if any(one.instance == request.instance
               for one, _ in self.builds[:index]):
            return
        try:
            next(work)
        except StopIteration as end:
            del self.builds[index]
            self.backups.end(request.instance, request.node, bool(end.value))
            self.arrivals.end(request.instance)

    def build(self, request):
        """Do what the guard does for a build.

        :returns: whether it has refused it, or ended it.
        """
        uuid, node = request.instance, request.node
        # It waits for its turn.
        yield
        self.operations.at_work |= {uuid}
        self.operations.forget({uuid})
        try:
            if self.is_left(uuid, node):
                return True
            if self.take_node(node) and self.is_left(uuid, node):
                return True
            self.renew(uuid, node)
            failed = yield from self.build_in_nova(uuid, node)
            if failed:
                self.operations.note_unfinished(uuid)
            return failed
        finally:
            self.operations.at_work -= {uuid}

    def is_left(self, uuid, node):
        state = self.world.placed[uuid]
        return builds.contested(state, self.host) or builds.outdated(
            state, node, self.host, lambda: self.world.node_of[uuid] == node)

    def build_in_nova(self, uuid, node):
        """Do what nova does, with the guard between; stops between its steps.

        :returns: whether the guard ends it, or answers in its place.
        """
        world = self.world
        world.attempts[uuid] += 1
        yield
        if not self.write(uuid, (None, 'scheduling'), None):
            return self.fail(uuid, builds.BuildStage.NONE)
        yield
        # ComputeManager._build_and_run_instance: ResourceTracker.
        # instance_claim.
        if node not in self.nodes:
            return self.reschedule(uuid)
        if builds.begun_elsewhere(
                world.placed[uuid], self.host, builds.BuildStage.BEGUN):
            return self.end(uuid)
        if world.owners[node] != self.host:
            return self.reschedule(uuid, builds.BuildStage.BEGUN)
        world.set(uuid, host=self.host, node=node)
        yield
        return (yield from self.spawn(uuid, node))

    def spawn(self, uuid, node):
        """Do what follows the claim."""
        world = self.world
        if not self.write(uuid, (None,), 'networking'):
            return self.fail(uuid)
        yield
        machine = world.machines[node]
        if not self.mine(uuid, node) or machine.instance not in (None, uuid):
            return self.end(uuid)
        machine.instance = uuid
        yield
        if not self.mine(uuid, node):
            return self.end(uuid)
        yield
        if not self.write(uuid, ('networking',), 'block_device_mapping'):
            return self.fail(uuid)
        yield
        if not self.write(uuid, ('block_device_mapping',), 'spawning'):
            return self.fail(uuid)
        yield
        if not self.mine(uuid, node):
            return self.end(uuid)
        if world.placed[uuid].deleted:
            return self.fail(uuid)
        if not world.ironic_answers:
            return (yield from self.fail_over(uuid, node))
        world.deploy(uuid, node)
        while machine.state == 'deploying':
            yield
        if not self.write(uuid, ('spawning',), None, vm_state='active'):
            return self.fail(uuid)
        world.attempts[uuid] -= 1
        return False

    def write(self, uuid, expected, task_state, **changes):
        """Write a task state if it is what nova expects."""
        state = self.world.placed[uuid]
        if state.deleted or state.task_state not in expected:
            return False
        self.world.set(uuid, task_state=task_state, **changes)
        return True

    def mine(self, uuid, node):
        """The guard lets nothing be done to an instance that has moved."""
        state = self.world.placed[uuid]
        return not builds.contested(
            state, self.host) and builds.may_change_machine(
                state, self.world.owners[node], self.host,
                builds.BuildStage.HELD)

    def end(self, uuid):
        """The guard ends the build; nova cleans nothing up."""
        self.world.attempts[uuid] -= 1
        return True

    def fail(self, uuid, claim=builds.BuildStage.HELD):
        """The build fails; the guard answers if it was begun elsewhere."""
        world = self.world
        world.attempts[uuid] -= 1
        state = world.placed[uuid]
        held = claim is builds.BuildStage.HELD
        if (builds.begun_elsewhere(state, self.host, claim)
                or not state.deleted and builds.crossed(
                    state.task_state, held)
                # It is built, and was taken back:
                # adapters.patches.operations.GuardedSave.
                or not state.deleted and state.vm_state != 'building'):
            return True
        if held and not state.deleted:
            # ResourceTracker.abort_instance_claim.
            world.set(uuid, host=None, node=None)
            if builds.begun_elsewhere(
                    world.placed[uuid], self.host, builds.BuildStage.RETURNED):
                return True
        if not state.deleted:
            world.break_promise(f'{uuid} fails at {state}')
        for node, machine in world.machines.items():
            # nova frees it.
            if (machine.instance, world.owners[node]) == (uuid, self.host):
                machine.instance = None
        world.node_of[uuid] = None
        return False

    def fail_over(self, uuid, node):
        """nova cleans up, gives the claim back, and has it scheduled anew."""
        world = self.world
        if not self.mine(uuid, node):
            return self.end(uuid)
        world.machines[node].instance = None
        yield
        if builds.begun_elsewhere(
                world.placed[uuid], self.host, builds.BuildStage.HELD):
            return self.end(uuid)
        world.set(uuid, host=None, node=None)
        yield
        return self.reschedule(uuid, builds.BuildStage.RETURNED)

    def renew(self, uuid, node):
        """Undo what an attempt has left that nobody has ended."""
        world = self.world
        if not builds.left_over(world.placed[uuid]):
            return
        machine = world.machines[node]
        if machine.instance == uuid:
            if machine.state != 'available':
                world.break_promise(f'{uuid} was taken off its machine')
            machine.instance = None
        world.set(uuid, task_state='scheduling')

    def reschedule(self, uuid, claim=builds.BuildStage.NONE):
        world = self.world
        world.attempts[uuid] -= 1
        if builds.begun_elsewhere(world.placed[uuid], self.host, claim):
            return True
        world.set(uuid, task_state='scheduling')
        world.node_of[uuid] = None
        world.allocate(uuid)
        return False

    def take_node(self, node):
        """Take a node for a build if it is a dead host's; whether it was."""
        world = self.world
        if world.owners[node] not in world.fenced - {self.host}:
            return False
        self.take_over(node)
        world.owners[node] = self.host
        self.nodes |= {node}
        return True

    def take_over(self, node):
        """Take over the instances that dead hosts have on a node."""
        world = self.world
        for uuid, state in world.placed.items():
            if state.node != node or state.deleted or (
                    state.host not in world.fenced - {self.host}):
                continue
            mark = takeover.taking(state.task_state, self.host)
            world.set(uuid, task_state=mark)
            world.check()
            if (world.placed[uuid].host, world.placed[uuid].task_state) != (
                    state.host, mark):
                continue
            world.set(uuid, host=self.host, task_state=takeover.taken(
                state.task_state, self.host))
            self.recovery.took_over({uuid: state.host})

    def adopt(self):
        """Take over what a dead host has, as an audit does."""
        world = self.world
        awaited = {world.node_of[uuid] for uuid, state in world.placed.items()
                   if state.host is None}
        for node, owner in world.owners.items():
            if owner == self.host and world.machines[node].instance:
                self.take_over(node)
            if owner in self.looks.eligible and self.prefers(node):
                self.take_over(node)
                if node not in awaited:
                    world.owners[node] = self.host

    def prefers(self, node):
        return self.audits.preferences.host_for(node) == self.host

    def recover(self):
        """A sweep, and what its threads do."""
        with contextlib.suppress(OSError):
            self.recovery.sweep(self.looks.view)
        while self.threads:
            target, args = self.threads.pop(0)
            target(*args)

    def turn(self):
        """What its timers do."""
        for act in (self.look, self.adopt, self.track, self.backups.once,
                    self.arrivals.once, self.forwarder.once, self.recover):
            act()
