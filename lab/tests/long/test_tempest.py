# SPDX-License-Identifier: Apache-2.0

"""All of Tempest's tests of the compute API, and of Ironic's.

The experiment judges itself; see ``tools/lab run tempest --help``.
"""

from lab.tests.stack import command

#: Of five rounds of hundreds of tests.
DEADLINE = 4 * 3600

#: The experiment says itself how patient nova is.
SHAPE = ('--computes', str(command.COMPUTES), '--nodes',
         str(command.MANY_NODES), *command.AUDITS)


class TempestTestCase(command.LabTestCase):

    maxDiff = None

    def test_all_tests_with_both_drivers(self):
        figures = self.experiment('tempest', shape=SHAPE, deadline=DEADLINE)
        for run in ('ours', 'killed', 'stock'):
            self.assertGreater(figures[run]['passed'], 300)
        for run in ('ours-ironic', 'stock-ironic'):
            self.assertGreater(figures[run]['passed'], 100)
