# SPDX-License-Identifier: Apache-2.0

"""drain and fence-alive, which differ in what is done to the compute."""

import types

from oslotest import base

from lab.experiments import drain
from lab.experiments import fence_alive

REST = {'needless': 0, 'most_moves_per_change': 1, 'unschedulable': 0,
        'quiet': True, 'left': 0}


class PhasesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.done = []
        self.bench = types.SimpleNamespace(
            busiest=('compute-2', ['node-1', 'node-2']), phase=self.phase)

    def phase(self, action, name):
        self.done.append((action, name))
        # What it had comes back in the end.
        return REST | {'left': 0 if len(self.done) == 1 else 2}

    def test_out_and_back(self):
        for module, label, actions in (
                (drain, 'drained', ('disable', 'enable')),
                (fence_alive, 'fenced', ('fence', 'unfence'))):
            self.done.clear()
            figures = module.run(self.bench)
            self.assertEqual([(action, 'compute-2') for action in actions],
                             self.done)
            self.assertEqual(('compute-2', 2),
                             (figures[label], figures['its_nodes']))
            self.assertEqual([], module.failures(figures))

    def test_names_the_phase_of_what_is_wrong(self):
        figures = fence_alive.run(self.bench)
        figures['forced_down']['left'] = 3
        figures['freed']['needless'] = 4
        self.assertEqual(
            ['forced down: 3 free nodes are left on the compute',
             'freed: 4 moves from a live compute to one that the ring does '
             'not prefer'], fence_alive.failures(figures))
