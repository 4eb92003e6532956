# SPDX-License-Identifier: Apache-2.0

import contextlib
import logging
import types
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.takeover import Step
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post

ME, OTHER = 'me', 'other'
BUILD = SentBuild('i1', 'n1')


class ArrivalsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.now = 0
        #: Node -> its owner, as nova has it, and for all that this host knows;
        #: None before its first audit.
        self.owners = {'n1': ME}
        self.audited = {'n1': ME}
        self.records_asked = []
        self.cloud = self
        # What nova has, what waits in the queue, what was given up.
        self.builds = {BUILD}
        self.queue = []
        self.ended = []
        self.asked = 0
        self.error = None
        # Of which builds there is a copy.
        self.copies = set()
        self.arrivals = self.start()

    def start(self):
        return lost_builds.InFlightBuilds(
            self, self, lambda build: build in self.copies, lambda: self.now)

    # the auditor and its sources

    @property
    def last(self):
        return self.audited and types.SimpleNamespace(
            view=types.SimpleNamespace(host=ME))

    @property
    def recorded(self):
        return self.audited and frozenset(
            node for node, owner in self.audited.items() if owner == ME)

    def records(self, nodes):
        self.records_asked.append(set(nodes))
        return [Record(node, owner) for node, owner in self.owners.items()
                if node in nodes]

    # the port

    def unclaimed(self):
        return frozenset(self.builds)

    def receive(self):
        self.asked += 1
        if self.error:
            raise self.error
        while self.queue:
            build = self.queue.pop()
            self.arrivals.begin(build.instance)

    def give_up(self, build, reason, absent):
        if not absent():
            return False
        self.ended.append(build)
        self.reason = reason
        self.builds.discard(build)
        return True

    def look(self, seconds=builds.LOST_AFTER):
        self.arrivals.once()
        self.now += seconds

    # the tests

    def test_build_that_may_be_asked_for_again_is_not_lost(self):
        self.copies = {BUILD}
        for self.now in 0, 10000:
            self.arrivals.once()
        self.assertEqual([], self.ended)
        self.copies = set()
        for self.now in 20000, 20000 + builds.LOST_AFTER:
            self.arrivals.once()
        self.assertEqual([BUILD], self.ended)

    def test_build_that_was_lost_ends(self):
        self.look()
        self.assertEqual([], self.ended)
        self.look()
        self.assertEqual([BUILD], self.ended)
        self.assertIn('lost on the way', self.reason)
        self.assertIn('1 builds never came', self.log.output)
        self.assertIn('Delete them', self.log.output)

    def test_build_that_waits_in_the_queue_is_left_alone(self):
        self.queue = [BUILD]
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)
        # It is known to have come; nobody asks for it again.
        self.assertEqual(1, self.asked)

    def test_build_that_came_and_was_given_up_ends(self):
        """nova or placement did not answer, or there was no thread."""
        self.arrivals.begin('i1')
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)
        self.arrivals.end('i1')
        self.look()
        self.assertEqual([], self.ended)
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_build_that_has_lost_its_host_and_is_cleaned_up(self):
        self.arrivals.begin('i1')
        self.look()
        self.builds = set()
        self.look()
        self.builds = {BUILD}
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)

    def test_build_that_came_twice_is_here_until_both_have_ended(self):
        self.arrivals.begin('i1')
        self.arrivals.begin('i1')
        self.arrivals.end('i1')
        self.assertTrue(self.arrivals.here('i1'))
        self.arrivals.end('i1')
        self.assertFalse(self.arrivals.here('i1'))

    def test_build_of_a_node_of_another_host(self):
        self.audited = {'n1': OTHER}
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)
        self.assertEqual(0, self.asked)

    def test_build_of_a_node_that_another_has_taken_since_the_audit(self):
        """It waits there."""
        self.owners = {'n1': OTHER}
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)
        self.owners = {'n1': ME}
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_nova_is_asked_for_no_record_while_nothing_is_lost(self):
        self.queue = [BUILD]
        for _ in range(5):
            self.look()
        self.builds = set()
        for _ in range(5):
            self.look()
        self.assertEqual([], self.records_asked)
        self.builds = {BUILD}
        self.arrivals.end('i1')
        for _ in range(5):
            self.look()
        self.assertEqual([{'n1'}], self.records_asked)

    def test_nothing_before_the_first_audit(self):
        """Nor does a node count as new then."""
        self.audited = None
        for _ in range(5):
            self.look()
        self.assertEqual(0, self.asked)
        self.audited = {'n1': ME}
        self.look()
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_time_without_an_answer_does_not_count(self):
        self.look()
        self.error = TimeoutError()
        for _ in range(5):
            self.assertRaises(TimeoutError, self.look)
            self.now += builds.LOST_AFTER
        self.error = None
        self.look()
        self.assertEqual([], self.ended)
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_build_that_comes_while_it_is_given_up(self):
        self.look()
        give_up = self.give_up

        def come(*args):
            self.arrivals.begin('i1')
            return give_up(*args)

        self.give_up = come
        self.look()
        self.assertEqual([], self.ended)
        self.assertEqual('', self.log.output)

    def test_node_that_has_just_come_may_have_a_build_elsewhere(self):
        self.audited = {'n1': OTHER}
        self.look(1)
        self.audited = {'n1': ME}
        for _ in range(5):
            self.look()
        self.assertEqual([], self.ended)
        self.look(builds.LOST_AFTER_MOVED)
        self.look()
        self.assertEqual([BUILD], self.ended)

    def test_one_that_cannot_be_ended_holds_up_no_other(self):
        self.builds.add(other := SentBuild('i2', 'n1'))
        give_up = self.give_up

        def fail_once(*args):
            self.give_up = give_up
            raise TimeoutError

        self.give_up = fail_once
        self.look()
        self.look()
        self.assertEqual([other], self.ended)
        self.look()
        self.assertEqual([other, BUILD], self.ended)


COPY = QueuedRequest(RequestKind.BUILD, 'i1', 'n1')


class RepetitionTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        # The store and the port.
        self.readable = self.all_seen = self.can_be_undone = True
        self.found = COPY
        self.begun = 1
        self.undone, self.forgotten = [], []
        self.now = 0
        self.here = set()
        self.retry = lost_builds.BuildRetry(
            self, self, self.here.__contains__, lambda: self.now)
        self.instance = types.SimpleNamespace(uuid='i1', node='n1')

    def copy(self, build):
        return self.found if build == SentBuild('i1', 'n1') else None

    @contextlib.contextmanager
    def repeating(self, build):
        self.undone.append(('repeat', build))
        yield
        self.undone.append('done')

    def undo(self, instance, copy):
        self.undone.append(copy)

    def count(self, instance):
        return self.begun if instance == 'i1' else 0

    def forget(self, instances):
        self.forgotten.append(instances)

    def repeatable(self, instance):
        return self.can_be_undone

    def step(self, provision_state='available'):
        return self.retry.step(self.instance, provision_state)

    def test_it_is_begun_again_at_the_second_look(self):
        self.assertIs(Step.AWAIT, self.step())
        self.now = 10
        self.assertIs(Step.REPEAT, self.step())
        self.retry.undo(self.instance)
        self.assertEqual([('repeat', SentBuild('i1', 'n1')), COPY, 'done'],
                         self.undone)
        # And the next time once more.
        self.assertIs(Step.AWAIT, self.step())

    def test_one_that_waits_here_for_its_turn_is_waited_for(self):
        """It is refused then, and must not be in the middle of the undoing."""
        self.here.add('i1')
        for state in ('available', 'deploying'):
            for self.now in (0, 10, 10000):
                self.assertIs(Step.AWAIT, self.step(state))
        self.here.clear()
        self.assertIs(Step.AWAIT, self.step())
        self.now += 10
        self.assertIs(Step.REPEAT, self.step())

    def test_without_a_copy_it_fails_in_the_end(self):
        self.found = None
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def wait(self):
        """Look every few seconds, for as long as a copy may take."""
        for _ in range(forwarding.BACKUP_WAIT // 10):
            self.assertIs(Step.AWAIT, self.step())
            self.now += 10

    def test_time_in_which_nobody_looks_does_not_count(self):
        """Nothing answers in an outage, and no copy comes."""
        self.found = None
        for seconds in (
                0, forwarding.LONG_BACKUP_WAIT, forwarding.BACKUP_WAIT):
            self.now += seconds
            self.assertIs(Step.AWAIT, self.step())

    def test_it_is_begun_again_by_workers_that_come_seldom(self):
        self.assertIs(Step.AWAIT, self.step())
        self.now = 10 * lost_builds.GAP
        self.assertIs(Step.REPEAT, self.step())

    def test_without_a_copy_it_fails_however_seldom_it_is_seen(self):
        self.found = None
        steps = []
        for _ in range(forwarding.BACKUP_WAIT // lost_builds.GAP + 1):
            steps.append(self.step())
            self.now += 10 * lost_builds.GAP
        self.assertEqual([Step.FAIL], list({*steps} - {Step.AWAIT}))
        self.assertIs(Step.FAIL, steps[-1])

    def test_one_that_another_host_had_waits_anew(self):
        self.step()
        self.now = lost_builds.GAP
        self.retry.wait_anew({'i2'})
        self.assertIs(Step.REPEAT, self.step())
        self.retry.wait_anew({'i1'})
        self.assertIs(Step.AWAIT, self.step())
        self.assertEqual([{'i2'}, {'i1'}], self.forgotten)

    def test_copy_of_another_attempt_is_none(self):
        self.instance.node = 'n2'
        self.wait()
        self.assertIs(Step.FAIL, self.step())

    def test_what_cannot_be_undone_fails(self):
        self.can_be_undone = False
        self.step()
        self.now = 10
        self.assertIs(Step.FAIL, self.step())

    def test_where_there_are_no_copies_nobody_waits(self):
        self.readable = False
        self.assertIs(Step.FAIL, self.step())

    def test_copy_that_goes_back_in_that_moment(self):
        self.found = None
        self.assertRaises(LookupError, self.retry.undo, self.instance)


NODE, OTHER_NODE = cloud.NODES[:2]
GRACE = forwarding.GRACE


class Builds:
    """What nova has of builds; ``between`` happens before each write."""

    def __init__(self, some_cloud):
        self.cloud = some_cloud
        self.faults = {}
        self.between = lambda: None

    def unclaimed(self):
        return {SentBuild(uuid, node)
                for node, builds in self.cloud.allocations.items()
                for uuid in builds if self._waits(uuid)}

    def _waits(self, uuid):
        state = self.cloud.placed[uuid]
        return (state.host, state.vm_state) == (None, 'building')

    def give_up(self, build, reason, absent):
        self.between()
        if not absent() or not self._waits(build.instance):
            return False
        self.faults[build.instance] = reason
        self.cloud.placed[build.instance] = InstanceState(
            None, vm_state='error')
        return True


class LostTestCase(post.PostTestCase):

    def setUp(self):
        super().setUp()
        self.nova = Builds(self.cloud)
        for host in 'bc':
            self.posts[host]._lost = self.lost()
        self.cloud.allocations[NODE] = frozenset({'i1'})
        self.cloud.placed['i1'] = post.WAITING
        self.fence()

    def lost(self):
        return lost_builds.DeadHostBuilds(
            self.nova, self.cloud, self.clock)

    def wait(self, seconds=GRACE):
        """Let time pass, in which queues are read."""
        self.turn()
        self.clock.now += seconds
        self.turn()

    @property
    def ended(self):
        state = self.cloud.placed['i1'].vm_state == 'error'
        self.assertEqual(state, 'i1' in self.nova.faults)
        return state

    def test_build_that_is_nowhere_ends_after_a_while(self):
        self.wait(GRACE - 1)
        self.assertFalse(self.ended)
        self.clock.now += 1
        self.turn()
        self.assertTrue(self.ended)
        self.assertIn('Compute service a', self.nova.faults['i1'])

    def test_request_that_comes_while_an_answer_takes_minutes(self):
        """It comes to a queue that was read just before."""
        self.turn(self.reader)
        self.clock.now += 10
        take, late = post.Box.take, []

        def wait(box):
            if box.host == 'a copies' and not late:
                late.append(box)
                self.bus.queues['a'].append(QueuedRequest(
                    RequestKind.BUILD, 'i1', NODE))
                self.clock.now += GRACE
            return take(box)

        self.patch(post.Box, 'take', wait)
        self.turn(self.reader)
        self.assertFalse(self.ended)
        self.clock.now += 10
        self.turn(self.reader)
        self.assertFalse(self.ended)
        self.assertEqual(['i1'], [
            build for host in 'abc' for build in self.builds(host)])

    def test_whoever_reads_counts_anew(self):
        self.wait(GRACE - 1)
        self.begin(self.reader)
        self.posts[self.reader]._lost = self.lost()
        self.wait(GRACE - 1)
        self.assertFalse(self.ended)
        self.clock.now += 1
        self.turn()
        self.assertTrue(self.ended)

    def test_time_in_which_nobody_answers_is_not_counted(self):
        self.turn()
        self.clock.now += GRACE - 10
        with mock.patch.object(
                self.nova, 'unclaimed', side_effect=OSError):
            self.assertRaises(OSError, self.turn, self.reader)
        self.wait(GRACE - 1)
        self.assertFalse(self.ended)

    def test_time_in_which_nova_does_not_answer_about_a_request(self):
        """The queues after that of this request are not read."""
        self.bus.queues['a'].append(QueuedRequest(RequestKind.BUILD, 'i2'))
        self.cloud.placed['i2'] = post.WAITING
        self.turn()
        self.clock.now += GRACE - 10
        reader = self.posts[self.reader]
        with mock.patch.object(
                reader._requests, 'situation', side_effect=OSError):
            self.assertRaises(
                queue_forwarder.QueueNoAnswer, self.turn, self.reader)
        self.assertEqual(
            {None}, {one.ended for one in reader._readings.values()})
        self.wait(GRACE - 1)
        self.assertFalse(self.ended)

    def test_time_in_which_the_mailbox_is_not_read_is_not_counted(self):
        self.turn()
        self.clock.now += GRACE - 10
        self.bus.breaks = OSError()
        self.assertRaises(OSError, self.turn, self.reader)
        self.bus.breaks = None
        self.wait(GRACE - 1)
        self.assertFalse(self.ended)

    def test_host_without_a_mailbox(self):
        self.bus.missing = {'a'}
        self.wait()
        self.assertTrue(self.ended)

    def test_mailbox_that_cannot_be_read(self):
        self.bus.readable = False
        self.wait()
        self.assertFalse(self.ended)

    def test_account_that_may_not_read(self):
        """What waits there is for its host alone, and that is dead."""
        logged = self.useFixture(fixtures.FakeLogger())
        for box in 'a', 'a copies':
            with self.subTest(box):
                self.bus.forbids = {box}
                self.cloud.placed['i1'] = post.WAITING
                self.nova.faults.clear()
                self.wait()
                self.assertTrue(self.ended)
        self.assertEqual(1, logged.output.count('rights'))

    def test_build_that_is_held_is_somewhere(self):
        self.bus.queues['a'] = [QueuedRequest(RequestKind.BUILD, 'i1', None)]
        self.wait()
        self.assertFalse(self.ended)

    def test_build_that_waits_on_a_live_host_is_somewhere(self):
        self.send(NODE, 'i1')
        self.wait()
        self.assertFalse(self.ended)
        receiver = next(host for host in 'bc' if self.bus.queues[host])
        # It had taken it, and has died in turn.
        self.bus.queues[receiver].clear()
        self.cloud.set(receiver, up=False, forced_down=True)
        self.look('b', 'c')
        self.turn()
        # It may be there.
        self.assertFalse(self.ended)
        for _ in range(3):
            self.wait()
        self.assertTrue(self.ended)

    def test_build_on_the_node_of_a_live_host_is_its_own(self):
        self.cloud.owners[NODE] = 'b'
        self.wait()
        self.assertFalse(self.ended)

    def test_build_that_has_a_host_is_not_lost(self):
        self.turn()
        self.cloud.placed['i1'] = InstanceState(
            'b', node=NODE, vm_state='building', task_state='networking')
        self.wait()
        self.assertEqual({}, self.nova.faults)

    def test_build_whose_node_is_taken_in_this_moment_goes_on(self):
        """By whoever its message was handed on to."""
        self.turn()

        def take():
            self.cloud.owners[NODE] = 'b'

        self.nova.between = take
        self.clock.now += GRACE
        self.turn()
        self.assertFalse(self.ended)

    def test_its_node_is_adopted(self):
        self.wait()
        self.assertTrue(self.ended)
        for host in 'bc':
            self.audit(host)
        self.assertIn(self.cloud.owners[NODE], {'b', 'c'})

    def test_one_that_fails_holds_up_no_other(self):
        self.cloud.allocations[OTHER_NODE] = frozenset({'i2'})
        self.cloud.placed['i2'] = post.WAITING

        def fail_once():
            self.nova.between = lambda: None
            raise OSError

        self.nova.between = fail_once
        self.wait()
        self.assertEqual(1, len(self.nova.faults))
        self.turn()
        self.assertEqual(2, len(self.nova.faults))
