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

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.core import outages
from nova_ironic_multihost.tests.unit.core.views import view


HEARTBEATS = outages.Heartbeats(interval=10, down_time=60)


class OutagesTestCase(base.BaseTestCase):

    def lengths(self, *looks, now):
        """Return for how long hosts are down after some looks.

        :param looks: (time, what was seen)
        """
        found = outages.Outages()
        for moment, seen in looks:
            found = found.after(seen, moment, HEARTBEATS)
        return found.lengths(now, HEARTBEATS)

    def test_from_the_first_of_looks_one_after_the_other(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 100}, self.lengths(
            (0, view(['me', 'a', 'b'])), (10, down), (60, down), (110, down),
            now=110))

    def test_who_was_up_meanwhile_is_counted_anew(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 10}, self.lengths(
            (0, down), (10, view(['me', 'a', 'b'])), (20, down), now=30))

    def test_one_that_nova_does_not_list_for_a_moment_is_still_down(self):
        down = view(['me', 'a'], dead=['b'])
        self.assertEqual({'b': 20}, self.lengths(
            (0, down), (10, view(['me', 'a'])), (20, down), now=20))

    def test_time_without_looks_counts_for_nothing(self):
        down = view(['me', 'a'], dead=['b'])
        looks = [(0, down), (10, down), *(
            (moment, down) for moment in range(1000, 1061, 10))]
        self.assertEqual({'b': 10 + HEARTBEATS.gap + 60}, self.lengths(
            *looks, now=1060))
        # Nor was anybody seen to be dead when the time comes to its end.
        self.assertEqual({}, self.lengths(*looks[:2], now=1000))
        self.assertEqual({}, self.lengths(*looks[:3], now=1000))

    def test_who_has_sent_a_heartbeat_between_two_looks_is_counted_anew(self):
        def down(beat):
            seen = view(['me', 'a'], dead=['b'])
            return dataclasses.replace(seen, services=dict(
                seen.services, b=dataclasses.replace(
                    seen.services['b'], beat=datetime.datetime(
                        2026, 1, 1, 0, beat))))

        looks = [(0, down(1)), (10, down(1))]
        # It was up while nobody looked; or a clock is wrong.
        for moment in 20, 1000:
            self.assertEqual({'b': 80}, self.lengths(
                *looks, *((moment + more, down(2)) for more in (0, 40, 80)),
                now=moment + 80))
        # The same one again.
        self.assertEqual({'b': 60}, self.lengths(
            *looks, (30, view(['me', 'a'])), (60, down(1)), now=60))
        self.assertEqual({'b': 0}, self.lengths(
            *looks, (30, view(['me', 'a'])), (60, down(2)), now=60))

    def test_nor_does_the_time_of_a_long_look(self):
        down = view(['me', 'a'], dead=['b'])
        found = outages.Outages().after(down, 0, HEARTBEATS)
        self.assertFalse(found.overdue(50, HEARTBEATS))
        self.assertTrue(found.overdue(400, HEARTBEATS))
        found = found.looked(400, HEARTBEATS).after(down, 410, HEARTBEATS)
        self.assertEqual({'b': HEARTBEATS.gap + 10},
                         found.lengths(410, HEARTBEATS))
        self.assertEqual(outages.Outages(), outages.Outages().looked(
            5, HEARTBEATS))

    def test_who_is_down_on_purpose_does_not_count(self):
        seen = view(['me', 'a'], dead=['b', 'c'])
        off = dataclasses.replace(seen.services['c'], disabled=True)
        for service, expected in ((seen.services['c'], {}),
                                  (off, {'b': 10, 'c': 10})):
            looks = dataclasses.replace(
                seen, services={**seen.services, 'c': service})
            self.assertEqual(expected, self.lengths(
                (0, looks), (10, looks), now=10))

    def test_an_outage_of_all_counts_for_nothing(self):
        # Heartbeats cannot be written; then they come back one by one.
        nobody = view([], dead=['me', 'a', 'b', 'c'])
        me_only = view(['me'], dead=['a', 'b', 'c'])
        most = view(['me', 'a', 'b'], dead=['c'])
        looks = [(moment, nobody) for moment in range(0, 600, 10)]
        self.assertEqual({'c': 10}, self.lengths(
            (-10, view(['me', 'a', 'b', 'c'])), *looks, (600, me_only),
            (650, most), (660, most), now=660))


class SilentTestCase(base.BaseTestCase):
    """Who is down after an outage may be about to come back."""

    ALL = view(['me', 'a', 'b'])
    NOBODY = view([], dead=['me', 'a', 'b'])
    ME = view(['me'], dead=['a', 'b'])

    def silent(self, *looks, now, seen=ME):
        found = outages.Outages()
        for moment, what in looks:
            found = found.after(what, moment, HEARTBEATS)
        return found.silent(seen, now, HEARTBEATS)

    def test_who_dies_is_dead(self):
        self.assertEqual(set(), self.silent(now=0))
        self.assertEqual(set(), self.silent((0, self.ALL), now=10))
        self.assertEqual(set(), self.silent(
            (0, self.ALL), (10, self.ME), now=20))

    def test_the_first_one_back_waits_for_the_others(self):
        looks = [(0, self.ALL), (10, self.NOBODY), (20, self.NOBODY)]
        # Before any look has seen that it is over, too.
        self.assertEqual({'a', 'b'}, self.silent(*looks, now=25))
        looks += [(moment, self.ME) for moment in range(30, 90, 10)]
        self.assertEqual({'a', 'b'}, self.silent(*looks, now=89))
        self.assertEqual(set(), self.silent(*looks, now=90))

    def test_the_same_if_nobody_could_look(self):
        looks = [(0, self.ALL), (500, self.ME)]
        self.assertEqual({'a', 'b'}, self.silent(looks[0], now=500))
        self.assertEqual({'a', 'b'}, self.silent(*looks, now=510))
        self.assertEqual(set(), self.silent(
            *looks, (540, self.ME), now=560))

    def test_a_short_outage_matters_where_silence_is_soon_death(self):
        often = outages.Heartbeats(interval=3, down_time=15)
        found = outages.Outages().after(self.ALL, 0, often).after(
            self.ME, 13, often)
        self.assertEqual(
            {'a', 'b'}, found.silent(self.ME, 13, often))
        found = outages.Outages().after(self.ALL, 0, often).after(
            self.ME, 12, often)
        self.assertEqual(set(), found.silent(self.ME, 12, often))

    def test_who_takes_many_nodes_was_in_no_outage(self):
        found = outages.Outages().after(self.ALL, 0, HEARTBEATS)
        found = found.looked(500, HEARTBEATS).after(self.ME, 510, HEARTBEATS)
        self.assertEqual(set(), found.silent(self.ME, 510, HEARTBEATS))

    def test_who_was_no_member_by_the_word_of_an_operator(self):
        for state in ({'disabled': True}, {'forced_down': True, 'up': False}):
            off = dataclasses.replace(self.ALL, services={
                **self.ALL.services, 'me': dataclasses.replace(
                    self.ALL.services['me'], **state)})
            self.assertEqual(set(), self.silent(
                (0, off), (10, self.ME), now=10))

    def test_who_is_down_on_purpose_is_not_merely_silent(self):
        seen = dataclasses.replace(self.ME, services={
            **self.ME.services,
            'a': dataclasses.replace(self.ME.services['a'], disabled=True),
            'b': dataclasses.replace(
                self.ME.services['b'], forced_down=True)})
        self.assertEqual(set(), self.silent(
            (0, self.NOBODY), now=10, seen=seen))

    def test_an_outage_in_an_outage(self):
        looks = [(0, self.NOBODY), (10, self.ME), (50, self.NOBODY),
                 (60, self.ME)]
        self.assertEqual({'a', 'b'}, self.silent(*looks, now=110))
        looks.append((110, self.ME))
        self.assertEqual(set(), self.silent(*looks, now=120))


class AnySinceTestCase(base.BaseTestCase):
    """Whether this host may have been taken for dead."""

    ALL = view(['me', 'a'])

    def any_since(self, moment, *looks, now):
        found = outages.Outages()
        for at, what in looks:
            found = found.after(what, at, HEARTBEATS)
        return found.any_since(moment, now, HEARTBEATS)

    def test_who_does_not_look_cannot_tell(self):
        self.assertTrue(self.any_since(0, now=0))

    def test_who_looks_and_is_heard(self):
        looks = [(at, self.ALL) for at in range(0, 50, 10)]
        self.assertFalse(self.any_since(0, *looks, now=45))
        self.assertTrue(self.any_since(0, *looks, now=500))

    def test_one_that_is_over_for_long(self):
        looks = [(0, self.ALL), (10, view(['a'], dead=['me'])),
                 *((at, self.ALL) for at in range(20, 210, 10))]
        self.assertTrue(self.any_since(5, *looks, now=200))
        self.assertTrue(self.any_since(20, *looks, now=200))
        self.assertFalse(self.any_since(21, *looks, now=200))


class HeartbeatsTestCase(base.BaseTestCase):

    def test_looks_may_be_as_far_apart_as_they_are(self):
        for interval, down_time, gap in (
                (10, 60, 50), (9, 10, 18), (3, 15, 12), (30, 60, 30),
                (120, 300, 180)):
            self.assertEqual(gap, outages.Heartbeats(interval, down_time).gap)

    def test_looks_are_as_often_as_heartbeats_within_bounds(self):
        self.assertEqual([1, 3, 10, 10], [
            outages.Heartbeats(interval).period
            for interval in (0, 3, 10, 60)])
