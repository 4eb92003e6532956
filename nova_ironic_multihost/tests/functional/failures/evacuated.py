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


"""A server is evacuated while its compute is down and no machine is free."""

from nova_ironic_multihost.tests.functional.failures import base


class Evacuated(base.FailureTestCase):
    """Evacuating a server puts it into ERROR when no other machine is free.

    nova accepts the evacuation, although no server over Ironic can be
    evacuated.
    """

    def test(self):
        self.ironic.enroll(3)
        self.fleet.start('host1', 'host2')
        self.settle()
        server = self.boot()
        self.fleet.kill(self.host_of(server))
        self.fleet.audit()
        for _ in range(2):
            self.boot()

        self.admin_api.post_server_action(server['id'], {'evacuate': {}})
        self._wait_for_migration_status(server, ['error'])
        self._wait_for_state_change(server, 'ERROR')
        # With nova's own driver there is nobody to do it.
        self.fleet.refuse()

        seen = self.show(server)
        if seen['status'] == 'ERROR':
            self.failure_shown(
                'The server was in ERROR: '
                f'{seen["fault"]["message"].strip()}')
        self._wait_for_migration_status(server, ['failed'])
        self.failure_absent(
            f'The server was {seen["status"]} again within minutes; the '
            'list of its events said why it was not evacuated.')
