# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab import picture
from lab import timeline


def sample(t, owner, up, used=()):
    return timeline.Sample(t, owner, frozenset(used), frozenset(up),
                           frozenset(), frozenset('ab'))


class StripsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.lost = timeline.Timeline((
            sample(0.0, {'1': 'a', '2': 'a', '3': 'b'}, 'ab', '1'),
            sample(1.0, {'1': 'a', '2': 'a', '3': 'b'}, 'b', '1'),
            sample(2.0, {'1': 'a', '2': 'b', '3': 'b'}, 'b', '1'),
            sample(3.0, {'1': 'a', '2': 'b', '3': 'b'}, 'ab', '1')))

    def test_one_strip_for_each_host_with_its_nodes(self):
        one, other = picture.strips(self.lost)
        self.assertEqual(('a', 'b'), (one.host, other.host))
        self.assertEqual((0.0, 1.0, 2.0, 3.0), one.times)
        self.assertEqual((1, 1, 0, 0), one.free)
        self.assertEqual((1, 1, 1, 1), one.used)
        self.assertEqual((1, 1, 2, 2), other.free)
        self.assertEqual(2, one.top)

    def test_dead_from_the_first_to_the_next_living_sample(self):
        one, other = picture.strips(self.lost)
        self.assertEqual(((1.0, 3.0),), one.dead)
        self.assertEqual((), other.dead)

    def test_dead_to_the_end(self):
        cut = timeline.Timeline(self.lost.samples[:3])
        self.assertEqual(((1.0, 2.0),), picture.strips(cut)[0].dead)


class LabelRowsTestCase(base.BaseTestCase):

    def test_labels_far_apart_share_a_row(self):
        self.assertEqual(([0, 0], [0.0, 50.0]),
                         picture.label_rows([0, 50], [20, 20], 100))

    def test_labels_that_would_overlap_are_stacked(self):
        rows, _ = picture.label_rows([0, 10, 15, 30], [20, 20, 10, 10], 100)
        self.assertEqual([0, 1, 2, 0], rows)

    def test_a_label_at_the_end_begins_earlier(self):
        self.assertEqual(([0], [80.0]),
                         picture.label_rows([99], [20], 100))
