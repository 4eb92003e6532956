# SPDX-License-Identifier: Apache-2.0

"""From nova's own driver to ours, and back, with servers.

The experiment judges itself; see ``tools/lab run upgrade --help``. One compute
after the other, under load: lab/tests/long.
"""

from lab.tests.stack import command

#: With the driver and the computes that the experiment names. Nobody dies, and
#: on a busy machine who is seen down for a moment loses nodes for good reason.
PATIENT = ('--nodes', str(command.NODES), *command.AUDITS,
           '--set', 'DEFAULT.service_down_time=30')


class UpgradeTestCase(command.LabTestCase):

    maxDiff = None

    def test_one_compute_becomes_three_and_one_again(self):
        phases = self.experiment('upgrade', shape=PATIENT)['phases']
        self.assertEqual(
            ['stock', 'one of ours', 'three of ours', 'drained to one',
             'stock again'], list(phases))
        self.assertEqual(3, len(phases['three of ours']['free']))
        for name in ('one of ours', 'stock again'):
            self.assertEqual(0, phases[name]['moves'])
            self.assertEqual(1, len(phases[name]['free']))
        for name, phase in phases.items():
            self.assertGreaterEqual(phase['servers_working'], 3, name)
            self.assertEqual(phase['servers'], phase['servers_working'])
