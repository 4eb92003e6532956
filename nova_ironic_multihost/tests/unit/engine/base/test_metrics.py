# SPDX-License-Identifier: Apache-2.0

"""The tally: counts and times what happens."""

import contextlib
import threading

from oslotest import base

from nova_ironic_multihost.engine.base import metrics
from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.tests.unit.engine import cloud


def in_thread(act):
    """Have something done in another thread, and wait for that."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


class TallyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.clock = cloud.Clock()
        self.recorder = metrics.Metrics(self.clock)

    def turns(self, work):
        return self.recorder.turns[work]

    def counts(self):
        return {event: count for event, count
                in self.recorder.counts.items() if count}

    def test_work_is_timed(self):
        with self.recorder.turn(Work.AUDIT):
            self.assertEqual(counters.RunStats(sign=1000),
                             self.turns(Work.AUDIT))
            self.clock.now += 5
            self.recorder.sign(Work.AUDIT)
            self.assertEqual(counters.RunStats(sign=1005),
                             self.turns(Work.AUDIT))
            self.clock.now += 2
        self.assertEqual(counters.RunStats(1007, 1007, 1007, 7),
                         self.turns(Work.AUDIT))
        self.assertEqual(counters.RunStats(), self.turns(Work.PEER_POLL))

    def test_work_that_fails_comes_to_its_end(self):
        def work():
            with self.recorder.turn(Work.PEER_POLL):
                raise OSError

        self.assertRaises(OSError, work)
        self.assertEqual(counters.RunStats(sign=1000, ended=1000),
                         self.turns(Work.PEER_POLL))

    def test_moves_of_free_nodes_are_counted(self):
        for reason, done in (
                (Reason.ADOPTED, True), (Reason.PULLED, True),
                (Reason.PULLED, True), (Reason.ADOPTED, False),
                (Reason.PULLED, False),
                # With a server, new, or not known any more.
                (Reason.INSTANCE_HERE, True), (Reason.TAKEN_OVER, False),
                (Reason.CREATED, True), (None, True)):
            self.recorder.note_move(reason, done)
        self.assertEqual({Event.ADOPTED: 1, Event.PULLED: 2,
                          Event.MOVE_FAILED: 2}, self.counts())

    def test_pending(self):
        self.recorder.note_pending(Pending.TURN, {'n1'})
        self.clock.now += 3
        self.recorder.note_pending(Pending.TURN, {'n1', 'n2'})
        self.assertEqual({'n1': 1000, 'n2': 1003},
                         self.recorder.pending[Pending.TURN])
        # What is over and pending again begins anew.
        self.recorder.note_pending(Pending.TURN, set())
        self.recorder.note_pending(Pending.TURN, {'n1'})
        self.assertEqual({'n1': 1003}, self.recorder.pending[Pending.TURN])

    def test_requests_at_the_same_time(self):
        with self.recorder.asking():
            self.clock.now += 1
            with self.recorder.asking():
                self.assertEqual(1000, self.recorder.oldest_asking)
        self.assertIsNone(self.recorder.oldest_asking)

    def test_request_that_fails_is_over(self):
        def ask():
            with self.recorder.asking():
                raise OSError

        self.assertRaises(OSError, ask)
        self.assertIsNone(self.recorder.oldest_asking)

    def test_requests_whose_answer_never_comes(self):
        with self.recorder.asking():
            self.clock.now += 1
            with self.recorder.asking():
                self.clock.now += metrics.LOST - 1
                self.ask()
                self.assertEqual(1000, self.recorder.oldest_asking)
                self.clock.now += 1
                # One that fails was not answered.
                with contextlib.suppress(OSError), self.recorder.asking():
                    raise OSError
                self.assertEqual(1000, self.recorder.oldest_asking)
                self.ask()
                self.assertEqual(1001, self.recorder.oldest_asking)

    def test_request_is_a_step_of_what_its_thread_does(self):
        for work in Work.AUDIT, Work.LISTING:
            with self.recorder.turn(work):
                pass

        def ask():
            with self.recorder.asking():
                raise OSError

        self.clock.now += 9
        self.assertRaises(OSError, ask)
        self.assertEqual(counters.RunStats(1009, 1000, 1000, 0),
                         self.turns(Work.AUDIT))
        self.assertEqual(counters.RunStats(1000, 1000, 1000, 0),
                         self.turns(Work.LISTING))

    def test_request_of_another_thread_is_not(self):
        with self.recorder.turn(Work.PEER_POLL):
            pass
        self.clock.now += 9
        in_thread(self.ask)
        self.assertEqual(1000, self.turns(Work.PEER_POLL).sign)

    def ask(self):
        with self.recorder.asking():
            pass

    def test_threads_lose_nothing(self):
        def count():
            for _ in range(500):
                self.recorder.count(Event.REFUSED)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({Event.REFUSED: 2000}, self.counts())

    def test_whoever_reads_waits_for_nobody(self):
        """A handler of signals reads in the middle of a write."""
        with self.recorder._lock:
            self.assertEqual({}, self.counts())
