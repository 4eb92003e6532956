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

"""A node's record moves while a build for it waits."""

from nova_ironic_multihost.tests.functional.failures import base


class Unclaimed(base.FailureTestCase):
    """A build that waits for its turn finds its node moved, and fails.

    Whoever prefers a node takes it although placement has allocated it; the
    compute that the build was sent to then refuses the claim.
    """

    def test(self):
        self.ironic.enroll(4)
        self.fleet.start('host2', 'host4')
        self.settle()
        self.fleet.lose('host4')
        for _ in range(2):
            self.fleet.audit('host2')
        self.assertEqual({'host2'}, set(self.owners().values()))

        claims = self.fleet.hold_claims('host2')
        servers = []
        for _ in range(4):
            servers.append(self.request_server())
            claims.arrived()
        self.fleet.beat('host4')
        self.watch(5, 'host4', 'host2')
        claims.release()

        ends = [self.wait_for_end(server) for server in servers]
        failed = ends.count('ERROR')
        if failed:
            self.failure_shown(
                f'{failed} of 4 builds ended in ERROR when host4 came back '
                f'while they waited.')
        self.failure_absent('All 4 builds became ACTIVE.')
