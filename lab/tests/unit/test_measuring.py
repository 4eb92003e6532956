# SPDX-License-Identifier: Apache-2.0

import types

from oslotest import base

from lab.bench import criteria
from lab.bench import measuring


class VerdictTestCase(base.BaseTestCase):

    GOOD = {'needless': 0, 'most_moves_per_change': 1, 'unschedulable': 0,
            'quiet': True, 'left': 0, 'consistent': True}

    def unmet(self, *wanted, when='', **changes):
        return criteria.unmet(self.GOOD | changes, *wanted, when=when)

    def test_good_figures_pass(self):
        self.assertEqual([], self.unmet(
            *criteria.MOVES, criteria.LEFT, criteria.CONSISTENT))

    def test_each_bad_figure_has_its_sentence(self):
        for name, value in (
                ('needless', 3), ('most_moves_per_change', 2),
                ('unschedulable', 12), ('quiet', False)):
            with self.subTest(name):
                [sentence] = self.unmet(
                    *criteria.MOVES, when='enabled: ', **{name: value})
                self.assertTrue(sentence.startswith('enabled: '))
                if name != 'quiet':
                    self.assertIn(str(value), sentence)

    def test_an_inconsistent_lab_fails_every_experiment(self):
        verdict = measuring.verdict(
            types.SimpleNamespace(failures=lambda figures: []),
            self.GOOD | {'consistent': False})
        self.assertEqual('fail', verdict['verdict'])
        [sentence] = verdict['failed']
        self.assertIn('not consistent', sentence)

    def test_what_an_experiment_says_is_kept(self):
        module = types.SimpleNamespace(failures=lambda figures: ['so so'])
        self.assertEqual({'verdict': 'fail', 'failed': ['so so']},
                         measuring.verdict(module, self.GOOD))
        module.failures = lambda figures: []
        self.assertEqual({'verdict': 'pass', 'failed': []},
                         measuring.verdict(module, self.GOOD))
