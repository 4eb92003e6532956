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

"""A compute dies in the middle of builds, with machines that take their time.

The experiment judges itself; see ``tools/lab run build-restart --help``.
"""

from lab.experiments import build_restart
from lab.tests.stack import command


class BuildRestartTestCase(command.LabTestCase):

    maxDiff = None

    def test_every_situation(self):
        figures = self.experiment(
            'build-restart', shape=('--nodes', str(command.MANY_NODES)))
        self.assertEqual(
            dict.fromkeys(build_restart.SITUATIONS, build_restart.BUILDS),
            {situation: figures[situation]['active']
             for situation in build_restart.SITUATIONS})
