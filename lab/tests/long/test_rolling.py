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


"""Three computes go from nova's own driver to ours one by one, under load.

The experiment judges itself; see ``tools/lab run rolling --help``.
"""

from lab.tests.stack import command

#: With the driver and the computes that the experiment names, and nova as
#: patient as it wants it.
SHAPE = ('--nodes', str(command.NODES), *command.AUDITS)


class RollingTestCase(command.LabTestCase):

    maxDiff = None

    def test_three_computes_change_one_by_one(self):
        figures = self.experiment('rolling', shape=SHAPE)
        self.assertEqual(3, len(figures['phases']))
        self.assertGreater(figures['active'], 3)
