# SPDX-License-Identifier: Apache-2.0

"""Some of Tempest's tests: servers that are rebooted, stopped, rebuilt.

The experiment judges itself; see ``tools/lab run tempest --help``. All tests
are in lab/tests/long.
"""

from lab.tests.stack import command

#: Tests of servers, of what needs no compute service, and of Ironic's nodes.
TESTS = r'ServerActionsTestJSON|ServerTagsTestJSON|TestNodeStatesV1_2\.'

#: The experiment says itself how patient nova is.
SHAPE = ('--computes', str(command.COMPUTES), '--nodes', str(command.NODES),
         *command.AUDITS)


class TempestTestCase(command.LabTestCase):

    maxDiff = None

    def test_some_tests_with_both_drivers(self):
        figures = self.experiment('tempest', '--tests', TESTS, shape=SHAPE)
        for run in ('ours', 'killed', 'stock'):
            self.assertGreater(figures[run]['passed'], command.COMPUTES)
            self.assertEqual(0, figures[run]['servers_left'])
