# SPDX-License-Identifier: Apache-2.0

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
