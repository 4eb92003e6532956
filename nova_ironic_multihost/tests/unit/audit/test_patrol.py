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

import contextlib
from unittest import mock

from nova_ironic_multihost.audit import patrol
from nova_ironic_multihost.audit import recovery
from nova_ironic_multihost.core import takeover
from nova_ironic_multihost.tests.unit.audit import test_recovery


class KeepTestCase(test_recovery.InstancesTestCase):

    def test_what_another_did_not_take_after_all_goes_on(self):
        self.taking('powering-off', 'other', 'mine')
        mark = self.states()
        self.sweep_often(2 * recovery.PATROL - 1, other=False)
        self.assertEqual(mark, self.states())
        # Also one that is down, or disabled, and lives.
        self.sweep_often(2, mine=False, other=False)
        self.assertEqual([], self.instances.done)
        self.assertEqual(('active', 'powering-off'), self.states())

    def test_what_no_task_state_shows_is_brought_to_rest(self):
        self.machine = None
        self.taking(None, 'other', 'mine')
        self.instances.rows['i1'].vm_state = 'building'
        self.sweep_often(2 * recovery.PATROL + 1, other=False)
        self.assertEqual(('error', None), self.states())

    def test_what_one_that_is_gone_did_not_take_is_found_in_the_end(self):
        for uuid in 'i0', 'i2', 'i3':
            self.instances.have('active', None, uuid)
        self.taking('powering-off', 'gone', 'mine')
        # The first time all are looked at.
        self.sweep_often(2 * recovery.PATROL, other=True)
        self.assertEqual(('active', 'powering-off'), self.states())
        # Then one at a time, again and again.
        for patrols in 3, 8:
            self.taking('powering-off', 'gone', 'mine')
            self.sweep_often(recovery.PATROL, other=True)
            self.assertTrue(takeover.is_mark(self.states()[1]))
            self.sweep_often(patrols * recovery.PATROL, other=True)
            self.assertEqual(('active', 'powering-off'), self.states())

    def test_their_host_is_spelled_as_it_is_now(self):
        for uuid in 'i1', 'i2':
            self.instances.have('active', None, uuid, host='MINE')
        self.instances.have('active', None, 'i3', host='other')
        self.sweep_often(recovery.PATROL, other=True)
        self.assertEqual(['Mine', 'Mine', 'other'], [
            row.host for row in self.instances.rows.values()])

    def test_one_to_be_evacuated_that_another_did_not_take(self):
        self.instances.asked = 'evacuate'
        self.taking('rebuilding', 'other', 'mine')
        self.sweep_often(2 * recovery.PATROL + 1, other=False)
        self.assertEqual(('active', None), self.states())

    def test_one_that_is_fenced_keeps_nothing(self):
        self.taking('powering-off', 'other', 'mine')
        mark = self.states()
        self.sweep_often(5 * recovery.PATROL, mine=None, other=True)
        self.assertEqual(mark, self.states())


class UnattendedTestCase(test_recovery.InstancesTestCase):

    def patrol(self, seconds, **services):
        """Sweep for so long, a patrol every ten seconds."""
        for _ in range(seconds // 10):
            self.now += 10
            self.sweep_often(recovery.PATROL, **services)

    def test_what_nobody_is_at_work_on_is_taken_up(self):
        for task_state in 'powering-off', 'rebooting', 'rescuing':
            self.instances.have('active', task_state)
            self.unfinished = {'i1'}
            self.patrol(patrol.UNATTENDED)
            self.assertEqual(('active', task_state), self.states())
            self.patrol(20)
            self.assertEqual(('init', task_state), self.instances.done.pop())
            self.assertEqual(('active', None), self.states())
            self.patrol(10)
            self.assertEqual(set(), self.unfinished)

    def test_what_may_wait_in_the_queue_is_left_there(self):
        for task_state in 'powering-off', 'rebuilding', 'image_snapshot':
            self.instances.have('active', task_state)
            self.patrol(5 * patrol.UNATTENDED)
            self.assertEqual(('active', task_state), self.states())

    def test_build_whose_mark_was_taken_off_is_taken_up(self):
        """Its former host has written what it does, whatever is there."""
        self.machine = 'deploying'
        self.taken('building', 'networking')
        self.patrol(10)
        self.instances.rows['i1'].task_state = 'spawning'
        self.patrol(patrol.UNATTENDED)
        self.assertEqual(('building', 'spawning'), self.states())
        self.machine = 'active'
        self.patrol(20)
        self.assertEqual([('deployed', 'spawning')], self.instances.done)

    def test_build_that_waits_for_its_turn_is_left_alone(self):
        """It was sent here again, for another node."""
        self.instances.have('building', 'spawning')
        self.arrived = {'i1'}
        self.patrol(5 * patrol.UNATTENDED)
        self.assertEqual(('building', 'spawning'), self.states())

    def test_build_that_has_hardly_begun_is_taken_up(self):
        self.instances.have('building', None)
        with mock.patch.object(patrol.LOG, 'warning') as warning:
            self.patrol(patrol.UNATTENDED + 20)
        self.assertEqual([('deployed', None)], self.instances.done)
        self.assertEqual('building', warning.call_args[0][1]['state'])

    def test_build_that_carries_its_mark_is_not_taken_up_again(self):
        self.machine = 'deploying'
        self.taken('building', 'spawning')
        mark = self.states()
        with mock.patch.object(patrol.LOG, 'warning') as warning:
            self.patrol(5 * patrol.UNATTENDED)
        self.assertEqual(mark, self.states())
        warning.assert_not_called()

    def test_what_has_left_nothing_is_forgotten(self):
        self.unfinished = {'i1', 'i2'}
        self.instances.have('active', None)
        self.patrol(10)
        self.instances.have('active', 'rebuilding')
        self.patrol(5 * patrol.UNATTENDED)
        self.assertEqual(('active', 'rebuilding'), self.states())

    def test_time_in_which_nobody_looked_counts_little(self):
        """The process stood still; what waits is begun now."""
        self.instances.have('active', 'deleting')
        self.patrol(10)
        self.now += 100000
        self.patrol(10)
        self.assertEqual(('active', 'deleting'), self.states())

    def test_nobody_works_on_what_an_operation_is_at(self):
        self.taken('active', 'rescuing')
        self.at_work = {'i1'}
        self.patrol(patrol.UNATTENDED)
        self.assertEqual([], self.instances.done)
        self.at_work = set()
        self.patrol(10)
        self.assertEqual([('init', 'rescuing')], self.instances.done)

    def test_what_was_to_be_deleted_is_deleted(self):
        self.instances.have('active', 'deleting')
        self.patrol(patrol.UNATTENDED + 20)
        self.assertEqual({}, self.instances.rows)

    def test_what_is_half_deleted_is_deleted(self):
        """nova has noted that it is deleted, and went no further."""
        self.instances.have('deleted', None)
        self.patrol(patrol.UNATTENDED)
        self.assertEqual([], self.instances.done)
        self.patrol(20)
        self.assertEqual([('init', None)], self.instances.done)

    def test_what_somebody_is_at_work_on_is_left_alone(self):
        self.instances.have('building', 'spawning')
        self.at_work, self.unfinished = {'i1'}, {'i1'}
        self.patrol(5 * patrol.UNATTENDED)
        self.assertEqual(('building', 'spawning'), self.states())
        # From then on it counts.
        self.at_work = set()
        self.patrol(patrol.UNATTENDED)
        self.assertEqual(('building', 'spawning'), self.states())
        self.patrol(20)
        self.assertEqual([('deployed', 'spawning')], self.instances.done)

    def test_whoever_begins_in_the_last_moment_is_left_alone(self):
        self.instances.have('active', 'deleting')
        self.patrol(patrol.UNATTENDED)
        read = self.instances.read

        def begin(uuid):
            self.at_work = {'i1'}
            return read(uuid)

        self.instances.read = begin
        self.patrol(20)
        self.assertEqual([], self.instances.done)

    def test_what_goes_on_is_left_alone(self):
        for task_state in ('rebooting', 'reboot_pending') * 4:
            self.unfinished = {'i1'}
            self.instances.have('active', task_state)
            self.patrol(patrol.UNATTENDED - 20)
        self.assertEqual([], self.instances.done)

    def test_time_without_answers_does_not_count(self):
        self.instances.have('active', 'deleting')
        self.patrol(patrol.UNATTENDED - 20)
        with mock.patch.object(self.instances, 'busy',
                               side_effect=OSError('no answer')):
            self.now += 10
            for _ in range(recovery.PATROL):
                with contextlib.suppress(OSError):
                    self.recovery.sweep(self.view())
        self.patrol(patrol.UNATTENDED - 20)
        self.assertEqual([], self.instances.done)

    def test_one_that_is_fenced_takes_nothing_up(self):
        self.instances.have('active', 'deleting')
        self.patrol(5 * patrol.UNATTENDED, mine=None)
        self.assertEqual([], self.instances.done)

    def test_what_is_done_for_ironic_is_not_taken_up_twice(self):
        self.machine = 'deploying'
        self.taken('active', 'rebuild_spawning')
        self.patrol(5 * patrol.UNATTENDED)
        self.assertEqual(('active', 'rebuild_spawning'), self.states())
