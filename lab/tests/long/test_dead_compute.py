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

"""Servers outlive a compute that nobody has fenced.

The experiment judges itself; see ``tools/lab run dead-fenced --help``.
"""

from lab.tests.stack import command


class DownTestCase(command.LabTestCase):

    maxDiff = None

    def test_down_for_long_without_a_fence(self):
        figures = self.experiment('dead-fenced', '--policy', 'down',
                                  shape=command.LARGE)
        self.assertIsNone(figures['fenced_to_last_taken_over'])
        # It has to be sure first.
        self.assertGreater(figures['killed_to_last_taken_over'], 15)
        self.assertNotIn(None, figures['operations'].values())
        self.assertNotIn(None, figures['asked_before'].values())
