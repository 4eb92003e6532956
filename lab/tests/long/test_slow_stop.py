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

"""A compute takes minutes to stop, for its machines take long to deploy.

The experiment judges itself; see ``tools/lab run slow-stop --help``.
"""

from lab.experiments import slow_stop
from lab.tests.stack import command

#: The experiment says itself how patient nova is.
SHAPE = ('--computes', str(command.COMPUTES), '--nodes',
         str(command.MANY_NODES), *command.AUDITS)


class SlowStopTestCase(command.LabTestCase):

    maxDiff = None

    def test_free_nodes_do_not_wait_for_the_end(self):
        figures = self.experiment('slow-stop', shape=SHAPE)
        self.assertEqual((slow_stop.BUILDS, slow_stop.LATER),
                         (figures['own']['active'],
                          figures['later']['active']))
        self.assertGreater(figures['ended_after'], figures['limit'])
