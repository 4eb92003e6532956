# SPDX-License-Identifier: Apache-2.0

"""What a compute service has counted and timed of its own work."""

from oslotest import base

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work


class TalliesTestCase(base.BaseTestCase):

    none = counters.Counters(begun=5)

    def test_counts_begin_with_0_and_add_up(self):
        self.assertEqual(dict.fromkeys(Event, 0), dict(self.none.counts))
        some = self.none.counted(Event.PULLED).counted(Event.PULLED, 3)
        self.assertEqual(4, some.counts[Event.PULLED])
        self.assertEqual(0, some.counts[Event.ADOPTED])
        self.assertEqual(0, self.none.counts[Event.PULLED])

    def test_work_that_is_done(self):
        done = counters.RunStats().over(10, 12, True)
        self.assertEqual(counters.RunStats(12, 12, 12, 2), done)
        # One that fails comes to its end, and that is all.
        failed = done.seen(20).over(20, 25, False)
        self.assertEqual(counters.RunStats(25, 25, 12, 2), failed)
        self.assertEqual(30, failed.seen(30).sign)
        self.assertEqual(25, failed.seen(30).ended)

    def test_age_counts_from_the_beginning_if_it_was_never_done(self):
        self.assertEqual(15, self.none.age(Work.AUDIT, 20))
        done = self.none.with_turns(
            Work.AUDIT, counters.RunStats().over(10, 12, True))
        self.assertEqual(8, done.age(Work.AUDIT, 20))
        self.assertEqual(15, done.age(Work.LISTING, 20))

    def test_pending_since_it_was_seen_first(self):
        self.assertIsNone(self.none.oldest_pending)
        some = self.none.with_pending(Pending.TURN, {'n1', 'n2'}, 10)
        some = some.with_pending(Pending.REST, {'i1'}, 8)
        self.assertEqual(8, some.oldest_pending)
        some = some.with_pending(Pending.REST, set(), 11)
        some = some.with_pending(Pending.TURN, {'n2', 'n3'}, 12)
        self.assertEqual({'n2': 10, 'n3': 12},
                         dict(some.pending[Pending.TURN]))
        self.assertEqual(10, some.oldest_pending)
        # What is over and pending again begins anew.
        again = some.with_pending(Pending.TURN, set(), 13).with_pending(
            Pending.TURN, {'n2'}, 14)
        self.assertEqual(14, again.oldest_pending)

    def test_waits_by_their_length(self):
        some = self.none.waited(Wait.MOVE, 60).waited(Wait.MOVE, 60.5)
        found = some.waited(Wait.MOVE, 1e6).waits[Wait.MOVE]
        self.assertEqual(
            {30: 0, 60: 1, 90: 2, 14400: 2, float('inf'): 3},
            {bound: count for bound, count
             in zip(counters.BOUNDS, found.counts)
             if bound in (30, 60, 90, 14400, float('inf'))})
        self.assertEqual(1000120.5, found.seconds)
        self.assertEqual(counters.Histogram(), some.waits[Wait.BUILD])

    def test_requests_that_are_not_answered_yet(self):
        self.assertIsNone(self.none.oldest_asking)
        some = self.none.asked(1, 10).asked(2, 20)
        self.assertEqual(10, some.oldest_asking)
        self.assertEqual(20, some.answered(1).oldest_asking)
        self.assertIsNone(some.answered(1).answered(2).oldest_asking)

    def test_requests_whose_answer_never_comes(self):
        some = self.none.asked(1, 10).asked(2, 20)
        self.assertEqual(10, some.oldest_awaited)
        later = 10 + counters.LOST
        some = some.asked(3, later).answered(3, later)
        self.assertEqual(10, some.oldest_awaited)
        some = some.asked(3, later).answered(3, later + 1)
        self.assertEqual((20, 10), (some.oldest_awaited, some.oldest_asking))
        # One that fails was not answered.
        self.assertEqual(
            20, some.asked(3, later).answered(3).oldest_awaited)
        self.assertIsNone(some.answered(2).oldest_awaited)
