# SPDX-License-Identifier: Apache-2.0

"""The clock of one compute is wrong.

The experiment judges itself; see ``tools/lab run clock --help``.
"""

from lab.tests.stack import command


class ClockTestCase(command.LabTestCase):

    maxDiff = None

    def test_ahead(self):
        self.assertEqual(90, self.experiment('clock')['ahead'])

    def test_behind(self):
        self.assertEqual(
            -90, self.experiment('clock', '--ahead', '-90')['ahead'])
