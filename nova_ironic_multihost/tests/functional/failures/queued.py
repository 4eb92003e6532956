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

"""Builds wait while a compute starts."""

from nova_ironic_multihost.tests.functional.failures import base


class Queued(base.FailureTestCase):
    """A compute that starts sets the builds of other computes to ERROR.

    At its start it looks for builds that it left unfinished, by the
    allocations of all nodes that its ring gives it, whoever builds there.
    """

    def test(self):
        self.ironic.enroll(4)
        self.fleet.start('host2')
        self.settle()
        held = self.proxy.hold(**base.RESERVATION)
        servers = []
        for _ in range(4):
            servers.append(self.request_server())
            held.arrived()

        self.fleet.start('host4')
        statuses = [self.show(server)['status'] for server in servers]
        held.release()

        failed = statuses.count('ERROR')
        if failed:
            self.failure_shown(
                f'{failed} of 4 builds on host2 were in ERROR when host4 had '
                f'started.')
        for server in servers:
            self.wait_for_status(server, 'ACTIVE')
        self.failure_absent('All 4 builds went on and became ACTIVE.')
