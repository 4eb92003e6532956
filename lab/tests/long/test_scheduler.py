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


"""What nova's scheduler promises holds for nodes that have just moved.

The experiment judges itself; see ``tools/lab run scheduler --help``.
"""

from lab.experiments import scheduler
from lab.tests.stack import command


class SchedulerTestCase(command.LabTestCase):

    maxDiff = None

    def test_every_mechanism(self):
        figures = self.experiment('scheduler')
        self.assertEqual(
            dict.fromkeys(scheduler.MECHANISMS, 'pass'),
            figures['mechanisms'])
        self.assertGreaterEqual(figures['moved_nodes'], 4)
