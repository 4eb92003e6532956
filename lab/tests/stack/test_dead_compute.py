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

"""Servers outlive their compute.

The experiments judge themselves; see ``tools/lab run dead-fenced --help`` and
``tools/lab run split-brain --help``. Each brings up the lab that it begins
with.
"""

from lab.tests.stack import command
from lab.tests.stack import test_experiments

OPERATIONS = {'reboot', 'soft reboot', 'stop', 'start', 'rebuild 2.92',
              'rebuild 2.96', 'rescue', 'unrescue', 'delete', 'force-delete'}


class DeadComputeTestCase(command.LabTestCase):

    maxDiff = None

    def setUp(self):
        super().setUp()
        # What an interrupted run may have left.
        self.lab('down')
        self.addCleanup(command.Command, 'down')

    def experiment(self, name, *arguments):
        """Run one that has to pass; returns its figures."""
        figures = self.lab('run', name, *test_experiments.SHAPE, '--assert',
                           '--json', *arguments).answer
        self.assertEqual(('pass', []),
                         (figures['verdict'], figures['failed']))
        return figures

    def check_operations(self, figures):
        self.assertLessEqual(OPERATIONS, figures['operations'].keys())
        self.assertNotIn(None, figures['operations'].values())
        self.assertNotIn(None, figures['asked_before'].values())

    def test_fenced(self):
        figures = self.experiment('dead-fenced')
        self.assertIsNotNone(figures['fenced_to_last_taken_over'])
        self.check_operations(figures)

    def test_down_for_long_without_a_fence(self):
        figures = self.experiment('dead-fenced', '--policy', 'down')
        self.assertIsNone(figures['fenced_to_last_taken_over'])
        # It has to be sure first.
        self.assertGreater(figures['killed_to_last_taken_over'], 15)
        self.check_operations(figures)

    def test_split_brain(self):
        figures = self.experiment('split-brain')
        self.assertEqual([], figures['lost'])
        self.assertIn(figures['build'], ('ACTIVE', 'ERROR'))
        self.assertNotIn(None, figures['operations'].values())
