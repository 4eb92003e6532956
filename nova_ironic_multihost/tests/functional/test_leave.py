# SPDX-License-Identifier: Apache-2.0

"""Computes die, are stopped, and come back."""

from nova_ironic_multihost.tests.functional import base


class LeaveTestCase(base.MultiHostTestCase):

    def setUp(self):
        super().setUp()
        self.nodes = self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        self.before = self.settle()
        self.mark_providers()

    def test_free_nodes_of_a_dead_compute_go_to_the_others(self):
        self.fleet.kill('host2')
        after = self.settle()

        self.assertCountEqual(self.nodes, after)
        self.assertCountEqual(['host1', 'host3'], set(after.values()))
        for node, owner in self.before.items():
            if owner != 'host2':
                self.assertEqual(owner, after[node])
        self.assertProvidersKept(self.nodes)

    def test_nodes_with_servers_stay_with_a_dead_compute(self):
        server = self.boot('host2')
        node = self.node_of(server)

        self.fleet.kill('host2')
        after = self.settle()

        self.assertCountEqual(self.nodes, after)
        self.assertEqual({node}, self.nodes_of('host2'))
        self.assertEqual('host2', self.host_of(self.show(server)))
        self.assertEqual(
            server['id'], self.ironic.client.node.get(node).instance_uuid)
        self.assertProvidersKept(self.nodes)

    def test_compute_comes_back(self):
        server = self.boot('host2')
        self.fleet.kill('host2')
        self.settle()

        self.fleet.start('host2')
        after = self.settle()

        self.assertEqual(self.before, after)
        server = self.show(server)
        self.assertEqual('ACTIVE', server['status'])
        self.assertEqual('host2', self.host_of(server))
        self.assertProvidersKept(self.nodes)

    def test_nothing_moves_while_nova_believes_it_is_up(self):
        self.fleet.stop('host2')
        self.assertEqual(self.before, self.settle())

        self.fleet.start('host2')
        self.assertEqual(self.before, self.settle())
        self.assertProvidersKept(self.nodes)

    def test_last_compute_takes_everything(self):
        self.fleet.kill('host1')
        self.fleet.kill('host3')
        self.assertEqual({'host2'}, set(self.settle().values()))
        self.assertProvidersKept(self.nodes)
