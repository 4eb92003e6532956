# SPDX-License-Identifier: Apache-2.0

import datetime

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import stop_marker

MOMENT = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
WORDS = stop_marker.text(MOMENT)
LATER = stop_marker.text(MOMENT + datetime.timedelta(seconds=1))


def view(host='me', over=(), **services):
    """Return what a host sees of others.

    :param services: host -> its stop marker; None for one that is down.
    """
    return peers.view(
        [peers.ComputeService(name, words is not None,
                              stop_marker=words or '')
         for name, words in services.items()],
        peers.Partition(), host, over=over)


class WordsTestCase(base.BaseTestCase):

    def test_an_operator_reads_since_when_and_what_to_do(self):
        self.assertIn('2026-05-04T03:02:01Z', WORDS)
        self.assertIn('start enables it again', WORDS)
        self.assertIn('reason of your own', WORDS)
        # The column of nova.
        self.assertLessEqual(len(WORDS), 255)

    @given(st.datetimes(datetime.datetime(1970, 1, 1),
                        datetime.datetime(9999, 1, 1)))
    def test_it_is_known_again(self, moment):
        moment = moment.replace(microsecond=0, tzinfo=datetime.UTC)
        words = stop_marker.text(moment)
        self.assertEqual(words, stop_marker.said(words))
        self.assertEqual(moment, stop_marker.said_at(words))

    def test_what_an_operator_says_is_none(self):
        for reason in (None, '', 'broken fan', f'was: {WORDS}',
                       'nova-ironic-multihost'):
            self.assertEqual('', stop_marker.said(reason))

    def test_words_of_another_release(self):
        words = WORDS.replace('Its next start', 'Whoever starts it')
        self.assertEqual(words, stop_marker.said(words))
        self.assertIsNone(stop_marker.said_at(words))


class MayCloseTestCase(base.BaseTestCase):

    def may_close(self, zones=None, **services):
        return stop_marker.may_close(
            view(**{'me': '', **services}), zones or {})

    def test_one_of_several(self):
        self.assertTrue(self.may_close(a=''))
        self.assertTrue(self.may_close(a='', b='', c=''))

    def test_not_the_only_one(self):
        self.assertFalse(self.may_close())
        self.assertFalse(self.may_close(a=None, b=None))

    def test_not_when_all_are_restarted_together(self):
        self.assertFalse(self.may_close(a=WORDS, b=WORDS))
        self.assertFalse(self.may_close(a=WORDS, b=''))
        self.assertTrue(self.may_close(a=WORDS, b='', c=''))

    def test_not_the_only_one_of_a_zone(self):
        self.assertFalse(self.may_close({'me': 'east'}, a='', b=''))
        self.assertFalse(self.may_close({'a': 'east', 'b': 'east'}, a='',
                                        b=''))
        self.assertTrue(self.may_close({'me': 'east', 'b': 'east'}, a='',
                                       b=''))

    @given(st.lists(st.sampled_from(range(8)), unique=True), st.data())
    def test_half_stay_open_in_whatever_order_they_say_it(self, order, data):
        """Each writes, then reads; a write and a read are moments."""
        said, closed = set(), set()
        moments = [host for host in order for _ in range(2)]
        for host in data.draw(st.permutations(moments)):
            if host not in said:
                said.add(host)
                closed.add(host)
                continue
            seen = view(f'h{host}', **{
                f'h{other}': WORDS if other in said else ''
                for other in range(8)})
            if not stop_marker.may_close(seen, {}):
                closed.discard(host)
        self.assertLessEqual(len(closed), 4)


class FarewellsTestCase(base.BaseTestCase):

    def after(self, *looks):
        """Return the stop markers after some looks: (time, what was seen)."""
        found = stop_marker.StopMarkers()
        for moment, seen in looks:
            found = found.after(seen, moment)
        return found

    def test_from_the_first_look_that_hears_it(self):
        found = self.after((0, view(a='')), (10, view(a=WORDS)),
                           (20, view(a=WORDS)))
        self.assertEqual(set(), found.over(69, 60))
        self.assertEqual({('a', WORDS)}, found.over(70, 60))

    def test_who_came_back_and_goes_again_has_its_time_anew(self):
        back = (view(a=''), view(a=None), view())
        for between in back:
            found = self.after((0, view(a=WORDS)), (10, between),
                               (20, view(a=LATER)))
            self.assertEqual(set(), found.over(79, 60))
            self.assertEqual({('a', LATER)}, found.over(80, 60))
        # Nobody has looked meanwhile.
        found = self.after((0, view(a=WORDS)), (20, view(a=LATER)))
        self.assertEqual({('a', LATER)}, found.over(80, 60))
        self.assertEqual(set(), found.over(79, 60))

    def test_my_own_is_no_news(self):
        self.assertEqual(
            set(), self.after((0, view(me=WORDS))).over(100, 60))

    def test_when_the_next_one_is_over(self):
        found = self.after((0, view(a=WORDS)),
                           (30, view(a=WORDS, b=WORDS)))
        self.assertEqual([20, 30, None], [
            found.next_over(now, 60) for now in (40, 60, 90)])
