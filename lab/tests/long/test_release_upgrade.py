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

"""The computes of a lab go from one nova to a later one, one by one.

The experiment judges itself; see ``tools/lab run release-upgrade --help``.
"""

from lab.tests.stack import command

#: The experiment says itself how patient nova is.
SHAPE = ('--computes', str(command.COMPUTES), '--nodes',
         str(command.MANY_NODES), *command.AUDITS)


class ReleaseUpgradeTestCase(command.LabTestCase):

    maxDiff = None

    def upgrade(self, older, newer):
        # One that is up keeps its release.
        self.lab('down')
        self.addCleanup(self.lab, 'down')
        figures = self.experiment('release-upgrade', '--from', older,
                                  '--to', newer, shape=SHAPE)
        self.assertEqual((older, newer), (figures['from'], figures['to']))
        self.assertGreater(figures['active'], command.COMPUTES)

    def test_from_2026_1_to_2026_2(self):
        self.upgrade('2026.1', '2026.2')

    def test_from_one_slurp_release_to_the_next(self):
        self.upgrade('2025.1', '2026.1')
