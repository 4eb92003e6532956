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
