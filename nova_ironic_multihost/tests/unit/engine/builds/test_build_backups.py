# SPDX-License-Identifier: Apache-2.0

"""Copies are held while somebody is at their builds, and no longer."""

import dataclasses
import logging

import fixtures

from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post

NODE, OTHER = cloud.NODES[:2]
BUILD = QueuedRequest(RequestKind.BUILD, 'i1', NODE)
FIRST = SentBuild('i1', NODE)
COPIES = 'b copies'


class KeeperTestCase(post.PostTestCase):
    """b has the nodes, and keeps copies."""

    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.cloud.placed['i1'] = post.WAITING
        self.refused = None
        self.backups = self.start()
        self.backups.once()

    def start(self):
        self.here = set()
        return build_backups.BackupStore(
            'b',
            self.bus,
            self,
            self.request_sorter('b'),
            self.here.__contains__,
            self.clock,
        )

    def copy(self, arguments):
        if self.refused:
            raise self.refused
        if COPIES not in self.bus.missing:
            self.bus.queues[COPIES].append(arguments['letter'])

    def arrive(self, request=BUILD):
        self.here.add(request.instance)
        self.backups.keep(request.instance, request.node, {'letter': request})

    def finish(self, request=BUILD):
        self.backups.end(request.instance, request.node)
        self.here.discard(request.instance)

    def die(self):
        """The process is killed and started again."""
        if self.backups._queue is not None:
            self.backups._queue.close()
        self.backups = self.start()

    @property
    def copies(self):
        return self.bus.queues[COPIES]

    def test_it_is_held_while_somebody_is_at_its_build(self):
        self.arrive()
        self.assertEqual([BUILD], self.copies)
        for _ in range(3):
            self.backups.once()
            self.assertEqual([], self.copies)
            self.assertEqual([], self.bus.queues['b'])
            self.assertEqual(BUILD, self.backups.copy(FIRST))
        self.assertIsNone(self.backups.copy(SentBuild('i1', OTHER)))
        self.assertEqual(1, self.bus.held)

    def test_it_goes_when_its_build_is_over_whatever_nova_says(self):
        """nova may have left it as it was when it came."""
        self.arrive()
        self.backups.once()
        self.finish()
        self.backups.once()
        self.assertEqual(([], [], 0), (
            self.copies, self.bus.queues['b'], self.bus.held))

    def test_it_goes_when_its_build_was_over_before_it_was_seen(self):
        self.arrive()
        self.finish()
        self.backups.once()
        self.assertEqual(([], [], 0), (
            self.copies, self.bus.queues['b'], self.bus.held))

    def test_copy_of_a_build_that_came_back_is_held(self):
        """It has ended here, and another host that took it over has died."""
        self.arrive()
        self.finish()
        self.cloud.placed['i1'] = InstanceState(
            'B', vm_state='building', node=NODE)
        for _ in range(3):
            self.backups.once()
            self.assertEqual(BUILD, self.backups.copy(FIRST))
        self.cloud.placed['i1'] = InstanceState(
            'b', vm_state='active', node=NODE)
        self.backups.once()
        self.assertIsNone(self.backups.copy(FIRST))

    def test_copy_of_a_build_that_came_back_and_went_again(self):
        self.arrive()
        self.finish()
        self.cloud.placed['i1'] = InstanceState(
            'c', vm_state='building', node=NODE)
        self.backups.once()
        self.assertEqual([BUILD], self.bus.queues['c copies'])

    def test_build_that_ends_between_two_copies_of_it(self):
        """RabbitMQ closes a channel that acknowledges a message twice."""
        first, second = (dataclasses.replace(BUILD, handle=object())
                         for _ in range(2))
        other = QueuedRequest(RequestKind.BUILD, 'i2', OTHER)
        self.cloud.placed['i2'] = InstanceState(
            'b', vm_state='building', node=OTHER)
        self.here.add('i1')
        self.copies.extend([first, other, second])
        situation, done = self.backups._requests.situation, []

        def end(copy):
            if copy is other:
                self.finish()
            return situation(copy)

        self.backups._requests.situation = end
        self.patch(post.Box, 'drop', lambda box, copy: done.append(
            copy.handle))
        self.backups.once()
        self.backups.once()
        self.assertEqual([second.handle, first.handle], done)

    def test_build_that_comes_again_is_not_over(self):
        self.arrive()
        self.finish()
        self.arrive()
        self.die()
        self.backups.once()
        self.assertIn(BUILD, self.bus.queues['b'])

    def test_build_that_was_in_the_memory_of_a_process_is_asked_for(self):
        self.arrive()
        self.backups.once()
        self.die()
        self.backups.once()
        self.assertEqual(([], [BUILD]), (self.copies, self.bus.queues['b']))
        self.assertIn('1 interrupted builds', self.log.output)
        self.backups.once()
        self.assertEqual([BUILD], self.bus.queues['b'])

    def test_thread_that_ends_without_a_word_leaves_its_build(self):
        self.arrive()
        self.backups.once()
        self.here.clear()
        self.backups.once()
        self.assertEqual([BUILD], self.bus.queues['b'])

    def test_what_is_over_as_nova_says_is_dropped(self):
        self.arrive()
        self.die()
        self.cloud.placed['i1'] = InstanceState('b', vm_state='active')
        self.backups.once()
        self.assertEqual(([], [], 0), (
            self.copies, self.bus.queues['b'], self.bus.held))

    def test_what_was_taken_over_goes_there_as_a_copy(self):
        self.arrive()
        self.die()
        self.cloud.placed['i1'] = InstanceState(
            'c', vm_state='building', node=NODE)
        self.bus.missing.add('c copies')
        self.backups.once()
        self.assertEqual(1, self.bus.held)
        self.bus.missing.clear()
        self.backups.once()
        self.assertEqual(([BUILD], []), (
            self.bus.queues['c copies'], self.bus.queues['c']))
        self.assertIn('1 interrupted builds', self.log.output)

    def test_while_nova_does_not_answer_it_is_held(self):
        self.arrive()
        self.die()
        states = self.cloud.instance_states
        self.cloud.instance_states = self.fail_with(OSError('no nova'))
        self.assertRaises(OSError, self.backups.once)
        self.assertEqual(1, self.bus.held)
        self.cloud.instance_states = states
        self.backups.once()
        self.assertEqual([BUILD], self.bus.queues['b'])

    def test_who_does_not_answer_is_not_asked_for_each(self):
        for number in range(3):
            self.cloud.placed[f'i{number}'] = post.WAITING
            self.arrive(QueuedRequest(RequestKind.BUILD, f'i{number}', NODE))
        self.die()
        asked = []

        def answer(uuids):
            asked.extend(uuids)
            raise OSError('no nova')

        self.cloud.instance_states = answer
        for _ in range(3):
            self.assertRaises(OSError, self.backups.once)
        self.assertEqual(['i0', 'i1', 'i2'], asked)
        self.assertEqual(3, self.bus.held)

    @staticmethod
    def fail_with(error):
        def fail(*args):
            raise error

        return fail

    def test_what_breaks_in_the_middle_is_done_anew(self):
        second = QueuedRequest(RequestKind.BUILD, 'i2', OTHER)
        self.cloud.placed['i2'] = post.WAITING
        for request in BUILD, second:
            self.arrive(request)
        self.die()

        def break_it():
            if len(self.copies) == 1:
                raise OSError('no bus')

        self.bus.on_take = break_it
        self.assertRaises(OSError, self.backups.once)
        self.assertEqual([BUILD, second], self.copies)
        self.bus.on_take = lambda: None
        self.backups.once()
        self.assertEqual([BUILD, second], self.bus.queues['b'])

    def test_it_is_sent_anew_before_rabbit_closes_the_channel(self):
        """A quorum queue would count how often it comes back."""
        self.arrive()
        self.backups.once()
        box, sent = self.backups._queue, []
        hand_on = box.hand_on
        box.hand_on = lambda *args, **how: (
            sent.append(args), hand_on(*args, **how))[1]
        for _ in range(10):
            self.clock.now += forwarding.HOLDING / 5
            self.backups.once()
        self.assertEqual([(BUILD, 'b')] * 2, sent)
        self.assertFalse(box.closed)
        self.assertEqual(([], 1), (self.copies, self.bus.held))
        self.assertEqual(BUILD, self.backups.copy(FIRST))

    def test_it_goes_back_when_it_cannot_be_sent_anew(self):
        self.arrive()
        self.backups.once()
        box = self.backups._queue
        box.hand_on = lambda *args, **how: False
        self.clock.now += forwarding.HOLDING
        self.backups.once()
        self.assertTrue(box.closed)
        self.assertEqual(1, self.bus.held)
        self.assertEqual(BUILD, self.backups.copy(FIRST))

    def test_what_was_taken_over_in_the_middle_goes_there(self):
        """The guard ends what goes on here then."""
        self.arrive()
        self.backups.once()
        self.cloud.placed['i1'] = InstanceState(
            'c', vm_state='building', node=NODE)
        self.finish()
        self.backups.once()
        self.assertEqual([BUILD], self.bus.queues['c copies'])

    def test_what_the_gate_refuses_is_not_asked_for_again(self):
        self.arrive()
        self.finish()
        for _ in range(3):
            self.backups.once()
        self.assertEqual(([], [], 0), (
            self.copies, self.bus.queues['b'], self.bus.held))

    def test_what_may_be_what_ends_each_process_is_not_asked_for_again(self):
        self.arrive()
        self.die()
        self.begun['i1'] = forwarding.BUILD_ATTEMPTS
        self.backups.once()
        self.assertEqual(([], [], 0), (
            self.copies, self.bus.queues['b'], self.bus.held))

    def test_one_that_was_scheduled_again_has_two(self):
        again = QueuedRequest(RequestKind.BUILD, 'i1', OTHER)
        self.arrive()
        self.finish()
        self.arrive(again)
        self.backups.once()
        self.assertEqual(again, self.backups.copy(SentBuild('i1', OTHER)))
        self.finish(again)
        self.backups.once()
        self.assertEqual(([], 0), (self.copies, self.bus.held))

    def test_build_goes_on_without_a_copy(self):
        self.refused = OSError('xyzzy')
        self.arrive()
        self.assertIn('OSError', self.log.output)
        # The text may quote what was to be sent.
        self.assertNotIn('xyzzy', self.log.output)

    def test_connection_that_broke_is_made_anew_at_once(self):
        self.arrive()
        self.backups.once()
        before = self.backups._queue
        before.close()
        self.bus.missing.add(COPIES)
        self.backups.once()
        self.assertEqual((set(), 1), (self.bus.missing, self.bus.held))

    def test_what_is_counted_is_not_taken_again_at_once(self):
        """RabbitMQ drops it when it has come back too often."""
        counted = QueuedRequest(RequestKind.BUILD, 'i1', NODE, returns=2)
        self.cloud.placed['i1'] = InstanceState(
            'b', vm_state='building', node=NODE)
        self.copies.append(counted)
        self.backups.once()
        self.backups._queue.close()
        for _ in range(3):
            self.backups.once()
            self.assertEqual([counted], self.copies)
        self.clock.now += forwarding.pause([counted])
        self.backups.once()
        self.assertEqual(1, self.bus.held)

    def test_account_that_may_not(self):
        self.die()
        self.bus.breaks = PermissionError('ACCESS_REFUSED')
        for _ in range(3):
            self.backups.once()
            self.clock.now += build_backups.FORBIDDEN
        self.assertEqual(1, self.log.output.count('rights'))
        # Nobody waits for copies that there cannot be.
        self.assertFalse(self.backups.readable)
        self.bus.breaks = None
        self.arrive()
        self.assertEqual([], self.copies)
        self.backups.once()
        self.arrive()
        self.assertEqual([BUILD], self.copies)

    def test_bus_that_cannot_be_read(self):
        self.bus.readable = False
        self.die()
        self.backups.once()
        self.arrive()
        self.assertEqual([], self.copies)
        self.assertFalse(self.backups.readable)

    def test_what_is_no_build_is_held(self):
        self.copies.append(QueuedRequest(RequestKind.OTHER))
        self.backups.once()
        self.assertEqual(1, self.bus.held)

    def test_what_is_over_is_forgotten_in_the_end(self):
        self.finish()
        self.clock.now += build_backups.OVER
        self.backups.once()
        self.assertEqual({}, self.backups._over)
