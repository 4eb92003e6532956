# SPDX-License-Identifier: Apache-2.0

"""Computes die under load and are fenced, or end politely, over and over.

Each takes about a quarter of an hour, and is therefore no part of the tests
that run all the time. The experiment judges itself; see ``tools/lab run churn
--help``.
"""

from lab.tests.stack import command

NODES = 30
CYCLES = 20


class ChurnTestCase(command.LabTestCase):

    maxDiff = None

    def churn(self, *options):
        figures = self.experiment(
            'churn', '--cycles', str(CYCLES), *options,
            shape=('--nodes', str(NODES)))
        self.assertEqual((CYCLES, 0, 0), (
            figures['cycles'], figures['leaked'], figures['error']))
        return figures

    def test_without_fencing(self):
        self.churn()

    def test_with_fencing(self):
        figures = self.churn('--fence')
        self.assertGreater(figures['fenced'], 0)
        self.assertGreater(figures['taken_over'], 0)

    def test_polite(self):
        self.churn('--polite')
