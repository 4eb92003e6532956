# SPDX-License-Identifier: Apache-2.0

"""Three computes go from nova's own driver to ours one by one, under load.

The experiment judges itself; see ``tools/lab run rolling --help``.
"""

from lab.tests.stack import command

#: With the driver and the computes that the experiment names, and nova as
#: patient as it wants it.
SHAPE = ('--nodes', str(command.NODES), *command.AUDITS)


class RollingTestCase(command.LabTestCase):

    maxDiff = None

    def test_three_computes_change_one_by_one(self):
        figures = self.experiment('rolling', shape=SHAPE)
        self.assertEqual(3, len(figures['phases']))
        self.assertGreater(figures['active'], 3)
