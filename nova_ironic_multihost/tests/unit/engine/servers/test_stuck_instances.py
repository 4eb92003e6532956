# SPDX-License-Identifier: Apache-2.0

import contextlib
import logging
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine.servers import test_recovery
from nova_ironic_multihost.tests.unit.rules.views import view


class KeepTestCase(test_recovery.InstancesTestCase):

    def test_what_another_did_not_take_after_all_goes_on(self):
        self.taking('powering-off', 'other', 'mine')
        mark = self.states()
        self.sweep_often(2 * recovery.FULL_SWEEP - 1, other=False)
        self.assertEqual(mark, self.states())
        # Also one that is down, or disabled, and lives.
        self.sweep_often(2, mine=False, other=False)
        self.assertEqual([], self.instances.done)
        self.assertEqual(('active', 'powering-off'), self.states())

    def test_what_no_task_state_shows_is_brought_to_rest(self):
        self.machine = None
        self.taking(None, 'other', 'mine')
        self.instances.rows['i1'].vm_state = 'building'
        self.sweep_often(2 * recovery.FULL_SWEEP + 1, other=False)
        self.assertEqual(('error', None), self.states())

    def test_what_one_that_is_gone_did_not_take_is_found_in_the_end(self):
        for uuid in 'i0', 'i2', 'i3':
            self.instances.have('active', None, uuid)
        self.taking('powering-off', 'gone', 'mine')
        # One at a time, again and again.
        for _ in range(3):
            self.taking('powering-off', 'gone', 'mine')
            self.sweep_often(recovery.FULL_SWEEP, other=True)
            self.assertTrue(takeover.is_mark(self.states()[1]))
            self.sweep_often(4 * recovery.FULL_SWEEP, other=True)
            self.assertEqual(('active', 'powering-off'), self.states())

    def test_their_host_is_spelled_as_it_is_now(self):
        for uuid in 'i1', 'i2':
            self.instances.have('active', None, uuid, host='MINE')
        self.instances.have('active', None, 'i3', host='other')
        self.sweep_often(2 * recovery.FULL_SWEEP, other=True)
        self.assertEqual(['Mine', 'Mine', 'other'], [
            row.host for row in self.instances.rows.values()])

    def test_one_to_be_evacuated_that_another_did_not_take(self):
        self.instances.asked = 'evacuate'
        self.taking('rebuilding', 'other', 'mine')
        self.sweep_often(2 * recovery.FULL_SWEEP + 1, other=False)
        self.assertEqual(('active', None), self.states())

    def test_one_that_is_fenced_keeps_nothing(self):
        self.taking('powering-off', 'other', 'mine')
        mark = self.states()
        self.sweep_often(5 * recovery.FULL_SWEEP, mine=None, other=True)
        self.assertEqual(mark, self.states())


class UnattendedTestCase(test_recovery.InstancesTestCase):

    def test_what_was_given_up_goes_on_at_the_second_answer(self):
        """Two sweeps are 20 s."""
        for task_state in 'powering-off', 'rebooting', 'rescuing':
            self.instances.have('active', task_state)
            self.unfinished = {'i1'}
            self.sweep_often(stuck_instances.UNATTENDED - 1)
            self.assertEqual(('active', task_state), self.states())
            self.sweep_often(1)
            self.assertEqual(('init', task_state), self.instances.done.pop())
            self.assertEqual(('active', None), self.states())
            self.sweep_often(1)
            self.assertEqual(set(), self.unfinished)

    def test_an_outage_may_last(self):
        self.instances.have('active', 'powering-off')
        self.unfinished = {'i1'}
        with mock.patch.object(self.instances, 'busy',
                               side_effect=OSError('no answer')):
            for _ in range(200):
                with contextlib.suppress(OSError):
                    self.recovery.sweep(self.view())
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual([('init', 'powering-off')], self.instances.done)

    def test_what_was_lost_in_an_outage_is_looked_for_after_it(self):
        """Nobody knows of a message that RabbitMQ has lost."""
        self.sweep_often(1)
        self.instances.have('active', 'deleting')
        # As the look says, which asks every few seconds.
        self.recovery.note_silence()
        with mock.patch.object(self.instances, 'busy',
                               side_effect=OSError('no answer')):
            self.assertRaises(OSError, self.recovery.sweep, self.view())
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual({}, self.instances.rows)

    def test_nova_is_asked_once_a_full_sweep_when_nothing_is_amiss(self):
        self.instances.have('active', None)
        self.sweep_often(recovery.FULL_SWEEP)
        with mock.patch.object(
                self.instances, 'busy', return_value={}) as busy:
            self.sweep_often(4 * recovery.FULL_SWEEP)
        self.assertEqual(4, busy.call_count)
        self.assertEqual(0, self.received)

    def test_what_may_wait_in_the_queue_is_left_there(self):
        """Also what may be done twice, and what is like one given up."""
        self.waiting = True
        for task_state in 'deleting', 'powering-off':
            self.instances.have('active', task_state)
            self.unfinished = {'i1'}
            self.sweep_often(5 * recovery.FULL_SWEEP)
            self.assertEqual(('active', task_state), self.states())
        self.waiting = False
        self.sweep_often(1)
        self.assertEqual([('init', 'powering-off')], self.instances.done)

    def test_what_may_not_have_been_sent_yet_is_left_alone(self):
        for task_state in 'powering-off', 'rebuilding', 'image_snapshot':
            self.instances.have('active', task_state)
            self.sweep_often(5 * recovery.FULL_SWEEP)
            self.assertEqual(('active', task_state), self.states())

    def test_rebuild_that_the_conductor_may_have_is_waited_for(self):
        self.machine = 'available'
        self.instances.have('active', 'rebuilding')
        self.recovery.start(mock.Mock(), self.instances.read('i1'))
        self.sweep_often(stuck_instances.ON_ITS_WAY - 1)
        self.assertEqual(('active', 'rebuilding'), self.states())
        self.sweep_often(1)
        self.assertEqual(('error', None), self.states())

    def test_build_whose_mark_was_taken_off_is_taken_up(self):
        """Its former host has written what it does, whatever is there."""
        self.machine = 'deploying'
        self.taken('building', 'networking')
        self.sweep_often(1)
        self.instances.rows['i1'].task_state = 'spawning'
        self.machine = 'active'
        self.sweep_often(recovery.FULL_SWEEP + stuck_instances.UNATTENDED)
        self.assertEqual([('deployed', 'spawning')], self.instances.done)

    def test_build_that_waits_for_its_turn_is_left_alone(self):
        """It was sent here again, for another node."""
        self.instances.have('building', 'spawning')
        self.arrived = {'i1'}
        self.sweep_often(5 * recovery.FULL_SWEEP)
        self.assertEqual(('building', 'spawning'), self.states())

    def test_build_that_has_hardly_begun_is_taken_up(self):
        self.instances.have('building', None)
        with mock.patch.object(stuck_instances.LOG, 'warning') as warning:
            self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual([('deployed', None)], self.instances.done)
        self.assertEqual('building', warning.call_args[0][1]['state'])

    def test_build_that_carries_its_mark_is_not_taken_up_again(self):
        self.machine = 'deploying'
        self.taken('building', 'spawning')
        mark = self.states()
        with mock.patch.object(stuck_instances.LOG, 'warning') as warning:
            self.sweep_often(5 * recovery.FULL_SWEEP)
        self.assertEqual(mark, self.states())
        warning.assert_not_called()

    def test_what_has_left_nothing_is_forgotten(self):
        self.unfinished = {'i1', 'i2'}
        self.instances.have('active', None)
        self.sweep_often(1)
        self.instances.have('active', 'rebuilding')
        self.sweep_often(5 * recovery.FULL_SWEEP)
        self.assertEqual(('active', 'rebuilding'), self.states())

    def test_process_that_stood_still_sees_what_waits_for_it_first(self):
        self.instances.have('active', 'deleting')
        self.sweep_often(1)
        self.waiting = True
        self.sweep_often(1)
        self.assertEqual(('active', 'deleting'), self.states())

        def carry_out():
            self.instances.rows.clear()

        self.recovery._stuck_instances._receive = carry_out
        self.sweep_often(stuck_instances.UNATTENDED)
        self.assertEqual([], self.instances.done)

    def test_nobody_works_on_what_an_operation_is_at(self):
        self.taken('active', 'rescuing')
        self.at_work = {'i1'}
        self.sweep_often(5 * recovery.FULL_SWEEP)
        self.assertEqual([], self.instances.done)
        self.at_work = set()
        self.sweep_often(1)
        self.assertEqual([('init', 'rescuing')], self.instances.done)

    def test_what_somebody_is_at_work_on_is_left_alone(self):
        self.instances.have('building', 'spawning')
        self.at_work, self.unfinished = {'i1'}, {'i1'}
        self.sweep_often(5 * recovery.FULL_SWEEP)
        self.assertEqual(('building', 'spawning'), self.states())
        # From then on it counts.
        self.at_work = set()
        self.sweep_often(stuck_instances.UNATTENDED - 1)
        self.assertEqual(('building', 'spawning'), self.states())
        self.sweep_often(1)
        self.assertEqual([('deployed', 'spawning')], self.instances.done)

    def test_whoever_begins_in_the_last_moment_is_left_alone(self):
        self.instances.have('active', 'deleting')
        self.sweep_often(stuck_instances.UNATTENDED - 1)
        read = self.instances.read

        def begin(uuid):
            self.at_work = {'i1'}
            return read(uuid)

        self.instances.read = begin
        self.sweep_often(1)
        self.assertEqual([], self.instances.done)

    def test_what_goes_on_is_left_alone(self):
        for task_state in ('rebooting', 'reboot_pending') * 4:
            self.unfinished = {'i1'}
            self.instances.have('active', task_state)
            self.sweep_often(stuck_instances.UNATTENDED - 1)
        self.assertEqual([], self.instances.done)

    def test_one_that_is_fenced_takes_nothing_up(self):
        self.instances.have('active', 'deleting')
        self.unfinished = {'i1'}
        self.sweep_often(5 * recovery.FULL_SWEEP, mine=None)
        self.assertEqual([], self.instances.done)


ME, OTHER = HostKey('me'), HostKey('other')


class RefusalsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.left = {}
        #: Those that were refused shortly before.
        self.settled = {}
        self.refused = []
        self.looks = 0
        self.answers = True
        self.preferences = ring.Preferences({ME: None}, 32)
        self.refusals = stuck_instances.EvacuationRefusals(
            'Me', self, lambda: self.preferences)
        self.log = self.useFixture(fixtures.FakeLogger(level=logging.INFO))

    # The evacuations.

    def found(self):
        self.looks += 1
        return {uuid: evacuation.Evacuated(
            record, frozenset({f'evacuation of {uuid}'}))
            for uuid, record in self.left.items()} | self.settled

    def refuse(self, uuid):
        self.refused.append(uuid)
        if not self.answers:
            raise OSError('no answer')
        return self.left.pop(uuid, None) is not None

    def sweep(self, looks=1, seen=None):
        for _ in range(looks):
            self.refusals.sweep(seen or view(['me', 'other'], ['dead']))

    def test_what_is_sent_here_is_refused_at_once(self):
        self.left['i1'] = Record('n', 'dead')
        self.refusals.refuse('i1')
        self.assertEqual(['i1'], self.refused)
        self.assertIn(evacuation.REFUSED, self.log.output)

    def test_what_was_refused_before_is_no_news(self):
        self.refusals.refuse('i1')
        self.assertEqual(['i1'], self.refused)
        self.assertEqual('', self.log.output)

    def test_what_fails_is_repeated(self):
        """Also if nothing but the machine is left to be freed."""
        for self.left, self.settled in (
                ({'i1': Record('n', 'dead')}, {}),
                ({}, {'i1': evacuation.Evacuated(
                    Record('n', 'dead'), frozenset())})):
            self.refused.clear()
            self.answers = False
            self.refusals.refuse('i1')
            self.assertIn('no answer', self.log.output)
            self.answers = True
            self.sweep(2)
            self.assertIn(self.refused, (['i1'] * 2, ['i1'] * 3))

    def test_what_nobody_refuses_is_refused_later(self):
        self.left['i1'] = Record('n', 'dead')
        self.sweep()
        self.assertEqual([], self.refused)
        self.sweep(3)
        self.assertEqual(['i1'], self.refused)

    def test_what_is_new_may_be_on_its_way(self):
        for number in range(5):
            self.left = {f'i{number}': Record('n', 'dead')}
            self.sweep()
        self.assertEqual([], self.refused)

    def test_what_was_refused_just_now_is_undone_again(self):
        """nova's conductor may come to it later."""
        self.settled['i1'] = evacuation.Evacuated(
            Record('n', 'dead'), frozenset())
        self.sweep(2)
        self.assertEqual(['i1'] * 2, self.refused)
        self.assertEqual('', self.log.output)

    def test_another_evacuation_is_not_the_one_that_was_seen(self):
        for number in range(5):
            self.settled = {'i1': evacuation.Evacuated(
                Record('n', 'dead'), frozenset({str(number)}))}
            self.sweep()
        self.assertEqual([], self.refused)
        # The older one of two is.
        self.settled['i1'] = evacuation.Evacuated(
            Record('n', 'dead'), frozenset({'4', '5'}))
        self.sweep()
        self.assertEqual(['i1'], self.refused)

    def test_one_that_fails_holds_up_no_other(self):
        self.answers = False
        self.left = {'i1': Record('n', 'dead'), 'i2': Record('n', 'dead')}
        self.sweep(2)
        self.sweep()
        self.assertEqual(['i1', 'i2'] * 2, self.refused)
        # Each is told of once, however long it lasts.
        self.assertEqual(2, self.log.output.count('could not be refused'))

    def test_what_is_left_to_others(self):
        self.left['i1'] = Record('n', 'other')
        self.sweep(3)
        self.preferences = ring.Preferences({OTHER: None}, 32)
        self.left['i2'] = Record('n', 'dead')
        self.sweep(3)
        self.assertEqual([], self.refused)
        # What is mine is not.
        self.left['i3'] = Record('n', 'me')
        self.sweep(2)
        self.assertEqual(['i3'], self.refused)

    def test_who_is_fenced_or_has_not_looked_does_nothing(self):
        self.left['i1'] = Record('n', 'dead')
        self.sweep()
        self.sweep(3, view(['other'], fenced=['me']))
        self.refusals.sweep(None)
        self.assertEqual(1, self.looks)
        self.sweep()
        self.assertEqual([], self.refused)
        self.sweep()
        self.assertEqual(['i1'], self.refused)

    def test_preferences_that_are_not_known_yet(self):
        self.preferences = None
        self.left['i1'] = Record('n', 'dead')
        self.sweep(3)
        self.assertEqual([], self.refused)
