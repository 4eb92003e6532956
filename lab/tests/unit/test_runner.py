# SPDX-License-Identifier: Apache-2.0

import argparse
import contextlib
import io

from oslotest import base

from lab import configuration
from lab import experiments
from lab.experiments import churn
from lab.experiments import dead_fenced
from lab import runner
from nova_ironic_multihost.rules import takeover


class CommandTestCase(base.BaseTestCase):

    def parse(self, *argv):
        parser = argparse.ArgumentParser()
        runner.register(parser.add_subparsers())
        return parser.parse_args(['run', *argv])

    def printed_by(self, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.assertRaises(SystemExit, self.parse, *argv)
        return out.getvalue()

    def test_every_experiment_explains_its_figures(self):
        for name in experiments.NAMES:
            self.assertIn('igures', self.printed_by(name, '--help'))

    def test_no_such_experiment(self):
        self.assertIn('invalid choice', self.printed_by('party'))

    def test_a_lab_without_nodes_is_refused(self):
        self.assertIn('must be 1 or more',
                      self.printed_by('kill', '--nodes', '0'))

    def test_every_experiment_says_what_its_figures_must_be(self):
        for name in experiments.NAMES:
            with self.subTest(name):
                self.assertTrue(callable(experiments.load(name).failures))

    def test_judging_is_a_choice(self):
        self.assertFalse(self.parse('drain').strict)
        args = self.parse('fence-alive', '--assert', '--set', 'a.b=c')
        self.assertTrue(args.strict)
        self.assertEqual(['a.b=c'], args.options)

    def test_options(self):
        args = self.parse('churn', '--driver', 'stock', '--seed', '7')
        self.assertEqual(('churn', 'stock', 7, 10, False),
                         (args.experiment, args.driver, args.seed,
                          args.cycles, args.fence))
        self.assertEqual({'cycles': 10, 'seed': 7, 'fence': False,
                          'polite': False},
                         churn.choices(args))
        self.assertTrue(self.parse('churn', '--fence').fence)

    def test_a_run_without_a_seed_gets_one_that_it_prints(self):
        self.assertIsInstance(
            churn.choices(self.parse('churn'))['seed'], int)

    def test_policies_are_what_the_driver_knows(self):
        for policy, options in dead_fenced.POLICIES.items():
            args = self.parse('dead-fenced', '--policy', policy)
            self.assertEqual({'policy': policy}, dead_fenced.choices(args))
            self.assertEqual(options, dead_fenced.needs(args).options)
            self.assertIn(policy, takeover.POLICIES)
            value = configuration.overrides(options).get(
                'ironic_multihost', {}).get('instance_takeover')
            # The default of the driver needs no option.
            self.assertEqual(
                None if policy == takeover.FORCED_DOWN else policy, value)
