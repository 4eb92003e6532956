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

"""The timer goes on whatever happens, and ends when it is told."""

import itertools
import threading

from oslotest import base

from nova_ironic_multihost.audit import timer as timers


class TimersTestCase(base.BaseTestCase):

    def test_one_that_hangs_holds_up_no_other(self):
        go_on, turns = threading.Event(), threading.Semaphore(0)
        self.addCleanup(go_on.set)
        both = timers.Timers(lambda: 0.001, hangs=lambda: go_on.wait(60),
                             turns=turns.release)
        both.start()
        for _ in range(3):
            self.assertTrue(turns.acquire(timeout=60))
        threads = [thread for thread in threading.enumerate()
                   if thread.name in ('ironic-multihost-hangs',
                                      'ironic-multihost-turns')]
        self.assertEqual(2, len(threads))
        both.stop()
        go_on.set()
        for thread in threads:
            thread.join(60)
            self.assertFalse(thread.is_alive())


class TimerTestCase(base.BaseTestCase):

    def test_acts_again_and_again_until_it_is_stopped(self):
        turns = threading.Semaphore(0)
        timer = timers.Timer('look', turns.release, lambda: 0.001)
        timer.start()
        thread, = (thread for thread in threading.enumerate()
                   if thread.name == 'ironic-multihost-look')
        timer.start()
        for _ in range(3):
            self.assertTrue(turns.acquire(timeout=60))
        self.assertTrue(thread.daemon)
        timer.stop()
        thread.join(60)
        self.assertFalse(thread.is_alive())

    def test_failures_do_not_end_it_and_are_logged_once_for_each_kind(self):
        failures = [OSError('first'), OSError('again'), ValueError('other'),
                    None, OSError('new')]
        turns = itertools.count()

        def act():
            failure = failures[next(turns)]
            if failure:
                raise failure

        timer = timers.Timer('look', act, lambda: 0)
        with self.assertLogs(timers.__name__, 'WARNING') as logs:
            for _ in failures:
                timer.turn()
        self.assertEqual(['first', 'other', 'new'], [
            record.args['exc'].args[0] for record in logs.records])
        self.assertIn('The look failed: first.', logs.output[0])

    def test_it_ends_with_the_service(self):
        """Whose main thread may leave, and others of the process not."""
        service = threading.Thread(target=lambda: None)
        service.start()
        service.join()
        timer = timers.Timer('look', self.fail, lambda: 0, service)
        with self.assertLogs(timers.__name__, 'ERROR') as logs:
            timer.start()
            timer._thread.join(60)
        self.assertFalse(timer._thread.is_alive())
        self.assertIn('kill it and start it again', logs.output[0])
