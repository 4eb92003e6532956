# SPDX-License-Identifier: Apache-2.0

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
