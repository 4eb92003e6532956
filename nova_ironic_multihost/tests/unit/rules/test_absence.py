# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.rules import absence

MINE = frozenset(f'n{i:03}' for i in range(100))


class AbsenceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.absences = absence.Absences()

    def audit(self, missing, mine=MINE, found=(), percent=50, others=()):
        """One audit in which Ironic lists all but these nodes.

        :param found: those of the missing for which Ironic does not answer
            that there is no such node.
        :returns: the nodes that Ironic was asked for.
        """
        missing = set(missing)
        observed = absence.observe(
            self.absences, mine, (mine - missing) | set(others), percent)
        asked = absence.questions(observed)
        self.absences = absence.answered(
            observed, mine, set(asked) - set(found),
            set(asked) & set(found))
        return asked

    def test_nothing_is_missing(self):
        self.assertEqual([], self.audit([]))
        self.assertEqual(absence.Absences(), self.absences)

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
        for _ in range(absence.AUDITS_OF_MANY - 1):
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
            for _ in range(3 * absence.AUDITS_OF_MANY):
                self.assertEqual([], self.audit(mine, mine=mine))
                self.assertTrue(self.absences.braked)
                self.assertEqual(frozenset(), self.absences.confirmed)

    def test_most_nodes_do_not_vanish_at_once(self):
        half = sorted(MINE)[:50]
        self.audit(half)
        self.assertFalse(self.absences.braked)
        for _ in range(3 * absence.AUDITS_OF_MANY):
            self.assertEqual([], self.audit([*half, 'n050']))
            self.assertTrue(self.absences.braked)
        self.assertEqual(frozenset(), self.absences.confirmed)

    def test_operator_sets_the_limit(self):
        self.audit(['n001', 'n002'], percent=1)
        self.assertTrue(self.absences.braked)
        for _ in range(absence.AUDITS_OF_MANY):
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
        for number in range(3 * absence.AUDITS):
            # What was missing longest is asked for first.
            self.assertEqual(number // absence.AUDITS * absence.QUESTIONS,
                             len(gone))
            asked = self.audit(set(missing) - gone, mine=mine - gone)
            self.assertLessEqual(len(asked), absence.QUESTIONS)
            gone |= self.absences.confirmed
        self.assertEqual(set(missing), gone)

    def test_all_are_asked_for_in_turn(self):
        """Many may be hidden, as they have gone to another shard."""
        mine = frozenset(f'n{i:04}' for i in range(600))
        hidden = set(sorted(mine)[:absence.QUESTIONS + 20])
        asked = set()
        for _ in range(2):
            asked |= set(self.audit(
                {*hidden, 'n0500'}, mine=mine, found=hidden))
        self.assertEqual({*hidden, 'n0500'}, asked)
        for _ in range(absence.AUDITS_OF_MANY):
            self.audit({*hidden, 'n0500'}, mine=mine, found=hidden)
        self.assertEqual({'n0500'}, self.absences.confirmed)

    def test_record_that_is_gone_is_forgotten(self):
        self.audit(['n001'])
        self.audit([], mine=MINE - {'n001'})
        self.audit(['n001'])
        self.assertEqual(frozenset(), self.absences.confirmed)
