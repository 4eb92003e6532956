# SPDX-License-Identifier: Apache-2.0

"""A compute that serves a shard of Ironic's nodes."""

from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import dead


class ShardTestCase(base.MultiHostTestCase):

    def test_compute_has_the_nodes_of_its_shard_only(self):
        here = self.ironic.enroll(3, shard='here')
        self.ironic.enroll(2, shard='elsewhere')
        self.ironic.enroll(1)
        self.flags(shard='here', group='ironic')

        self.fleet.start('host1')

        self.assertCountEqual(here, self.settle())
        self.assertCountEqual(here, self.providers())
        self.assertIn(self.node_of(self.boot()), here)

    def test_peers_share_a_shard(self):
        here = self.ironic.enroll(6, shard='here')
        self.ironic.enroll(2, shard='elsewhere')
        self.flags(shard='here', peer_list=['HOST1', 'host2'],
                   group='ironic')

        self.fleet.start('host1', 'host2')

        owners = self.settle()
        self.assertCountEqual(here, owners)
        self.assertEqual({'host1', 'host2'}, set(owners.values()))
        self.fleet.kill('host2')
        self.assertEqual({'host1'}, set(self.settle().values()))

    def test_node_that_changes_its_shard_is_let_go(self):
        node, other = self.ironic.enroll(2, shard='here')
        self.flags(shard='here', group='ironic')
        self.fleet.start('host1')
        self.settle()

        self.ironic.client.node.update(node, [
            {'op': 'replace', 'path': '/shard', 'value': 'there'}])
        self.flags(shard='there', group='ironic')
        self.fleet.start('host2')
        for _ in range(3):
            self.fleet.audit('host2')

        self.assertEqual({node: 'host2', other: 'host1'}, self.owners())


class DeadShardTestCase(dead.DeadComputeTestCase):
    """Each has a shard of its own: host1 'here', host2 'there'."""

    def configure(self):
        self.fleet.configure('host1', shard='here', peer_list=[])
        self.fleet.configure('host2', shard='there', peer_list=[])

    def enroll(self):
        return [*self.ironic.enroll(2, shard='here'),
                *self.ironic.enroll(1, shard='there')]

    def move(self, *nodes):
        for node in nodes:
            self.ironic.client.node.update(node, [
                {'op': 'replace', 'path': '/shard', 'value': 'there'}])

    def test_server_whose_node_went_to_a_live_shard_before(self):
        self.move(self.node)
        self.die()
        self.fleet.look('host2')
        self.join()
        self.assertEqual(('host2', 'active', None), self.states())
        self.audit()
        self.assertEqual('host2', self.owners()[self.node])
        self.delete(self.server)
        self.assertIsNone(self.machine().instance_uuid)

    def test_server_that_a_third_one_was_about_to_take(self):
        self.move(self.node)
        self.die(task_state=takeover.taking('powering-off', 'host3'))
        self.audit()
        self.assertEqual(('host2', 'stopped', None), self.states())

    def test_server_whose_node_goes_there_afterwards(self):
        self.die()
        for _ in range(2):
            self.audit()
        self.assertEqual(('host1', 'active', None), self.states())
        self.move(*self.nodes)
        for _ in range(2):
            self.audit()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual({'host2'}, set(self.owners().values()))

    def test_server_of_one_that_is_no_peer_any_more(self):
        self.die()
        self.fleet.configure('host2', shard='here', peer_list=[])
        self.fleet.stop('host2')
        self.fleet.start('host2')
        self.audit()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual('host2', self.owners()[self.node])
