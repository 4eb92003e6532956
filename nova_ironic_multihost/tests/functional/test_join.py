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

"""Computes join."""

from nova_ironic_multihost.tests.functional import base


class JoinTestCase(base.MultiHostTestCase):

    def test_first_compute_owns_all_nodes(self):
        nodes = self.ironic.enroll(4)
        self.fleet.start('host1')
        self.assertEqual({node: 'host1' for node in nodes}, self.settle())
        self.assertCountEqual(nodes, self.providers())

    def test_nodes_are_shared_with_computes_that_join(self):
        nodes = self.ironic.enroll(9)
        self.fleet.start('host1')
        self.fleet.audit()
        self.mark_providers()

        for joining in ('Host2', 'host3'):
            before = self.owners()
            self.fleet.start(joining)
            after = self.settle()
            self.assertCountEqual(nodes, after)
            self.assertCountEqual(self.fleet.hosts, set(after.values()))
            # The others keep what they have or give it to the one that joins.
            moved = {node for node in nodes if before[node] != after[node]}
            self.assertEqual({joining}, {after[node] for node in moved})

        self.assertProvidersKept(nodes)

    def test_ownership_stands_still_between_changes(self):
        self.ironic.enroll(9)
        self.fleet.start('host1', 'host2', 'host3')
        owners = self.settle()
        for hosts in (('host3', 'host1', 'host2'), ('host2', 'host2'),
                      ('host1', 'host3')):
            self.fleet.audit(*hosts)
            self.assertEqual(owners, self.owners())
