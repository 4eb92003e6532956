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
