# SPDX-License-Identifier: Apache-2.0

"""Servers outlive a compute that nobody has fenced.

The experiment judges itself; see ``tools/lab run dead-fenced --help``.
"""

from lab.tests.stack import command


class DownTestCase(command.LabTestCase):

    maxDiff = None

    def test_down_for_long_without_a_fence(self):
        figures = self.experiment('dead-fenced', '--policy', 'down',
                                  shape=command.LARGE)
        self.assertIsNone(figures['fenced_to_last_taken_over'])
        # It has to be sure first.
        self.assertGreater(figures['killed_to_last_taken_over'], 15)
        self.assertNotIn(None, figures['operations'].values())
        self.assertNotIn(None, figures['asked_before'].values())
