# SPDX-License-Identifier: Apache-2.0

"""Builds that are found nowhere end in ERROR."""

from unittest import mock

import fixtures

from nova_ironic_multihost.engine.builds import lost_builds
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post

NODE, OTHER = cloud.NODES[:2]
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
        self.cloud.allocations[OTHER] = frozenset({'i2'})
        self.cloud.placed['i2'] = post.WAITING

        def fail_once():
            self.nova.between = lambda: None
            raise OSError

        self.nova.between = fail_once
        self.wait()
        self.assertEqual(1, len(self.nova.faults))
        self.turn()
        self.assertEqual(2, len(self.nova.faults))
