# SPDX-License-Identifier: Apache-2.0

"""What is around the computes is away, for a short time.

The experiment judges itself; see ``tools/lab run outage --help``. For a
minute and longer, and with all else that may be away, in lab/tests/long.
"""

from lab.tests.stack import command

SECONDS = 20


class OutageTestCase(command.LabTestCase):

    maxDiff = None

    def away(self, what, how):
        figures = self.experiment('outage', '--what', what, '--how', how,
                                  '--seconds', str(SECONDS))
        self.assertGreater(figures['active'], 0)
        return figures

    def test_builds_wait_for_ironic(self):
        self.assertEqual(0, self.away('ironic', 'kill')['error'])

    def test_operations_wait_for_the_conductor(self):
        self.away('conductor', 'freeze')
