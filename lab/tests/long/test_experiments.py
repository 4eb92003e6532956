# SPDX-License-Identifier: Apache-2.0

"""What other tests show as well, on the real stack.

A compute that is added: the upgrade and the demonstration; one that is
drained: a night of an operator; one that is restarted: builds that outlive
that; the others: functional tests and tools/compare.

The experiments judge themselves; see ``tools/lab run NAME --help``.
"""

from lab.tests.stack import command

COMPUTES = command.COMPUTES
NODES = command.NODES


class ExperimentsTestCase(command.LabTestCase):

    maxDiff = None

    def test_add(self):
        figures = self.experiment('add')
        self.assertEqual(COMPUTES + 1, len(figures['split']))
        rows = self.lab('status', '--json').answer['computes']
        self.assertEqual(COMPUTES, len(rows))

    def test_drain(self):
        figures = self.experiment('drain')
        self.assertEqual(0, figures['disabled']['left'])
        self.assertEqual(figures['its_nodes'],
                         figures['disabled']['moved_nodes'])
        self.assertEqual(figures['its_nodes'], figures['enabled']['left'])

    def test_freeze(self):
        figures = self.experiment('freeze')
        self.assertEqual(figures['its_nodes'], figures['moved_nodes'])

    def test_freeze_again_and_again(self):
        figures = self.experiment(
            'freeze', '--rounds', '4', shape=(
                '--computes', str(COMPUTES), '--nodes', str(NODES),
                '--set', 'DEFAULT.update_resources_interval=30'))
        self.assertLessEqual(
            sum(figures['moves_in_rounds']), 2 * figures['its_nodes'])

    def test_healthy(self):
        self.assertEqual(100, self.experiment('healthy')['active'])

    def test_rbac_slip(self):
        figures = self.experiment('rbac-slip')
        self.assertEqual([NODES] * 3, figures['records'])
        self.assertEqual([NODES] * 3, figures['providers'])

    def test_restart(self):
        figures = self.experiment('restart')
        self.assertEqual(figures['its_nodes'], figures['moved_nodes'])
