# SPDX-License-Identifier: Apache-2.0

"""Servers outlive their compute.

The experiments judge themselves; see ``tools/lab run dead-fenced --help`` and
``tools/lab run split-brain --help``, and of ``split-brain-watchdog``.
"""

from lab.tests.stack import command

OPERATIONS = {'reboot', 'soft reboot', 'stop', 'start', 'rebuild 2.92',
              'rebuild 2.96', 'rescue', 'unrescue', 'delete', 'force-delete'}


class DeadComputeTestCase(command.LabTestCase):

    maxDiff = None

    def test_fenced(self):
        figures = self.experiment('dead-fenced', shape=command.LARGE)
        self.assertIsNotNone(figures['fenced_to_last_taken_over'])
        self.assertLessEqual(OPERATIONS, figures['operations'].keys())
        self.assertNotIn(None, figures['operations'].values())
        self.assertNotIn(None, figures['asked_before'].values())

    def test_split_brain(self):
        figures = self.experiment('split-brain', shape=command.LARGE)
        self.assertEqual([], figures['lost'])
        self.assertIn(figures['build'], ('ACTIVE', 'ERROR'))
        self.assertNotIn(None, figures['operations'].values())

    def test_split_brain_that_a_watchdog_ends(self):
        figures = self.experiment(
            'split-brain-watchdog', shape=command.LARGE)
        self.assertEqual([], figures['lost'])
        self.assertGreater(figures['killed_to_first_taken_over'], 0)
        self.assertNotIn(None, figures['operations'].values())
