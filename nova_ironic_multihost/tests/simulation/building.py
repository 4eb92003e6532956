# SPDX-License-Identifier: Apache-2.0

"""A model of what carries a build: nova, placement, Ironic and RabbitMQ.

The product's guard, backups, forwarder, recovery and rules run in it. nova's
queues, the steps of its builds and deletes, as they are in ComputeManager of
nova 31 to 34, RabbitMQ and Ironic are modelled.

A process may be killed at each question that it asks, and stand still between
any two steps, also when others have taken over what it was at.
"""

import collections
import contextlib
import dataclasses
import functools
import types

import greenlet

from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import build_guard
from nova_ironic_multihost.engine.builds import guard
from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost import exception
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
from nova_ironic_multihost.tests.simulation import threads
from nova_ironic_multihost.tests.unit.engine import post

HOSTS = 'abc'
NODES = tuple(f'n{i}' for i in range(6))

#: Seconds that an operation waits for nova.
PATIENCE = 60

#: That a build has failed for good, in which case nova frees its node.
FAILED = object()


class Broken(AssertionError):
    """A promise is broken."""


class Killed(BaseException):
    """The process that runs is killed here."""


class CrossedError(Exception):
    """An instance has another state than nova expects."""


class RescheduledError(Exception):
    """A build goes to another node."""


def pause():
    """Let the others go on, in a thread of nova."""
    if greenlet.getcurrent().parent is not None:
        threads.pause()


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
    :ivar undone: number of builds that were begun again.
    """

    def __init__(self):
        super().__init__(lambda: self.now)
        self.now = 0.0
        self.countdown = None
        self.broken = []
        self.undone = 0
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

    def fail(self, uuid):
        """A build ends in ERROR."""
        self.break_promise(f'{uuid} fails at {self.placed[uuid]}')

    # The ports.

    def instance_states(self, uuids):
        self.check()
        return {uuid: self.placed[uuid] for uuid in uuids}

    def records(self, nodes):
        self.check()
        return [Record(node, self.owners[node]) for node in nodes]

    def allocated(self, node):
        self.check()
        return frozenset(
            uuid for uuid, its in self.node_of.items() if its == node)

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
        if (state.host is None and self.node_of[build.instance] == build.node
                and absent()):
            self.break_promise(f'{build} was given up: {reason}')
        return False

    def count(self, instance):
        self.check()
        return self.attempts[instance]

    def repeatable(self, instance):
        return True

    def undo(self, instance, copy):
        """Undo what was done for a build, step by step."""
        uuid = instance.uuid
        self.undone += 1
        self.check()
        self.ask_ironic()
        self.free(uuid, instance.node)
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
        self.missing.discard(self.owners[node])
        self.queues[self.owners[node]].append(
            QueuedRequest(RequestKind.BUILD, uuid, node))
        return True

    def set(self, uuid, **changes):
        self.placed[uuid] = dataclasses.replace(self.placed[uuid], **changes)

    def free(self, uuid, node):
        """Ironic is told to tear a machine down."""
        machine = self.machines[node]
        if machine.instance != uuid:
            return
        if machine.state != 'available' and not (
                self.placed[uuid].deleted
                or takeover.before_mark(self.placed[uuid].task_state)
                == 'deleting'):
            self.break_promise(f'{uuid} was taken off its machine')
        machine.instance, machine.state = None, 'available'

    def ask_ironic(self):
        if not self.ironic_answers:
            raise OSError('Ironic does not answer')

    def deploy(self, uuid, node):
        """Ironic is told to deploy."""
        self.ask_ironic()
        machine = self.machines[node]
        others = [one for one, its in self.machines.items()
                  if its.instance == uuid and one != node]
        if machine.instance != uuid or machine.state != 'available' or others:
            self.break_promise(
                f'{uuid} is deployed twice, on {node} and {others}')
        machine.state = 'deploying'


class Instances:
    """What the recovery of a compute service has of nova, and its machines.

    :param process: :class:`Process`.
    """

    def __init__(self, process):
        self.world, self.process = process.world, process

    def _states(self, wanted):
        self.process.ask(self.world.check)
        return {uuid: state for uuid, state in self.world.placed.items()
                if not state.deleted and wanted(state)}

    def busy(self, host):
        return self._states(
            lambda state: state.host == host and (
                state.vm_state == 'building'
                or state.task_state in takeover.TASKS
                or takeover.is_mark(state.task_state)))

    def of_host(self, host, after):
        found = self._states(lambda state: state.host == host)
        return {uuid: found[uuid] for uuid in sorted(found)
                if after is None or uuid > after}

    def read(self, uuid):
        self.process.ask(self.world.check)
        state = self.world.placed[uuid]
        return None if state.deleted else types.SimpleNamespace(
            uuid=uuid, **dataclasses.asdict(state))

    def set_states(self, instance, vm_state, task_state):
        return self.process.ask(
            self._set_states, instance, vm_state, task_state)

    def _set_states(self, instance, vm_state, task_state):
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

    def delete(self, instance):
        self.process.terminate(instance)

    def deployed(self, instance):
        self.world.check()
        self.world.set(instance.uuid, vm_state='active', task_state=None)

    def fail(self, instance, reason):
        self.world.check()
        if self.world.attempts[instance.uuid] < forwarding.BUILD_ATTEMPTS:
            self.world.fail(instance.uuid)
        self.world.set(instance.uuid, vm_state='error', task_state=None)

    def notify(self, event, payload):
        pass

    # Their machines.

    def provision_state(self, instance):
        self.world.check()
        machine = self.world.machines[instance.node]
        return machine.state if machine.instance == instance.uuid else None


class Process:
    """A nova-compute."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.builds = []
        self.boxes = []
        self.threads = []
        #: Questions until nova answers again, and whether it does what it
        #: is asked for meanwhile.
        self.silence, self.deaf = 0, True
        self.dead = self.ending = False
        #: Nodes that nova's resource tracker has.
        self.nodes = frozenset()
        self.audits = types.SimpleNamespace(
            cloud=self, preferences=None, recorded=None,
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
        self.guard = build_guard.BuildGuard(
            host, self, lambda: PATIENCE, clock, lambda seconds: pause(),
            lambda exc, again: isinstance(exc, OSError))
        self.guard._thread = threads.Local(guard.ThreadState)
        instances = Instances(self)
        self.recovery = recovery.Recovery(
            host, instances, instances, self.guard,
            lost_builds.BuildRetry(self.backups, world, here), clock,
            lambda *call: not self.threads.append((call[0], call[1:])),
            receive=self.receive)
        self.forwarder = queue_forwarder.QueueForwarder(
            host, self, self.audits, self.looks, requests, clock)
        self.arrivals = lost_builds.InFlightBuilds(
            self, self.audits,
            lambda build: self.backups.copy(build) is not None,
            self.forwarder)
        self.timers = [
            periodic.PeriodicTask(act.__qualname__, act, lambda: 0)
            for act in (self.look, self.adopt, self.track, self.backups.once,
                        self.arrivals.once, self.forwarder.once,
                        self.recover)]
        self.look()
        self.track()
        for uuid in instances.of_host(host, None):
            self.recovery.start(lambda: None, instances.read(uuid))

    def ask(self, act, *args):
        """Ask nova, unless it does not answer this host."""
        if self.silence:
            self.silence -= 1
            if not self.deaf:
                act(*args)
            raise OSError('nova-conductor does not answer')
        return act(*args)

    def instance_states(self, uuids):
        return self.ask(self.world.instance_states, uuids)

    def records(self, nodes):
        return self.ask(self.world.records, nodes)

    def consumers(self, node):
        try:
            return self.ask(self.world.allocated, node)
        except OSError:
            return None

    # The ports that a process has of its own.

    readable = True

    def open(self, host):
        self.boxes.append(self.world.open(host))
        return self.boxes[-1]

    def open_copies(self, host):
        self.boxes.append(self.world.open_copies(host))
        return self.boxes[-1]

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
        self.dead = True
        for _, work in self.builds:
            work.throw()
        self.disconnect()

    def disconnect(self):
        for box in self.boxes:
            if not box.closed:
                box.close()

    def end(self):
        """SIGTERM: service.end."""
        self.ending = True
        self.forwarder.end()
        self.guard.end()

    def deliver(self):
        """Take what waits in nova's queue, all at once."""
        waiting = self.world.queues[self.host]
        while waiting:
            request = waiting.pop(0)
            work = greenlet.greenlet(functools.partial(
                self.build if request.kind is RequestKind.BUILD
                else self.terminate, types.SimpleNamespace(
                    uuid=request.instance, node=request.node)))
            if request.kind is RequestKind.BUILD:
                self.arrivals.begin(request.instance)
                self.backups.keep(
                    request.instance, request.node, {'letter': request})
            else:
                # Its thread asks the guard.
                work.switch()
            self.builds.append((request, work))

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
        if not work.dead:
            work.switch()
        if work.dead:
            del self.builds[index]
            if request.kind is RequestKind.BUILD:
                self.arrivals.end(request.instance)

    def build(self, instance):
        """Carry out a build: adapters.patches.operations.carry_out_build."""
        # It waits for its turn.
        pause()
        world, outcomes = self.world, []
        try:
            result = self.guard.build(
                'build', instance, functools.partial(self.attempt, instance),
                instance.node, functools.partial(outcomes.append, True),
                functools.partial(self.take_node, instance.node),
                lambda result: result is FAILED,
                functools.partial(self.renew, instance),
                functools.partial(outcomes.append, None))
        except Exception:  # noqa: BLE001
            # ComputeManager.build_and_run_instance
            result = FAILED
            if not self.state(instance).deleted:
                world.fail(instance.uuid)
        if result is FAILED:
            world.node_of[instance.uuid] = None
        if None not in outcomes and not (outcomes and self.ending):
            self.backups.end(instance.uuid, instance.node)

    def attempt(self, instance):
        """ComputeManager._do_build_and_run_instance."""
        world, uuid = self.world, instance.uuid
        world.attempts[uuid] += 1
        try:
            pause()
            try:
                self.save(instance, None, (None, 'scheduling'))
            except (exception.InstanceGone, CrossedError):
                return FAILED
            pause()
            return self.attempt_once(instance)
        finally:
            world.attempts[uuid] -= not self.dead

    def attempt_once(self, instance):
        world, uuid = self.world, instance.uuid
        try:
            return self.guard.attempt(
                'build', instance, functools.partial(self.run, instance))
        except RescheduledError:
            self.guard.give_back('claim', instance, lambda: None, True)
            pause()
            self.save(instance, 'scheduling', host=None, node=None)
            self.guard.note_scheduled()
            world.node_of[uuid] = None
            world.allocate(uuid)
            return None
        except exception.InstanceGone:
            return FAILED
        except Exception:  # noqa: BLE001
            self.guard.give_back('claim', instance, lambda: None, True)
            self.guard.clean_up('error', instance, functools.partial(
                self.fail, uuid))
            return FAILED

    def run(self, instance):
        """ComputeManager._build_and_run_instance."""
        try:
            self.guard.claim(
                'claim', instance, functools.partial(self.claim, instance))
        except Exception as exc:
            raise RescheduledError from exc
        pause()
        try:
            self.spawn(instance)
        except Exception as exc:
            # ResourceTracker.abort_instance_claim
            self.guard.give_back(
                'claim', instance, functools.partial(
                    self.save, instance, self.state(instance).task_state,
                    host=None, node=None))
            if isinstance(exc, OSError):
                raise RescheduledError from exc
            raise

    def claim(self, instance):
        """ResourceTracker.instance_claim."""
        if instance.node not in self.nodes or not self.guard.has_node():
            raise RescheduledError
        self.write(instance, (None,), ('building',), {
            'host': self.host, 'node': instance.node})

    def spawn(self, instance):
        """Do what follows the claim."""
        world, uuid, node = self.world, instance.uuid, instance.node
        machine = world.machines[node]

        def reserve():
            if machine.instance not in (None, uuid):
                raise RuntimeError('another instance has it')
            machine.instance = uuid

        self.save(instance, 'networking', (None,))
        pause()
        try:
            self.guard.change_machine('prepare_for_spawn', instance, reserve)
            pause()
            self.guard.change_machine('plug_vifs', instance, lambda: None)
            pause()
            self.save(instance, 'block_device_mapping', ('networking',))
            pause()
            self.save(instance, 'spawning', ('block_device_mapping',))
            pause()
            self.guard.change_machine(
                'spawn', instance, lambda: world.deploy(uuid, node))
            while machine.state == 'deploying':
                pause()
            self.save(instance, None, ('spawning',), vm_state='active')
        except Exception:
            pause()
            self.guard.change_machine(
                'destroy', instance, lambda: world.free(uuid, node))
            raise

    def state(self, instance):
        return self.world.placed[instance.uuid]

    def write(self, instance, expected, vm_states, changes):
        """Instance.save, which compares both states."""
        def write():
            state = self.state(instance)
            if state.deleted:
                raise exception.InstanceGone(instance_id=instance.uuid)
            if state.vm_state not in vm_states or (
                    expected and state.task_state not in expected):
                raise CrossedError
            self.world.set(instance.uuid, **changes)

        self.ask(write)

    def save(self, instance, task_state, expected=(), **changes):
        """adapters.patches.operations.GuardedSave."""
        built = changes.get('vm_state', 'building')
        changes['task_state'] = task_state
        try:
            self.guard.persist('save', instance, functools.partial(
                self.write, instance, expected, ('building',), changes,
            ), functools.partial(
                self.write, instance, expected and (*expected, task_state),
                ('building', built), changes),
                asks=task_state == 'scheduling')
        except CrossedError:
            state = self.state(instance)
            if (built == 'active' or state.vm_state != 'building'
                    or builds.crossed(
                        state.task_state, 'host' not in changes)):
                self.guard.leave('save')
            raise
        except OSError:
            if built == 'active':
                self.guard.leave('save')
            raise

    def fail(self, uuid):
        self.world.fail(uuid)
        self.world.set(uuid, host=None, node=None, vm_state='error',
                       task_state=None)

    def renew(self, instance):
        """Undo what an attempt has left that nobody has ended."""
        if builds.left_over(self.state(instance)):
            self.world.free(instance.uuid, instance.node)
            self.world.set(instance.uuid, task_state='scheduling')

    def terminate(self, instance):
        """ComputeManager.terminate_instance."""
        def act():
            pause()
            if self.state(instance).deleted:
                return
            try:
                self.guard.attempt('delete', instance, functools.partial(
                    self.delete, instance))
            except Exception:  # noqa: BLE001
                self.guard.clean_up('error', instance, functools.partial(
                    self.fail, instance.uuid))

        self.guard.operate('terminate_instance', instance, act)

    def delete(self, instance):
        """ComputeManager._delete_instance."""
        world, uuid, node = self.world, instance.uuid, instance.node

        def free():
            if self.state(instance).host != self.host:
                world.break_promise(f'{self.host} deletes {uuid}')
            world.ask_ironic()
            world.free(uuid, node)

        def end():
            world.set(uuid, deleted=True)
            world.node_of[uuid] = None

        self.guard.change_machine('destroy', instance, free)
        pause()
        self.ask(end)

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
        for task in self.timers:
            if not self.ending:
                task.run()
        # A thread logs an error and goes on.
        errors = set().union(*(
            task._failures for task in self.timers))
        if errors - {OSError, Broken, queue_forwarder.QueueNoAnswer}:
            self.world.break_promise(f'{errors} in {self.host}')
