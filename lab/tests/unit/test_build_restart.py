# SPDX-License-Identifier: Apache-2.0

"""What build-restart sees, counts and must come to."""

import argparse

from oslotest import base

from lab import errors
from lab.experiments import build_restart

GOOD = {'error': 0, 'building': 0, 'gone': 0, 'at_rest_after': 40.0,
        'left_on_dead': 0, 'not_on_one_machine': 0}
RETURNED = {'changed': [], 'touched': [], 'deeds': {}}


class OptionsTestCase(base.BaseTestCase):

    def parsed(self, *argv):
        parser = argparse.ArgumentParser()
        build_restart.add_options(parser)
        return parser.parse_args(argv)

    def test_all_situations_unless_told_otherwise(self):
        self.assertEqual(
            ('deploying', 'queued', 'waiting', 'fenced'),
            build_restart.choices(self.parsed())['situations'])
        self.assertEqual(
            ('queued', 'waiting'), build_restart.choices(self.parsed(
                '--situation', 'queued', '--situation', 'waiting')
            )['situations'])

    def test_one_build_cannot_wait_for_another(self):
        error = self.assertRaises(
            errors.LabError, build_restart.choices,
            self.parsed('--builds', '1'))
        self.assertIn('--builds 2', str(error))

    def test_the_lab_deploys_slowly_and_all_at_a_time(self):
        wanted = build_restart.needs(
            self.parsed('--builds', '12', '--seconds', '9')).options
        # Two parts; half a second too many rather than too few.
        self.assertIn('ironic:fake.deploy_delay=5', wanted)
        # nova's threads are as many as the larger of the two.
        self.assertIn('DEFAULT.max_concurrent_builds=12', wanted)
        self.assertIn('DEFAULT.max_concurrent_snapshots=12', wanted)


class FailuresTestCase(base.BaseTestCase):

    def failures(self, changes=None, returned=None, **more):
        return build_restart.failures({
            'situations': ['queued', 'fenced'], 'leaked': 0, 'quiet': True,
            'queued': GOOD, 'fenced': {
                **GOOD, **(changes or {}),
                'after_return': {**RETURNED, **(returned or {})}}, **more})

    def test_good(self):
        self.assertEqual([], self.failures())

    def test_each_bad_figure_has_its_sentence(self):
        for figure in GOOD:
            bad = None if figure == 'at_rest_after' else 2
            [sentence] = self.failures({figure: bad})
            self.assertTrue(sentence.startswith('fenced: '), sentence)
        for more in {'leaked': 1}, {'quiet': False}:
            self.assertEqual(1, len(self.failures(**more)))

    def test_the_one_that_returns_does_nothing(self):
        for returned in {'changed': ['build-1: host']}, {'touched': ['b']}:
            [sentence] = self.failures(returned=returned)
            self.assertIn('returned', sentence)
