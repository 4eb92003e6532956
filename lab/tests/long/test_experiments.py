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

"""What functional tests and tools/compare show as well, on the real stack.

The experiments judge themselves; see ``tools/lab run NAME --help``.
"""

from lab.tests.stack import command

NODES = command.NODES


class ExperimentsTestCase(command.LabTestCase):

    maxDiff = None

    def test_freeze(self):
        figures = self.experiment('freeze')
        self.assertEqual(figures['its_nodes'], figures['moved_nodes'])

    def test_healthy(self):
        self.assertEqual(100, self.experiment('healthy')['active'])

    def test_rbac_slip(self):
        figures = self.experiment('rbac-slip')
        self.assertEqual([NODES] * 3, figures['records'])
        self.assertEqual([NODES] * 3, figures['providers'])
