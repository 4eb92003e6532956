# SPDX-License-Identifier: Apache-2.0

import datetime

from oslotest import base

from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.mirror import NodeRow

NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
ROWS = (
    NodeRow('a', None, b'a'),
    NodeRow('b', 's', None),
    NodeRow('c', None, None),
)


class MirrorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.first = mirror.Mirror().listed(ROWS, NOON)

    def changes(self, later):
        return set(later.changed_since(self.first.serial))

    def test_listed(self):
        self.assertEqual({'a': None, 'b': 's', 'c': None}, self.first.nodes)
        self.assertEqual({'a': b'a'}, self.first.bodies)
        self.assertEqual(('a', 'b', 'c'), self.first.tail)
        self.assertEqual({}, self.first.changes)

    def test_none_listed_is_not_nothing_read(self):
        empty = mirror.Mirror().listed((), None)
        self.assertEqual({'a'}, empty.met(ROWS[:1]).changed_since(
            empty.serial))

    def test_listed_once_more(self):
        later = self.first.listed((NodeRow('a', None, b'A'), ROWS[1]), None)
        self.assertEqual({'a'}, self.changes(later))
        self.assertEqual({'a', 'b'}, later.nodes.keys())

    def test_met_as_before(self):
        self.assertEqual(self.first.nodes, self.first.met(ROWS).nodes)
        self.assertEqual(set(), self.changes(self.first.met(ROWS)))

    def test_met_with_another_instance(self):
        later = self.first.met([NodeRow('a', 't'), NodeRow('b', None)])
        self.assertEqual({'a', 'b'}, self.changes(later))
        # What was known of it is outdated.
        self.assertEqual({}, later.bodies)

    def test_of_two_that_are_one_the_first_counts(self):
        later = self.first.met([NodeRow('b', 'new'), NodeRow('b', 's')])
        self.assertEqual('new', later.nodes['b'])

    def test_changes_add_up(self):
        one = self.first.met([NodeRow('b', None)])
        two = one.met([NodeRow('c', 's')])
        self.assertEqual({'b', 'c'}, self.changes(two))
        self.assertEqual({'c'}, set(two.changed_since(one.serial)))

    def test_what_is_gone_is_forgotten(self):
        later = self.first.met([NodeRow('b', None)]).without(['b', 'unknown'])
        self.assertEqual(set(), self.changes(later))
        self.assertEqual({'a', 'c'}, later.nodes.keys())

    def test_nothing_is_kept_of_what_is_gone(self):
        self.assertEqual({}, self.first.without(['a']).bodies)

    def test_who_leaves_the_partition_is_gone(self):
        later = self.first.met([NodeRow('a', None, here=False),
                                NodeRow('unknown', None, here=False)])
        self.assertEqual({'b', 'c'}, later.nodes.keys())

    def test_what_was_known_before_stays_as_it_was(self):
        self.first.met([NodeRow('b', None)]).without(['a'])
        self.assertEqual('s', self.first.nodes['b'])
        self.assertIn('a', self.first.nodes)

    def test_only(self):
        self.assertEqual({}, self.first.only({'b'}).bodies)
        self.assertIs(self.first, self.first.only({'a', 'b'}))

    def test_more_that_is_known_of_a_node_is_no_change_of_it(self):
        later = self.first.completed([
            NodeRow('b', 's', b'b'), NodeRow('c', 'new', b'c')])
        self.assertEqual({'a': b'a', 'b': b'b', 'c': b'c'}, later.bodies)
        self.assertEqual({'c'}, self.changes(later))
        self.assertIs(self.first, self.first.completed([]))

    def test_a_round_finds_what_is_gone(self):
        later = self.first.begun().gone_on(ROWS[:1]).gone_on(ROWS[2:])
        self.assertEqual({'b'}, later.missing)
        self.assertEqual({'a', 'c'}, later.ended().nodes.keys())

    def test_one_that_was_touched_may_have_gone_since(self):
        later = self.first.begun().met(ROWS[1:2]).gone_on(ROWS[:1]).gone_on(
            ROWS[2:])
        self.assertEqual({'a', 'c'}, later.ended().nodes.keys())

    def test_a_round_spares_who_left_and_came_back_behind_it(self):
        later = self.first.begun().gone_on(ROWS[:2]).met(
            [NodeRow('c', None, here=False)]).met(ROWS[2:])
        self.assertEqual({'a', 'b', 'c'}, later.ended().nodes.keys())

    def test_a_round_spares_who_came_meanwhile(self):
        later = self.first.begun().gone_on(ROWS[:1]).met(
            [NodeRow('d', None)]).gone_on(ROWS[1:])
        self.assertEqual({'d'}, self.changes(later.ended()))

    def test_a_round_misses_who_came_before_it_and_went(self):
        later = self.first.begun().met([NodeRow('d', None)]).gone_on(ROWS)
        self.assertEqual({'a', 'b', 'c'}, later.ended().nodes.keys())

    def test_the_last_of_a_round_are_the_tail(self):
        rows = [NodeRow(str(n), None) for n in range(20)]
        later = self.first.begun().gone_on(rows[:19]).gone_on(
            rows[19:]).ended()
        self.assertEqual(tuple(str(n) for n in range(12, 20)), later.tail)


class SinceTestCase(base.BaseTestCase):

    def later(self, seconds):
        return NOON + datetime.timedelta(seconds=seconds)

    def test_never_touched(self):
        self.assertIsNone(mirror.since(None, NOON))

    def test_the_earlier_of_two_clocks_counts(self):
        expected = NOON - mirror.OVERLAP
        for first, at in ((NOON, self.later(900)), (self.later(900), NOON),
                          (NOON, None)):
            self.assertEqual(expected, mirror.since(first, at))
