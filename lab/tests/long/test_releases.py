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

"""The driver in real processes of each nova, in threads and under eventlet.

Each experiment judges itself; see ``tools/lab run NAME --help``. What is not
the default release has a Python environment of its own, which the first
experiment makes.
"""

from lab.tests.stack import command

EXPERIMENTS = {
    'kill': (),
    'restart': (),
    'dead-fenced': (),
    'churn': ('--cycles', '4'),
    'outage': ('--what', 'ironic', '--how', 'kill', '--seconds', '30'),
}


class ReleaseTestCase(command.LabTestCase):

    maxDiff = None

    def run_all(self, release, *options):
        # One that is up keeps its release.
        self.lab('down')
        self.addCleanup(self.lab, 'down')
        for name, arguments in EXPERIMENTS.items():
            with self.subTest(name):
                figures = self.experiment(name, *arguments, shape=(
                    *command.LARGE, '--release', release, *options))
                self.assertEqual(release, figures['release'])

    def test_2025_1(self):
        self.run_all('2025.1')

    def test_2025_2(self):
        self.run_all('2025.2')

    def test_2026_1(self):
        self.run_all('2026.1')

    def test_2026_2_under_eventlet(self):
        self.run_all(
            '2026.2', '--set', 'DEFAULT.concurrency_backend=eventlet')
