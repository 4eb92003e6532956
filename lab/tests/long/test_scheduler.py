# SPDX-License-Identifier: Apache-2.0

"""What nova's scheduler promises holds for nodes that have just moved.

The experiment judges itself; see ``tools/lab run scheduler --help``.
"""

from lab.experiments import scheduler
from lab.tests.stack import command


class SchedulerTestCase(command.LabTestCase):

    maxDiff = None

    def test_every_mechanism(self):
        figures = self.experiment('scheduler')
        self.assertEqual(
            dict.fromkeys(scheduler.MECHANISMS, 'pass'),
            figures['mechanisms'])
        self.assertGreaterEqual(figures['moved_nodes'], 4)
