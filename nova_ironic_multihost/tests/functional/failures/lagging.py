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

"""The database replica is behind."""

from nova_ironic_multihost.tests.functional.failures import base


class Lagging(base.FailureTestCase):
    """While a database replica lags, builds on new nodes are refused.

    An audit reads its records from the replica and forgets the nodes that
    are not there yet until it has come to each of them again: minutes when
    nodes are many. Claims are refused meanwhile.
    """

    def test(self):
        self.ironic.enroll(1)
        self.fleet.start('host1')
        self.settle()
        self.boot()
        self.fleet.freeze_replica()
        self.ironic.enroll(1)
        self.fleet.audit()

        claims = self.fleet.hold_claims('host1')
        server = self.request_server()
        claims.arrived()

        def claim():
            claims.release()
            claims.done()

        self.fleet.audit_interrupted('host1', claim)

        end = self.wait_for_end(server)
        if end == 'ERROR':
            self.failure_shown(
                'A server for which there was a new node went to ERROR '
                'during an audit.')
        self.failure_absent('The server became ACTIVE.')
