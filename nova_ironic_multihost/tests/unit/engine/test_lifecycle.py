# SPDX-License-Identifier: Apache-2.0

import datetime
import logging
import threading
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.base import ports
from nova_ironic_multihost.engine import lifecycle
from nova_ironic_multihost.rules import liveness

MOMENT = datetime.datetime(2026, 5, 4, tzinfo=datetime.UTC)
WORDS = liveness.stop_marker_text(MOMENT)


class DepartureTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.registration = mock.create_autospec(
            ports.Registration, instance=True)
        self.may_close = mock.Mock(return_value=True)
        self.pauses = []
        self.departure = lifecycle.Shutdown(
            self.registration, self.may_close, lambda: MOMENT,
            self.pauses.append)
        self.departure.undo()
        self.registration.reset_mock()

    def begin(self):
        """Begin it, and let it come to its end."""
        self.departure.begin()
        self.assertTrue(self.departure.begun())
        self.assertTrue(self.departure._said.wait(60))

    def test_it_is_said_once(self):
        self.assertFalse(self.departure.begun())
        self.begin()
        with fixtures.FakeLogger(level=logging.WARNING) as log:
            self.departure.wait()
        self.assertEqual('', log.output)
        self.departure.begin()
        self.registration.say.assert_called_once_with(WORDS)
        self.registration.close.assert_called_once_with(WORDS)

    def test_builds_are_still_sent_here_if_too_many_end(self):
        self.may_close.side_effect = lambda: (
            self.registration.say.assert_called_once_with(WORDS))
        self.begin()
        self.may_close.assert_called_once_with()
        self.registration.close.assert_not_called()

    def test_what_an_operator_has_disabled_is_left_alone(self):
        self.registration.say.return_value = False
        self.begin()
        self.may_close.assert_not_called()
        self.registration.close.assert_not_called()

    def test_it_is_said_again_until_it_is_heard(self):
        self.registration.say.side_effect = [OSError, OSError, True]
        self.begin()
        self.assertEqual([lifecycle.PAUSE] * 2, self.pauses)
        self.may_close.assert_called_once_with()

    def test_it_is_not_said_for_ever(self):
        self.registration.say.side_effect = OSError
        self.begin()
        self.assertEqual(lifecycle.ATTEMPTS, self.registration.say.call_count)
        self.may_close.assert_not_called()

    def test_the_end_does_not_wait_for_who_does_not_answer(self):
        self.useFixture(fixtures.MockPatchObject(lifecycle, 'WAIT', 0.01))
        answer = threading.Event()
        self.addCleanup(answer.set)
        self.registration.say.side_effect = lambda words: answer.wait(60)
        with self.assertLogs(lifecycle.__name__, 'WARNING') as logs:
            self.departure.begin()
            self.departure.wait()
        self.assertIn('nova-conductor', logs.output[0])
        self.assertTrue(self.departure.begun())

    def test_who_else_ends_is_not_known(self):
        self.may_close.side_effect = OSError('gone')
        with self.assertLogs(lifecycle.__name__, 'WARNING'):
            self.begin()
        self.registration.close.assert_not_called()

    def test_a_start_that_was_refused_says_nothing(self):
        self.departure = lifecycle.Shutdown(
            self.registration, self.may_close)
        self.departure.wait()
        self.begin()
        self.departure.wait()
        self.registration.say.assert_not_called()

    def test_there_is_no_thread(self):
        self.useFixture(fixtures.MockPatch(
            'threading.Thread.start', side_effect=RuntimeError('no thread')))
        with self.assertLogs(periodic.__name__, 'WARNING') as logs:
            self.begin()
        self.assertIn('no thread', logs.output[0])

    def test_the_next_start_takes_it_back(self):
        with self.assertLogs(lifecycle.__name__, 'INFO') as logs:
            self.departure.undo()
        self.assertIn('enabled again', logs.output[0])
        self.registration.take_back.return_value = False
        self.useFixture(fixtures.MockPatchObject(
            lifecycle.LOG, 'info', self.fail))
        self.departure.undo()

    def test_a_start_goes_on_if_it_cannot_be_taken_back(self):
        self.registration.take_back.side_effect = OSError('gone')
        with self.assertLogs(lifecycle.__name__, 'WARNING') as logs:
            self.departure.undo()
        self.assertIn('gone', logs.output[0])

    def test_what_calls_without_an_answer_may_have_done(self):
        """All nodes are audited again for it: once, and not at each poll."""
        self.registration.take_back.side_effect = [
            OSError, OSError, False, False, True, True]
        self.assertEqual(
            [False, False, True, False, True, True],
            [self.departure.undo() for _ in range(6)])

    def test_two_threads_of_which_one_has_no_answer(self):
        def answer():
            # The other one asks meanwhile.
            self.registration.take_back.side_effect = OSError
            self.assertFalse(self.departure.undo())
            return False

        self.registration.take_back.side_effect = answer
        self.departure.undo()
        self.registration.take_back.side_effect = [False]
        self.assertTrue(self.departure.undo(found=False))

    def test_two_threads_that_both_have_an_answer(self):
        """The second one has no reason to ask, too."""
        def answer():
            self.assertFalse(self.departure.undo(found=False))
            return False

        self.registration.take_back.side_effect = answer
        self.assertFalse(self.departure.undo())
        self.registration.take_back.assert_called_once_with()

    def test_an_outage_is_logged_once(self):
        self.registration.take_back.side_effect = OSError('gone')
        with self.assertLogs(lifecycle.__name__, 'WARNING') as logs:
            for found in True, False, False:
                self.departure.undo(found)
        self.assertEqual(1, len(logs.output))
        self.assertEqual(3, self.registration.take_back.call_count)

    def test_call_without_an_answer_that_nova_carries_out_late(self):
        self.registration.take_back.side_effect = [OSError, OSError, False]
        self.assertEqual(
            [False, False, True, False],
            [self.departure.undo(found)
             for found in (True, False, False, False)])
        self.assertEqual(3, self.registration.take_back.call_count)

    def test_who_ends_takes_nothing_back(self):
        self.begin()
        self.departure.undo()
        self.registration.take_back.assert_not_called()

    def test_words_that_are_taken_back_late_are_said_again(self):
        """nova answers slowly, and the service is told to end meanwhile."""
        said = ['words of before']

        def take_back():
            self.departure.begin()
            self.assertTrue(self.departure._said.wait(60))
            self.assertEqual([WORDS], said)
            said.clear()
            return True

        def say(words):
            said[:] = [words]
            return True

        self.registration.take_back.side_effect = take_back
        self.registration.say.side_effect = say
        self.departure.undo()
        self.assertEqual([WORDS], said)

    def test_handler_of_a_signal_does_not_wait_for_what_it_interrupts(self):
        """oslo.service ends the process in it: nothing below goes on."""
        class End(BaseException):
            """The end of the process."""

        def take_back():
            self.departure.begin()
            self.departure.wait()
            raise End

        self.registration.take_back.side_effect = take_back
        self.useFixture(fixtures.MockPatchObject(
            lifecycle.LOG, 'warning', self.fail))
        self.assertRaises(End, self.departure.undo)
        self.registration.say.assert_called_once_with(WORDS)
