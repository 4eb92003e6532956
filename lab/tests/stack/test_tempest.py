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
