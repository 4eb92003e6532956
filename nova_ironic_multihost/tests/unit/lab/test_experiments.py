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

import argparse
import contextlib
import importlib
import io
import types

from oslotest import base

from lab import configuration
from lab import errors
from lab import experiments
from lab.experiments import criteria
from lab.experiments import deadops
from lab.experiments import rbac_slip
from nova_ironic_multihost import consistency
from nova_ironic_multihost import takeover
from nova_ironic_multihost.tests.unit import views

SHAPE = {'computes': ['compute-1', 'compute-2', 'compute-3'], 'nodes': 30,
         'driver': 'ours', 'options': []}


class WantedTestCase(base.BaseTestCase):

    def test_anything_will_do(self):
        self.assertEqual('', experiments.Wanted().differs(SHAPE))

    def test_the_same(self):
        self.assertEqual(
            '', experiments.Wanted(3, 30, 'ours').differs(SHAPE))

    def test_tells_each_difference(self):
        self.assertEqual(
            'computes 3 instead of 4, driver ours instead of stock',
            experiments.Wanted(4, 30, 'stock').differs(SHAPE))

    def test_options_that_it_needs(self):
        wanted = experiments.Wanted(options=('a.b=c',))
        self.assertEqual('not up with --set a.b=c', wanted.differs(SHAPE))
        self.assertEqual(
            '', wanted.differs(SHAPE | {'options': ['x.y=z', 'a.b=c']}))

    def test_brings_up_a_lab_of_the_usual_size(self):
        self.assertEqual((3, 30, 'ours', ()), experiments.Wanted().complete)
        self.assertEqual((1, 30, 'stock', ('a.b=c',)), experiments.Wanted(
            computes=1, driver='stock', options=('a.b=c',)).complete)

    def test_only_the_very_same_lab_is_what_it_would_bring_up(self):
        self.assertTrue(experiments.Wanted().made(SHAPE))
        for differing in (
                {'computes': ['compute-1']}, {'nodes': 12},
                {'driver': 'stock'}, {'options': ['x.y=z']}):
            self.assertFalse(
                experiments.Wanted().made(SHAPE | differing), differing)

    def test_command_line_fills_in_what_is_free(self):
        wanted = experiments.Wanted(computes=1).asked(None, 12, 'ours')
        self.assertEqual(experiments.Wanted(1, 12, 'ours'), wanted)

    def test_command_line_cannot_change_what_it_is_for(self):
        wanted = experiments.Wanted(computes=1, driver='stock')
        error = self.assertRaises(
            errors.LabError, wanted.asked, None, None, 'ours')
        self.assertIn('--driver stock', str(error))
        self.assertEqual(wanted, wanted.asked(1, None, 'stock'))

    def test_options_of_the_command_line_come_on_top(self):
        wanted = experiments.Wanted(options=('a.b=c',)).asked(
            None, None, None, ['x.y=z'])
        self.assertEqual(('a.b=c', 'x.y=z'), wanted.options)


class CommandTestCase(base.BaseTestCase):

    def parse(self, *argv):
        parser = argparse.ArgumentParser()
        experiments.register(parser.add_subparsers())
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
                module = importlib.import_module(
                    f'lab.experiments.{name.replace("-", "_")}')
                self.assertTrue(callable(module.failures))

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
        self.assertTrue(self.parse('churn', '--fence').fence)

    def test_policies_are_what_the_driver_knows(self):
        for policy, options in experiments.POLICIES.items():
            self.assertEqual(
                policy, self.parse('dead-fenced', '--policy', policy).policy)
            self.assertIn(policy, takeover.POLICIES)
            value = configuration.overrides(options).get(
                'ironic_multihost', {}).get('instance_takeover')
            # The default of the driver needs no option.
            self.assertEqual(
                None if policy == takeover.FORCED_DOWN else policy, value)


class DeadopsTestCase(base.BaseTestCase):

    def outcome(self, **changes):
        seen = views.changed(views.consistent(), 'instances', 0, **changes)
        return deadops.outcome(seen, 'server-0')

    def test_as_nova_has_it(self):
        self.assertEqual('active', self.outcome())
        self.assertEqual('active, in rebooting',
                         self.outcome(task_state='rebooting'))

    def test_gone_with_its_machine_left_behind(self):
        self.assertEqual('gone, machine leaked', self.outcome(deleted=True))

    def test_gone(self):
        self.assertEqual('gone', deadops.outcome(consistency.Observation(),
                                                 'server-0'))


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
        verdict = experiments.verdict(
            types.SimpleNamespace(failures=lambda figures: []),
            self.GOOD | {'consistent': False})
        self.assertEqual('fail', verdict['verdict'])
        [sentence] = verdict['failed']
        self.assertIn('not consistent', sentence)

    def test_what_an_experiment_says_is_kept(self):
        module = types.SimpleNamespace(failures=lambda figures: ['so so'])
        self.assertEqual({'verdict': 'fail', 'failed': ['so so']},
                         experiments.verdict(module, self.GOOD))
        module.failures = lambda figures: []
        self.assertEqual({'verdict': 'pass', 'failed': []},
                         experiments.verdict(module, self.GOOD))


class RbacSlipTestCase(base.BaseTestCase):

    def test_remembers_the_worst_moment(self):
        good = views.consistent()
        witness = rbac_slip.Witness(good)
        witness.see(views.without(good, 'records', 1))
        witness.see(views.without(
            views.without(good, 'providers', 2), 'providers', 2))
        witness.see(good)
        self.assertEqual((5, 4), (witness.fewest_records,
                                  witness.fewest_providers))
        self.assertEqual({'node-1', 'node-2', 'node-3'}, witness.deleted)

    def test_nothing_lost(self):
        good = views.consistent()
        witness = rbac_slip.Witness(good)
        witness.see(good)
        self.assertEqual(set(), witness.deleted)
        self.assertEqual(set(), rbac_slip.recreated(good, good))

    def test_another_one_of_the_same_name(self):
        good = views.consistent()
        after = views.changed(good, 'records', 1, id=7)
        after = views.changed(after, 'providers', 2, id=7)
        self.assertEqual({'node-1', 'node-2'},
                         rbac_slip.recreated(good, after))

    def test_one_that_is_missing_is_not_another_one(self):
        good = views.consistent()
        self.assertEqual(set(), rbac_slip.recreated(
            good, views.without(good, 'records', 1)))
