# SPDX-License-Identifier: Apache-2.0

"""What happens to nodes when computes come, go, hang and lose their sight.

Each experiment judges itself by the criteria that it explains with
``tools/lab run NAME --help``. Those that run in one process share a lab. What
takes long, as many deaths one after the other, is in lab/tests/long, and what
other tests here show as well.
"""

from lab.tests.stack import command

COMPUTES = command.COMPUTES
NODES = command.NODES

#: One of the computes has so many nodes.
BUILDS = NODES // COMPUTES

#: With the patience that the experiment wants nova to have.
RESTARTED = ('--computes', str(COMPUTES), '--nodes', str(NODES),
             *command.AUDITS)
PATIENT = ('--computes', str(COMPUTES), '--nodes', str(NODES), *command.AUDITS,
           '--set', 'DEFAULT.service_down_time=30')


class ExperimentsTestCase(command.LabTestCase):

    maxDiff = None

    def test_cold_start(self):
        # On a busy machine heartbeats are late when all start at once, and
        # who is seen down for a moment loses nodes for good reason.
        figures = self.experiment('coldstart', shape=PATIENT)
        self.assertGreaterEqual(figures['created'], NODES)
        self.assertEqual(NODES, sum(figures['split']))

    def test_questions_while_nothing_happens_do_not_grow_with_nodes(self):
        few, many = (self.experiment(
            'steady', '--questions', shape=shape)
            for shape in (command.SHAPE, command.LARGE))
        for service, asked in few['asked'].items():
            self.assertLessEqual(
                many['asked'][service], 1.2 * asked + 3 * COMPUTES,
                (service, few['questions'], many['questions']))
        # At every tenth audit, of which there are seven or eight.
        count, _ = many['questions'].get(
            'conductor: ComputeNodeList.get_all_by_host', (0, 0))
        self.assertLessEqual(count, COMPUTES)

    def test_builds_outlive_a_restart(self):
        figures = self.experiment(
            'build-restart', '--situation', 'waiting', '--builds',
            str(BUILDS), '--seconds', '8', shape=RESTARTED)['waiting']
        self.assertEqual(BUILDS, figures['active'])
        self.assertLessEqual({'deploying', 'unclaimed'},
                             figures['before'].keys())

    def test_fence_alive(self):
        figures = self.experiment('fence-alive')
        self.assertEqual(0, figures['forced_down']['left'])
        self.assertEqual(figures['its_nodes'], figures['freed']['left'])

    def test_reaction(self):
        # The other tests show what comes of frequent audits.
        figures = self.experiment('reaction', '--every', '600')['every_600_s']
        self.assertEqual(figures['its_free_nodes'], figures['moved_nodes'])

    def test_reaction_without_placement(self):
        # What fails in the one look after a death is tried by the next ones.
        figures = self.experiment(
            'reaction', '--every', '600', '--without', 'placement')
        figures = figures['every_600_s']
        self.assertEqual(figures['its_free_nodes'], figures['moved_nodes'])
