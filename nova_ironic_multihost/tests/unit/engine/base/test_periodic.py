# SPDX-License-Identifier: Apache-2.0

"""The timer goes on whatever happens, and ends when it is told."""

import itertools
import threading
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.base import periodic as timers


class TimersTestCase(base.BaseTestCase):

    def test_threads_that_are_used_up_hurt_nobody(self):
        done = threading.Event()
        self.assertTrue(timers.start_thread('one', done.set))
        self.assertTrue(done.wait(60))
        with (
            mock.patch.object(threading.Thread, 'start',
                              side_effect=RuntimeError('no new thread')),
            self.assertLogs(timers.__name__, 'WARNING') as logs,
        ):
            self.assertFalse(timers.start_thread('one', self.fail))
        self.assertIn('are used up: no new thread', logs.output[0])

    def test_one_that_hangs_holds_up_no_other(self):
        go_on, turns = threading.Event(), threading.Semaphore(0)
        self.addCleanup(go_on.set)
        both = [
            timers.PeriodicThread('hangs', {
                'hangs': (lambda: go_on.wait(60), lambda: 0.001)}),
            timers.PeriodicThread('turns', {
                'turns': (turns.release, lambda: 0.001)})]
        for one in both:
            one.start()
        for _ in range(3):
            self.assertTrue(turns.acquire(timeout=60))
        threads = [thread for thread in threading.enumerate()
                   if thread.name in ('ironic-multihost-hangs',
                                      'ironic-multihost-turns')]
        self.assertEqual(2, len(threads))
        for one in both:
            one.stop()
        go_on.set()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())


class PeriodTestCase(base.BaseTestCase):

    def test_period_that_cannot_be_read_is_that_of_before(self):
        """nova.conf may be read anew with an error in it."""
        task = timers.PeriodicTask('look', self.fail, mock.Mock(
            side_effect=[7, ValueError('2oo'), 8]))
        due = []
        for _ in range(3):
            task.plan(100)
            due.append(task.due)
        self.assertEqual([107, 107, 108], due)


class Event:
    """Something that a timer waits for; who waits is seen.

    :param waits: gets the seconds of each wait.
    :param sleep: called with the seconds of a wait that is not over at once.
    :param happen: called in each wait.
    """

    def __init__(self, waits, sleep, happen=lambda: None):
        self._waits = waits
        self._sleep = sleep
        self._happen = happen
        self._set = False

    def set(self):
        self._set = True

    def clear(self):
        self._set = False

    def is_set(self):
        return self._set

    def wait(self, seconds):
        self._waits.append(seconds)
        self._happen()
        if not self._set:
            self._sleep(seconds)
        return self._set


class WakeTestCase(base.BaseTestCase):
    """A timer on a clock that only waits and turns move; waits are seen."""

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.turns = 0
        # When each turn began.
        self.begun = []
        self.pause = 10
        self.during = self.resting = lambda: None
        self.rests, self.waits = [], []
        # Whether it was woken, at the beginning of each wait.
        self.woken = []
        self.timer = timers.PeriodicThread(
            'poll', {'poll': (self.turn, lambda: self.pause)},
            clock=lambda: self.now)
        self.timer._stopped = Event(
            self.rests, self.sleep, lambda: self.resting())
        self.timer._woken = Event(self.waits, self.sleep, self.waiting)

    def sleep(self, seconds):
        self.now += seconds

    def turn(self):
        self.turns += 1
        self.begun.append(self.now - 1000)
        self.during()

    def waiting(self):
        self.woken.append(self.timer._woken.is_set())
        if len(self.waits) == 3:
            self.timer.stop()

    def run_it(self):
        self.timer.run()

    def test_it_rests_and_waits_for_as_long_as_it_is_told(self):
        self.run_it()
        self.assertEqual(
            ([timers.REST] * 3, [10 - timers.REST] * 3, 2),
            (self.rests[:3], self.waits, self.turns))

    def test_turns_begin_as_often_as_told_however_long_they_take(self):
        self.during = lambda: self.sleep(6)
        self.run_it()
        self.assertEqual([10, 20], self.begun)

    def test_turn_that_takes_too_long_is_followed_by_one_after_a_rest(self):
        """What was missed is not made up for."""
        self.during = lambda: self.sleep(35 if self.turns == 1 else 0)
        self.run_it()
        self.assertEqual([10, 10 + 35 + timers.REST], self.begun)
        self.assertEqual(
            [10 - timers.REST, 0, 10 - timers.REST], self.waits)

    def test_turn_that_ends_when_the_next_is_due_is_followed_by_a_rest(self):
        self.during = lambda: self.sleep(9.9)
        self.run_it()
        self.assertAlmostEqual(10 + 9.9 + timers.REST, self.begun[1])

    def test_pause_is_that_of_the_beginning_of_the_turn(self):
        """From then on it is counted."""
        def later():
            self.sleep(4)
            self.pause = 3

        self.during = later
        self.run_it()
        self.assertEqual([10, 20], self.begun)

    def test_after_it_was_woken_it_counts_from_then(self):
        def wake():
            if not self.turns:
                self.timer.wake('poll')

        self.resting = wake
        self.run_it()
        self.assertEqual([timers.REST, timers.REST + 10], self.begun)

    def test_short_pause_is_no_longer_for_the_rest(self):
        self.pause = timers.REST / 4
        self.run_it()
        self.assertEqual(([timers.REST / 4] * 3, [0] * 3),
                         (self.rests[:3], self.waits))

    def test_woken_often_it_turns_once(self):
        def wake():
            if not self.turns:
                for _ in range(1000):
                    self.timer.wake('poll')

        self.resting = wake
        self.run_it()
        # It has rested before, and what follows is an ordinary pause.
        self.assertEqual([timers.REST] * 3, self.rests[:3])
        self.assertEqual([True, False, False], self.woken)

    def test_woken_during_a_turn_it_turns_again(self):
        self.during = lambda: self.turns == 1 and self.timer.wake('poll')
        self.run_it()
        self.assertEqual([False, True, False], self.woken)

    def test_stopped_while_it_rests_it_does_not_wait(self):
        self.resting = self.timer.stop
        self.run_it()
        self.assertEqual(([], 0), (self.waits, self.turns))

    def test_stopping_ends_the_wait(self):
        timer = timers.PeriodicThread(
            'poll', {'poll': (self.fail, lambda: 3600)})
        self.useFixture(fixtures.MockPatchObject(timers, 'REST', 0))
        timer.start()
        timer.stop()
        timer.join(60)
        self.assertFalse(timer.is_alive())


class SharedTestCase(base.BaseTestCase):
    """Tasks of one thread, on a clock that only waits and turns move."""

    def setUp(self):
        super().setUp()
        self.now = 0.0
        #: (when it began, its name).
        self.begun = []
        self.lasting = {'often': 0, 'seldom': 0}
        self.during = {}
        self.thread = timers.PeriodicThread('both', {
            'often': (self.act('often'), lambda: 10),
            'seldom': (self.act('seldom'), lambda: 30)},
            clock=lambda: self.now)
        self.waits = []
        self.thread._stopped = Event([], self.sleep)
        self.thread._woken = Event(self.waits, self.sleep, self.end)
        self.turns = 5

    def act(self, name):
        def act():
            self.begun.append((self.now, name))
            self.sleep(self.lasting[name])
            self.during.get(name, lambda: None)()

        return act

    def sleep(self, seconds):
        self.now += seconds

    def end(self):
        if len(self.waits) > self.turns:
            self.thread.stop()

    def run_it(self):
        self.thread.run()

    def test_each_runs_as_often_as_it_is_told(self):
        self.run_it()
        self.assertEqual(
            [(10, 'often'), (20, 'often'), (30, 'often'), (30, 'seldom'),
             (40, 'often'), (50, 'often')], self.begun)

    def test_one_that_hangs_delays_the_other_by_its_time_only(self):
        self.lasting['seldom'] = 65
        self.run_it()
        self.assertEqual(
            [(30, 'often'), (30, 'seldom'), (95 + timers.REST, 'often'),
             (95 + timers.REST, 'seldom')], self.begun[2:6])

    def test_woken_one_runs(self):
        self.turns = 1
        self.thread.wake('seldom')
        self.run_it()
        self.assertEqual([(timers.REST, 'seldom')], self.begun)

    def test_stopped_in_one_it_begins_no_other(self):
        self.during['often'] = lambda: self.now >= 30 and self.thread.stop()
        self.run_it()
        self.assertEqual((30, 'often'), self.begun[-1])


class TimerTestCase(base.BaseTestCase):

    def test_acts_again_and_again_until_it_is_stopped(self):
        turns = threading.Semaphore(0)
        timer = timers.PeriodicThread(
            'look', {'look': (turns.release, lambda: 0.001)})
        timer.start()
        self.assertEqual('ironic-multihost-look', timer.name)
        for _ in range(3):
            self.assertTrue(turns.acquire(timeout=60))
        self.assertTrue(timer.daemon)
        timer.stop()
        timer.join(60)
        self.assertFalse(timer.is_alive())

    def test_failures_do_not_end_it_and_are_logged_once_for_each_kind(self):
        failures = [OSError('first'), OSError('again'), ValueError('other'),
                    None, OSError('new')]
        turns = itertools.count()

        def act():
            failure = failures[next(turns)]
            if failure:
                raise failure

        timer = timers.PeriodicTask('look', act, lambda: 0)
        with self.assertLogs(timers.__name__, 'WARNING') as logs:
            for _ in failures:
                timer.run()
        self.assertEqual(['first', 'other', 'new'], [
            record.args['exc'].args[0] for record in logs.records])
        self.assertIn('The look failed: first.', logs.output[0])

    def test_it_ends_with_the_service(self):
        """Whose main thread may leave, and others of the process not."""
        service = threading.Thread(target=lambda: None)
        service.start()
        service.join()
        timer = timers.PeriodicThread(
            'look', {'look': (self.fail, lambda: 0)}, service)
        with self.assertLogs(timers.__name__, 'ERROR') as logs:
            timer.start()
            timer.join(60)
        self.assertFalse(timer.is_alive())
        self.assertIn('kill it and start it again', logs.output[0])
