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
import io

from oslotest import base

from lab import errors
from lab import experiments
from lab.experiments import deadops
from lab import view
from nova_ironic_multihost.tests.unit.lab import views

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

    def test_command_line_fills_in_what_is_free(self):
        wanted = experiments.Wanted(computes=1).asked(None, 12, 'ours')
        self.assertEqual(experiments.Wanted(1, 12, 'ours'), wanted)

    def test_command_line_cannot_change_what_it_is_for(self):
        wanted = experiments.Wanted(computes=1, driver='stock')
        error = self.assertRaises(
            errors.LabError, wanted.asked, None, None, 'ours')
        self.assertIn('--driver stock', str(error))
        self.assertEqual(wanted, wanted.asked(1, None, 'stock'))


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

    def test_options(self):
        args = self.parse('churn', '--driver', 'stock', '--seed', '7')
        self.assertEqual(('churn', 'stock', 7, 10),
                         (args.experiment, args.driver, args.seed,
                          args.cycles))


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
        self.assertEqual('gone', deadops.outcome(view.View(), 'server-0'))
