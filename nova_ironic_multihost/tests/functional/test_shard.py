# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A compute that serves a shard of Ironic's nodes."""

from nova_ironic_multihost.tests.functional import base


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
