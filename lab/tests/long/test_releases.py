# SPDX-License-Identifier: Apache-2.0

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
