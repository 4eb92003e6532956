# SPDX-License-Identifier: Apache-2.0

import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.rules import liveness

STOP_MARKER = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))

FENCED = {'up': False, 'forced_down': True, 'disabled': True,
          'reason': fencing.REASON}


class RefusalTestCase(base.BaseTestCase):

    def refusal(self, *states):
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate(states))
        return fencing.refusal(known, known[0])

    def test_one_that_is_down(self):
        self.assertIsNone(self.refusal({'up': False}, {}))

    def test_one_that_is_up(self):
        told = self.refusal({}, {})
        self.assertIn('compute-0 is up', told)

    def test_all_are_down(self):
        told = self.refusal({'up': False}, {'up': False})
        self.assertIn('RabbitMQ', told)

    def test_others_that_are_disabled_can_be_enabled(self):
        self.assertIsNone(self.refusal({'up': False}, {'disabled': True}))

    def test_one_that_is_fenced_already(self):
        self.assertIsNone(self.refusal(FENCED, {}))
        self.assertIsNone(self.refusal(FENCED, {'up': False}))


class NotAloneTestCase(base.BaseTestCase):

    SILENT = {'up': False, 'seen': 940.0}

    def not_alone(self, *others, window=100.0):
        """Return why the first one of several is not silent alone."""
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate((self.SILENT, *others)))
        return fencing.not_alone(known, known[0], 1000.0, window)

    def test_alone(self):
        self.assertIsNone(self.not_alone({}, {}, {}))
        self.assertIsNone(self.not_alone({}, {}, FENCED | {'seen': 900.0}))

    def test_two_compute_services(self):
        self.assertIsNone(self.not_alone({}))
        self.assertIn('0 of 1 others are up', self.not_alone(
            {'up': False, 'disabled': True}))
        self.assertIn('0 of 0 others', self.not_alone())

    def test_a_second_one_is_silent(self):
        told = self.not_alone({}, {}, {}, self.SILENT)
        self.assertIn('it misses compute-4. Look', told)
        self.assertIn('RabbitMQ', told)

    def test_not_more_than_half_of_the_others_are_up(self):
        # Fenced one after the other, or drained.
        for state in FENCED, {'up': False, 'disabled': True}:
            self.assertIsNone(self.not_alone({}, {}, state | {'seen': 0.0}))
            self.assertIn('2 of 4 others are up', self.not_alone(
                {}, {}, *[state | {'seen': 0.0}] * 2))

    def test_the_cell_of_another_is_away(self):
        away = {'up': False, 'reached': False}
        self.assertIn('the cell of compute-4. Mend',
                      self.not_alone({}, {}, {}, away))
        # The rest of its fields is not known, also beside another spelling.
        west = cloud_state.Service('west', **self.SILENT)
        self.assertIn('the cell of East. Mend', fencing.not_alone(
            (cloud_state.Service('East', **away), cloud_state.Service('east'),
             west), west, 1000.0, 0))

    def test_it_never_sent_a_heartbeat(self):
        known = (cloud_state.Service('new', up=False),
                 cloud_state.Service('old', seen=990.0))
        self.assertIn('never had a heartbeat of new', fencing.not_alone(
            known, known[0], 1000.0, 0))

    def test_one_was_fenced_lately(self):
        for seen in 901.0, 1000.0, 1030.0, None:
            told = self.not_alone({}, {}, FENCED | {'seen': seen})
            self.assertIn('compute-3 was fenced within 100 s', told)
        # Also by a tool that does not disable.
        self.assertIsNotNone(self.not_alone(
            {}, {}, {'up': False, 'forced_down': True, 'seen': 990.0}))
        self.assertIsNone(self.not_alone(
            {}, {}, FENCED | {'seen': 990.0}, window=0))

    def test_a_host_that_has_left_another_spelling_behind(self):
        stale = cloud_state.Service('East', up=False, seen=1.0)
        east = cloud_state.Service('east', seen=990.0)
        west = cloud_state.Service('west', **self.SILENT)
        self.assertIsNone(
            fencing.not_alone((stale, east, west), west, 1000.0, 0))

    def test_missed(self):
        for state, missed in (
                ({'up': False}, True), ({}, False), (FENCED, False),
                ({'up': False, 'forced_down': True}, False),
                ({'up': False, 'disabled': True}, False),
                ({'up': False, 'reached': False}, False)):
            self.assertEqual(
                missed, fencing.missed(cloud_state.Service('h', **state)))


class WantedTestCase(base.BaseTestCase):

    def wanted(self, why=None, **state):
        return fencing.wanted(cloud_state.Service('h', **state), why)

    def test_one_that_is_enabled(self):
        self.assertEqual(
            {'forced_down': True, 'status': 'disabled',
             'disabled_reason': fencing.REASON}, self.wanted(up=False))

    def test_why(self):
        self.assertEqual(f'{fencing.REASON}: fan',
                         self.wanted('fan')['disabled_reason'])

    def test_one_that_is_fenced(self):
        self.assertEqual({}, self.wanted('fan', **FENCED))

    def test_one_that_somebody_has_disabled_keeps_its_reason(self):
        self.assertEqual({'forced_down': True},
                         self.wanted(disabled=True, reason='mine'))

    def test_one_that_was_told_to_end(self):
        # Its next start would enable it.
        self.assertEqual(
            fencing.REASON,
            self.wanted(
                disabled=True, stop_marker=STOP_MARKER, reason=STOP_MARKER
            )['disabled_reason'],
        )

    def test_one_that_is_forced_down_and_enabled(self):
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': fencing.REASON},
            self.wanted(up=False, forced_down=True))

    def test_no_next_start_takes_the_reason_for_a_farewell(self):
        self.assertEqual('', liveness.find_stop_marker(fencing.REASON))


class UnwantedTestCase(base.BaseTestCase):

    def unwanted(self, **state):
        return fencing.unwanted(cloud_state.Service('h', **state))

    def test_one_that_is_fenced(self):
        self.assertEqual({'forced_down': False, 'status': 'enabled'},
                         self.unwanted(**FENCED))
        self.assertEqual(
            {'forced_down': False, 'status': 'enabled'},
            self.unwanted(**FENCED | {'reason': f'{fencing.REASON}: fan'}))

    def test_one_that_was_disabled_before(self):
        for reason in 'mine', '':
            self.assertEqual(
                {'forced_down': False},
                self.unwanted(**FENCED | {'reason': reason}))

    def test_one_that_is_forced_down_and_enabled(self):
        self.assertEqual({'forced_down': False},
                         self.unwanted(up=False, forced_down=True))

    def test_one_that_was_only_enabled_again_half(self):
        self.assertEqual({'status': 'enabled'}, self.unwanted(
            disabled=True, reason=fencing.REASON))

    def test_one_that_is_not_fenced(self):
        self.assertEqual({}, self.unwanted())
        self.assertEqual({}, self.unwanted(disabled=True, reason='mine'))


class AliveTestCase(base.BaseTestCase):

    def alive(self, *seen):
        return fencing.alive([
            cloud_state.Service('h', seen=moment) for moment in seen])

    def test_silence(self):
        self.assertFalse(self.alive())
        self.assertFalse(self.alive(None, None))
        self.assertFalse(self.alive(5.0, 5.0, 5.0))

    def test_one_change_may_be_somebody_s_request(self):
        self.assertFalse(self.alive(5.0, 15.0, 15.0))
        self.assertFalse(self.alive(None, 15.0))

    def test_what_operators_say_is_no_heartbeat(self):
        looks = [cloud_state.Service('h', seen=5.0, reason='a'),
                 cloud_state.Service('h', seen=15.0, reason='b'),
                 cloud_state.Service('h', seen=25.0, disabled=True),
                 cloud_state.Service('h', seen=35.0, forced_down=True)]
        for number in range(1, 5):
            self.assertFalse(fencing.alive(looks[:number]))
        self.assertTrue(fencing.alive(looks + [
            cloud_state.Service('h', seen=moment, forced_down=True)
            for moment in (45.0, 55.0)]))

    def test_heartbeats(self):
        self.assertTrue(self.alive(5.0, 15.0, 15.0, 25.0))
