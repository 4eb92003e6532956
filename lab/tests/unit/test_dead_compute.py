# SPDX-License-Identifier: Apache-2.0

"""What dead-fenced, both split-brains and churn with a fence must come to."""

from oslotest import base

from lab.bench import residents
from lab.experiments import churn
from lab.experiments import dead_fenced
from lab.experiments import split_brain
from lab.experiments import split_brain_watchdog
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.tests import views

REST = {'changed': [], 'touched': [], 'deeds': {}}


def fenced(**changes):
    return {'killed_to_last_taken_over': 3.0,
            'fenced_to_last_taken_over': 2.0,
            'asked_before': {'deleted before': 4.0}, 'not_done': {},
            'error': 0, 'stuck': 0, 'leaked': 0, 'after_return': REST,
            **changes}


def split(**changes):
    return {**fenced(), 'build': 'ACTIVE', 'lost': [],
            'while_cut_off': REST, **changes}


class DeadFencedTestCase(base.BaseTestCase):

    def test_good(self):
        self.assertEqual([], dead_fenced.failures(fenced()))

    def test_without_a_fence(self):
        self.assertEqual([], dead_fenced.failures(
            fenced(fenced_to_last_taken_over=None)))

    def test_each_bad_figure_has_its_sentence(self):
        for changes in (
                {'killed_to_last_taken_over': None},
                {'asked_before': {'deleted before': None}},
                {'not_done': {'reboot': 'ACTIVE, in rebooting'}},
                {'error': 1}, {'stuck': 1}, {'leaked': 1},
                {'after_return': REST | {'changed': ['x']}},
                {'after_return': REST | {'touched': ['x']}}):
            with self.subTest(changes):
                self.assertEqual(1, len(dead_fenced.failures(
                    fenced(**changes))))


class SplitBrainTestCase(base.BaseTestCase):

    def test_good(self):
        self.assertEqual([], split_brain.failures(split()))
        self.assertEqual([], split_brain.failures(split(build='ERROR')))

    def test_each_bad_figure_has_its_sentence(self):
        for changes in (
                {'fenced_to_last_taken_over': None}, {'build': 'stuck'},
                {'lost': ['one']},
                {'while_cut_off': REST | {'touched': ['x']}},
                {'after_return': REST | {'changed': ['x']}}):
            with self.subTest(changes):
                self.assertEqual(1, len(split_brain.failures(
                    split(**changes))))


class SplitBrainWatchdogTestCase(base.BaseTestCase):

    def split(self, **changes):
        figures = split(**{
            'kills': 1, 'killed_after': 30.0, 'killed_to_first_taken_over': 30,
            'cut_to_last_taken_over': 62.0, **changes})
        del figures['fenced_to_last_taken_over']
        return figures

    def test_good(self):
        self.assertEqual([], split_brain_watchdog.failures(self.split()))

    def test_each_bad_figure_has_its_sentence(self):
        for changes in (
                {'killed_after': None, 'kills': 0,
                 'killed_to_first_taken_over': None}, {'kills': 2},
                {'killed_to_first_taken_over': -1.0},
                {'cut_to_last_taken_over': None},
                {'while_cut_off': REST | {'touched': ['x']}}):
            with self.subTest(changes):
                self.assertEqual(1, len(split_brain_watchdog.failures(
                    self.split(**changes))))

    def test_nova_compute_starts_with_what_it_wants(self):
        terms = health.LeaseTiming(split_brain_watchdog.ANSWER, 10)
        self.assertLessEqual(
            terms.over_after(split_brain_watchdog.WATCHDOG),
            split_brain_watchdog.TAKEOVER_AFTER)


class ResidentsTestCase(base.BaseTestCase):

    def test_those_that_are_not_as_they_were(self):
        found = {'a': {'status': 'ACTIVE'}, 'b': {'status': 'ERROR'}}
        self.assertEqual([], residents.lost(['a'], found))
        self.assertEqual(['b is ERROR', 'c is gone'],
                         residents.lost(['a', 'b', 'c'], found))

    def test_they_fail_the_experiment(self):
        figures = {'error': 0, 'stuck': 0, 'not_deleted': 0, 'leaked': 0,
                   'quiet': True, 'residents_lost': []}
        self.assertEqual([], churn.failures(figures))
        self.assertEqual(1, len(churn.failures(
            figures | {'residents_lost': ['a is ERROR']})))


class AdoptionsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.adoptions = residents.Adoptions()

    def see(self, **changes):
        self.adoptions.see(
            views.changed(views.consistent(), 'instances', 0, **changes))
        return self.adoptions.count

    def test_counts_each_change_of_compute(self):
        self.assertEqual(0, self.see())
        self.assertEqual(1, self.see(host='compute-2'))
        self.assertEqual(1, self.see(host='compute-2'))
        self.assertEqual(2, self.see(host='compute-3'))

    def test_what_a_fenced_one_loses_is_none(self):
        self.adoptions.excuse('Compute-1')
        self.see()
        self.assertEqual(0, self.see(host='compute-2'))
        self.assertEqual(1, self.see(host='compute-3'))

    def test_a_build_that_tries_elsewhere_is_none(self):
        self.see(vm_state='building')
        self.assertEqual(0, self.see(host='compute-2'))

    def test_another_spelling_is_none(self):
        self.see()
        self.assertEqual(0, self.see(host='Compute-1'))
