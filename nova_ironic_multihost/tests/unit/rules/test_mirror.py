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


MINE = frozenset(f'n{i:03}' for i in range(100))


class AbsenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.absences = mirror.Absences()

    def audit(self, missing, mine=MINE, found=(), percent=50, others=()):
        """One audit in which Ironic lists all but these nodes.

        :param found: those of the missing for which Ironic does not answer
            that there is no such node.
        :returns: the nodes that Ironic was asked for.
        """
        missing = set(missing)
        observed = mirror.note_absences(
            self.absences, mine, (mine - missing) | set(others), percent)
        asked = mirror.absence_questions(observed)
        self.absences = mirror.absences_answered(
            observed, mine, set(asked) - set(found),
            set(asked) & set(found))
        return asked

    def test_nothing_is_missing(self):
        self.assertEqual([], self.audit([]))
        self.assertEqual(mirror.Absences(), self.absences)

    def test_node_is_gone_after_two_audits(self):
        self.audit(['n001'])
        self.assertEqual(frozenset(), self.absences.confirmed)
        self.audit(['n001'])
        self.assertEqual({'n001'}, self.absences.confirmed)

    def test_two_audits_must_be_in_a_row(self):
        for answer in ({'found': ['n001']}, {'missing': []}):
            self.audit(['n001'])
            self.audit(**{'missing': ['n001'], **answer})
            self.audit(['n001'])
            self.assertEqual(frozenset(), self.absences.confirmed)
            self.audit([])

    def test_many_nodes_need_more_audits(self):
        many = sorted(MINE)[:11]
        for _ in range(mirror.AUDITS_MANY_MISSING - 1):
            self.audit(many)
            self.assertEqual(frozenset(), self.absences.confirmed)
        self.audit(many)
        self.assertEqual(set(many), self.absences.confirmed)

    def test_one_node_of_few_is_not_many(self):
        mine = frozenset(['n001', 'n002'])
        for _ in range(2):
            self.audit(['n001'], mine=mine)
        self.assertEqual({'n001'}, self.absences.confirmed)

    def test_last_node_of_one_compute_while_ironic_lists_others(self):
        for _ in range(2):
            self.audit(['n001'], mine=frozenset(['n001']), others=['n999'])
        self.assertEqual({'n001'}, self.absences.confirmed)

    def test_empty_listing_is_not_believed(self):
        for mine in (MINE, frozenset(['n001'])):
            for _ in range(3 * mirror.AUDITS_MANY_MISSING):
                self.assertEqual([], self.audit(mine, mine=mine))
                self.assertTrue(self.absences.braked)
                self.assertEqual(frozenset(), self.absences.confirmed)

    def test_most_nodes_do_not_vanish_at_once(self):
        half = sorted(MINE)[:50]
        self.audit(half)
        self.assertFalse(self.absences.braked)
        for _ in range(3 * mirror.AUDITS_MANY_MISSING):
            self.assertEqual([], self.audit([*half, 'n050']))
            self.assertTrue(self.absences.braked)
        self.assertEqual(frozenset(), self.absences.confirmed)

    def test_operator_sets_the_limit(self):
        self.audit(['n001', 'n002'], percent=1)
        self.assertTrue(self.absences.braked)
        for _ in range(mirror.AUDITS_MANY_MISSING):
            self.audit(MINE, percent=100)
            self.assertFalse(self.absences.braked)
        self.assertEqual(MINE, self.absences.confirmed)

    def test_counting_begins_anew_after_a_brake(self):
        self.audit(['n001'])
        self.audit(MINE)
        self.audit(['n001'])
        self.assertEqual(frozenset(), self.absences.confirmed)

    def test_ironic_is_not_flooded_with_questions(self):
        mine = frozenset(f'n{i:04}' for i in range(10000))
        missing = sorted(mine)[:300]
        gone = set()
        for number in range(3 * mirror.AUDITS_MISSING):
            # What was missing longest is asked for first.
            self.assertEqual(
                number // mirror.AUDITS_MISSING * mirror.ABSENCE_QUESTIONS,
                len(gone))
            asked = self.audit(set(missing) - gone, mine=mine - gone)
            self.assertLessEqual(len(asked), mirror.ABSENCE_QUESTIONS)
            gone |= self.absences.confirmed
        self.assertEqual(set(missing), gone)

    def test_all_are_asked_for_in_turn(self):
        """Many may be hidden, as they have gone to another shard."""
        mine = frozenset(f'n{i:04}' for i in range(600))
        hidden = set(sorted(mine)[:mirror.ABSENCE_QUESTIONS + 20])
        asked = set()
        for _ in range(20):
            asked |= set(self.audit(
                {*hidden, 'n0500'}, mine=mine, found=hidden))
        self.assertEqual({*hidden, 'n0500'}, asked)
        for _ in range(5 * mirror.AUDITS_MANY_MISSING):
            self.audit({*hidden, 'n0500'}, mine=mine, found=hidden)
        self.assertEqual({'n0500'}, self.absences.confirmed)

    def test_record_that_is_gone_is_forgotten(self):
        self.audit(['n001'])
        self.audit([], mine=MINE - {'n001'})
        self.audit(['n001'])
        self.assertEqual(frozenset(), self.absences.confirmed)
