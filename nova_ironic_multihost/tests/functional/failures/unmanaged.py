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

"""A node is enrolled beside a compute that serves a shard only."""

from nova_ironic_multihost.tests.functional.failures import base


class Unmanaged(base.FailureTestCase):
    """New nodes are nobody's when the ring gives them to a shard's compute.

    A compute without a shard counts the one with a shard as a peer for all
    nodes; that one does not even list nodes outside of its shard.
    """

    def test(self):
        self.ironic.enroll(2, shard='here')
        self.fleet.configure('host2', shard='here')
        self.fleet.start('host1', 'host2')
        self.watch(2)

        new = self.ironic.enroll(6)
        self.watch(5)

        unmanaged = len(set(new) - set(self.fleet.records()))
        if unmanaged:
            self.failure_shown(
                f'{unmanaged} of 6 new nodes had no owner after five audits.')
        self.failure_absent('All 6 new nodes had an owner.')
