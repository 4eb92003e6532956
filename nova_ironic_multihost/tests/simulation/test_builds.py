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

"""Builds of servers, whatever dies when: none is lost and none is done twice.

Compute services are killed at every step of builds, of the keeper of their
copies, of the reader of their mailbox and copies, and of who brings builds to
rest; they come back, or are fenced and taken over, and come back then. The
keeper, the postman, the attempts and the rules are the product's. nova's
queues and its steps of a build, RabbitMQ and Ironic are modelled.

A killed process has taken nothing from RabbitMQ that it had not acknowledged.
What it has taken from nova's own queue is copied before it may be killed: what
is lost in the milliseconds before nobody can find.
"""

import collections
import contextlib
import dataclasses
import logging
import types
import unittest

import hypothesis
from hypothesis import stateful
from hypothesis import strategies

from nova_ironic_multihost.audit import arrivals
from nova_ironic_multihost.audit import keeper
from nova_ironic_multihost.audit import lost
from nova_ironic_multihost.audit import postman
from nova_ironic_multihost.audit import repetition
from nova_ironic_multihost.audit import sorter
from nova_ironic_multihost.core import admission
from nova_ironic_multihost.core.arrivals import Build
from nova_ironic_multihost.core import copies
from nova_ironic_multihost.core.facts import InstanceState
from nova_ironic_multihost.core.facts import Record
from nova_ironic_multihost.core.forwarding import Kind
from nova_ironic_multihost.core.forwarding import Letter
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ring
from nova_ironic_multihost.core import takeover
from nova_ironic_multihost.tests.simulation import test_simulation
from nova_ironic_multihost.tests.unit.audit import post

HOSTS = 'abc'
NODES = tuple(f'n{i}' for i in range(6))

#: Seconds from one turn of all timers to the next.
TURN = 10

#: Turns in which all has to come to its end when nothing dies any more. A
#: build that is allocated a node anew may be sent to each host once more.
ROUNDS = 60

#: Profile -> number of examples.
EXAMPLES = {'default': 400, 'nightly': 20000}


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

    Implements the ports. Each question may be where a process is killed.

    :ivar countdown: questions until then; None: nobody is killed.
    """

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.countdown = None
        self.up = dict.fromkeys(HOSTS, True)
        self.fenced = set()
        self.owners = {}
        self.machines = {node: Machine() for node in NODES}
        self.placed = {}
        self.node_of = {}
        self.deleted = set()
        self.attempts = collections.Counter()

    def check(self):
        super().check()
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                raise Killed

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
            Build(uuid, self.node_of[uuid])
            for uuid, state in self.placed.items()
            if state.host is None and not state.deleted
            and state.vm_state == 'building' and self.node_of[uuid])

    def give_up(self, build, reason, absent):
        self.check()
        state = self.placed[build.instance]
        if (state.host is not None or self.node_of[build.instance]
                != build.node or not absent()):
            return False
        raise Broken(f'{build} was given up: {reason}')

    # What is in it.

    def view(self, host):
        return membership.view(
            [membership.ComputeService(
                one, up=up and one not in self.fenced,
                forced_down=one in self.fenced)
             for one, up in self.up.items()], membership.Partition(), host)

    def live(self):
        return [host for host, up in self.up.items()
                if up and host not in self.fenced]

    def allocate(self, uuid):
        """Do what the scheduler and nova-conductor do for a build."""
        taken = set(self.node_of.values())
        free = [node for node, machine in self.machines.items()
                if machine.instance is None and node not in taken]
        if not free:
            return False
        node = self.node_of[uuid] = free[0]
        self.queues[self.owners[node]].append(
            Letter(Kind.BUILD, uuid, node))
        return True

    def set(self, uuid, **changes):
        self.placed[uuid] = dataclasses.replace(self.placed[uuid], **changes)

    def undo(self, instance, copy):
        """Undo what was done for a build, step by step."""
        uuid = instance.uuid
        machine = self.machines[instance.node]
        if machine.instance == uuid:
            if machine.state != 'available':
                raise Broken(f'{uuid} was taken off its machine')
            self.check()
            machine.instance = None
        self.check()
        self.set(uuid, host=None, node=None)
        self.check()

    def count(self, instance):
        self.check()
        return self.attempts[instance]

    def repeatable(self, instance):
        return True

    def deploy(self, uuid, node):
        """Ironic is told to deploy."""
        machine = self.machines[node]
        others = [one for one, its in self.machines.items()
                  if its.instance == uuid and one != node]
        if machine.instance != uuid or machine.state != 'available' or others:
            raise Broken(f'{uuid} is deployed twice, on {node} and {others}')
        machine.state = 'deploying'


class Process:
    """A nova-compute."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.builds = []
        self.boxes = []
        audits = types.SimpleNamespace(
            sources=world, preferences=None, last=types.SimpleNamespace(
                host_aggregates=types.SimpleNamespace(aggregates=())))
        self.audits = audits
        self.looks = types.SimpleNamespace(view=None, eligible=frozenset())
        letters = sorter.Sorter(host, audits, self.looks, world)
        self.keeper = keeper.Keeper(
            host, self, self, letters,
            lambda uuid: self.arrivals.here(uuid), lambda: world.now)
        self.repetition = repetition.Repetition(
            self.keeper, world, lambda uuid: self.arrivals.here(uuid),
            lambda: world.now)
        self.postman = postman.Postman(
            host, self, audits, self.looks, letters, lost.Lost(
                self, world, lambda: world.now), lambda: world.now)
        self.arrivals = arrivals.Arrivals(
            self, lambda: [node for node, owner in world.owners.items()
                           if owner == host],
            self.keeper.may_come, lambda: world.now)
        self.look()

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
        self.looks.eligible = frozenset(world.fenced - {self.host})
        members = [host for host in HOSTS if host not in world.fenced
                   and (world.up[host] or host == self.host)]
        self.audits.preferences = ring.Preferences(
            dict.fromkeys(members or [self.host]), 32)

    def kill(self):
        for box in self.boxes:
            if not box.closed:
                box.close()

    def deliver(self):
        """Take what waits in nova's queue, all at once."""
        waiting = self.world.queues[self.host]
        while waiting:
            letter = waiting.pop(0)
            self.arrivals.begin(letter.instance)
            self.keeper.keep(
                letter.instance, letter.node, {'letter': letter})
            self.builds.append((letter, self.build(letter)))

    def step(self, index):
        """Go on with one of the builds that are here, for one step."""
        if not self.builds:
            return
        index %= len(self.builds)
        letter, work = self.builds[index]
        # nova holds a lock of the instance.
        if any(one.instance == letter.instance
               for one, _ in self.builds[:index]):
            return
        try:
            next(work)
        except StopIteration as end:
            del self.builds[index]
            self.keeper.end(letter.instance, letter.node, bool(end.value))
            self.arrivals.end(letter.instance)

    def build(self, letter):
        """Do what nova does for a build; stops between its steps.

        :returns: whether the gate has refused or ended it.
        """
        world, uuid, node = self.world, letter.instance, letter.node
        # It waits for its turn.
        yield
        state = world.placed[uuid]
        if state.deleted or admission.outdated(
                state, node, self.host,
                lambda: world.node_of[uuid] == node):
            return not state.deleted
        world.attempts[uuid] += 1
        yield
        if world.placed[uuid].deleted:
            world.node_of[uuid] = None
            return False
        if world.owners[node] in world.fenced - {self.host}:
            world.owners[node] = self.host
            if world.placed[uuid].host in world.fenced - {self.host}:
                # That has read its own queue meanwhile.
                world.set(uuid, host=self.host)
        if world.placed[uuid].host == self.host:
            # nova's first write meets the mark of a take-over, and the gate
            # leaves the allocation to whoever brings it to rest.
            return True
        if world.owners[node] != self.host:
            self.reschedule(uuid)
            return False
        world.set(uuid, host=self.host, node=node)
        yield
        machine = world.machines[node]
        if not self.mine(uuid) or machine.instance not in (None, uuid):
            return True
        machine.instance = uuid
        yield
        if not self.mine(uuid):
            return True
        world.deploy(uuid, node)
        while machine.state == 'deploying':
            yield
        if not self.mine(uuid) or machine.instance != uuid:
            return True
        world.set(uuid, vm_state='active')
        world.attempts[uuid] -= 1
        return False

    def mine(self, uuid):
        """The gate lets nothing be done to an instance that has moved."""
        state = self.world.placed[uuid]
        return not state.deleted and state.host == self.host

    def reschedule(self, uuid):
        world = self.world
        world.attempts[uuid] -= 1
        world.node_of[uuid] = None
        world.allocate(uuid)

    def rest(self):
        """Bring to rest what is on this host and nobody here is at."""
        world = self.world
        for uuid, state in sorted(world.placed.items()):
            if (state.host != self.host or state.vm_state != 'building'
                    or state.deleted or self.arrivals.here(uuid)):
                continue
            machine = world.machines[state.node]
            its = machine.state if machine.instance == uuid else None
            if its == 'active':
                world.set(uuid, vm_state='active')
            elif its != 'deploying':
                instance = types.SimpleNamespace(uuid=uuid, node=state.node)
                step = self.repetition.step(instance, its)
                if step is takeover.Step.REPEAT:
                    with contextlib.suppress(LookupError):
                        self.repetition.undo(instance)
                elif step is takeover.Step.FAIL:
                    if world.attempts[uuid] < copies.ATTEMPTS:
                        raise Broken(f'{uuid} ends in ERROR')
                    world.set(uuid, vm_state='error')

    def adopt(self):
        """Take over what a dead host has, as an audit does."""
        world = self.world
        for uuid, state in world.placed.items():
            if (state.host in self.looks.eligible and not state.deleted
                    and self.prefers(state.node)):
                world.set(uuid, host=self.host)
                world.owners[state.node] = self.host
        awaited = set(world.node_of.values())
        for node, owner in world.owners.items():
            if (owner in self.looks.eligible and node not in awaited
                    and self.prefers(node)):
                world.owners[node] = self.host

    def prefers(self, node):
        return self.audits.preferences.host_for(node) == self.host

    def turn(self):
        """What its timers do."""
        for act in (self.look, self.adopt, self.keeper.once,
                    self.arrivals.once, self.postman.once, self.rest):
            act()


class Builds(stateful.RuleBasedStateMachine):
    """Builds are asked for, and compute services die."""

    which = strategies.integers(0, 5)
    deaths = strategies.none() | strategies.integers(0, 12)

    @stateful.initialize()
    def begin(self):
        self.world = World()
        self.world.owners = {
            node: HOSTS[index % 3] for index, node in enumerate(NODES)}
        self.processes = {
            host: Process(self.world, host) for host in HOSTS}

    @contextlib.contextmanager
    def may_die(self, host, countdown):
        """Kill a process while it does something, if it comes to that."""
        self.world.countdown = countdown
        try:
            yield
        except Killed:
            self.die(host)
        finally:
            self.world.countdown = None

    def die(self, host):
        process = self.processes.pop(host, None)
        if process is not None:
            process.kill()
            self.world.up[host] = False

    @stateful.rule(index=which)
    def ask(self, index):
        """A user asks for a server."""
        world = self.world
        uuid = f'i{len(world.placed)}'
        world.placed[uuid] = InstanceState(
            None, vm_state='building', task_state='scheduling')
        if not world.allocate(uuid):
            del world.placed[uuid]

    @stateful.rule(index=which)
    def deliver(self, index):
        host = HOSTS[index % 3]
        if host in self.processes:
            self.processes[host].deliver()

    @stateful.rule(index=which, build=which, steps=strategies.integers(1, 6))
    def work(self, index, build, steps):
        host = HOSTS[index % 3]
        for _ in range(steps):
            if host in self.processes:
                self.processes[host].step(build)

    @stateful.rule(index=which)
    def deployed(self, index):
        """Ironic has deployed a machine, or all of them."""
        for node in NODES[index:]:
            if self.world.machines[node].state == 'deploying':
                self.world.machines[node].state = 'active'

    @stateful.rule(index=which)
    def kill(self, index):
        self.die(HOSTS[index % 3])

    @stateful.rule(steps=strategies.integers(0, 5), kept=strategies.booleans(),
                   fenced=strategies.booleans(), countdown=deaths)
    def die_over_a_build(self, steps, kept, fenced, countdown):
        """A build comes so far, and its compute service dies."""
        before = set(self.world.placed)
        self.ask(0)
        for uuid in set(self.world.placed) - before:
            host = self.world.owners[self.world.node_of[uuid]]
            index = HOSTS.index(host)
            self.deliver(index)
            process = self.processes.get(host)
            for _ in range(steps):
                if process is not None:
                    process.step(len(process.builds) - 1)
            if kept:
                self.turn(index, countdown)
            self.die(host)
            if fenced:
                self.fence(index)
                for other in range(len(HOSTS)):
                    self.turn(other, None)

    @stateful.rule(other=which, first=strategies.integers(0, 4),
                   second=strategies.integers(0, 4))
    def come_back_to_a_build(self, other, first, second):
        """Two are at a build: where it was sent, fenced, and who reads there.

        :param other: who had taken it from there when its host came back.
        :param first: steps until its host takes it up as well.
        :param second: steps that its host does.
        """
        before = set(self.world.placed)
        self.ask(0)
        for uuid in set(self.world.placed) - before:
            host = self.world.owners[self.world.node_of[uuid]]
            reader = self.processes.get(HOSTS[other % 3])
            self.die(host)
            self.fence(HOSTS.index(host))
            if HOSTS[other % 3] in (host, *self.world.fenced) or not reader:
                continue
            self.world.queues[reader.host].extend(self.world.queues[host])
            reader.deliver()
            for _ in range(first):
                reader.step(len(reader.builds) - 1)
            self.start(HOSTS.index(host) + len(HOSTS))
            process = self.processes[host]
            process.deliver()
            for _ in range(second):
                process.step(len(process.builds) - 1)

    @stateful.rule(index=which)
    def start(self, index):
        """Start one that was killed; a fence may still be up."""
        host = HOSTS[index % 3]
        if host not in self.processes:
            self.world.up[host] = True
            self.processes[host] = Process(self.world, host)
            if index < 3:
                self.unfence(index)

    @stateful.rule(index=which)
    def unfence(self, index):
        host = HOSTS[index % 3]
        if host in self.processes:
            self.world.fenced.discard(host)

    @stateful.rule(index=which)
    def fence(self, index):
        """Declare one dead that is."""
        host = HOSTS[index % 3]
        if host not in self.processes and len(self.world.fenced) < 2:
            self.world.fenced.add(host)

    @stateful.rule(index=which)
    def repeat(self, index):
        """RabbitMQ delivers a message twice."""
        queue = self.world.queues[
            HOSTS[index % 3] + (' copies' if index > 2 else '')]
        queue.extend(queue[:1])

    @stateful.rule(index=which)
    def delete(self, index):
        """A user deletes a server that is on no host, or runs."""
        for uuid, state in list(self.world.placed.items())[index:index + 1]:
            if state.deleted or state.host and state.vm_state != 'active':
                continue
            self.world.set(uuid, deleted=True)
            self.world.node_of[uuid] = None
            for machine in self.world.machines.values():
                if machine.instance == uuid:
                    machine.instance, machine.state = None, 'available'

    @stateful.rule(index=which, countdown=deaths)
    def turn(self, index, countdown):
        """The timers of a compute service."""
        host = HOSTS[index % 3]
        if host in self.processes:
            with self.may_die(host, countdown):
                self.processes[host].turn()
        self.world.now += TURN / 3

    def teardown(self):
        if not hasattr(self, 'world'):
            return
        for index, host in enumerate(HOSTS):
            if host not in self.world.fenced or not self.processes:
                self.start(index)
            self.unfence(index)
        for _ in range(ROUNDS):
            for index in range(len(NODES)):
                self.deployed(index)
            for process in self.processes.values():
                process.deliver()
                for build in range(8):
                    for _ in range(8):
                        process.step(build)
                process.turn()
            self.world.now += TURN
        self.judge()

    def judge(self):
        world = self.world
        for uuid, state in world.placed.items():
            held = [node for node, machine in world.machines.items()
                    if machine.instance == uuid]
            if state.deleted:
                if held:
                    raise Broken(f'{uuid} is deleted and has {held}')
            elif (state.vm_state, held) != ('active', [state.node]) and (
                    world.attempts[uuid] < copies.ATTEMPTS):
                raise Broken(f'{uuid} is {state}, with {held}')
        left = {name: letters for name, letters in world.queues.items()
                if letters and name[0] not in world.fenced}
        if left or world.held:
            raise Broken(f'{left} and {world.held} held are left')


class BuildsTest(unittest.TestCase):

    def test_no_build_is_lost_and_none_is_done_twice(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        stateful.run_state_machine_as_test(
            hypothesis.seed(test_simulation.SEED)(Builds),
            settings=hypothesis.settings(
                max_examples=EXAMPLES[test_simulation.PROFILE],
                stateful_step_count=50, deadline=None, database=None,
                print_blob=False,
                suppress_health_check=list(hypothesis.HealthCheck)))
