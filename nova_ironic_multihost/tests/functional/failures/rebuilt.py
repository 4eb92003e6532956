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

"""A server is rebuilt."""

from nova_ironic_multihost.tests.functional.failures import base


class Rebuilt(base.FailureTestCase):
    """Rebuild fails with every client of microversion 2.93 or later.

    nova then asks the driver to reimage the boot volume, although the server
    has none, and the driver refuses.
    """

    def test(self):
        self.ironic.enroll(1)
        self.fleet.start('host1')
        self.settle()
        server = self.boot()
        # What Ironic would have learned from glance.
        self.ironic.client.node.update(self.node_of(server), [
            {'op': 'add', 'path': '/instance_info/image_type',
             'value': 'whole-disk'}])

        self.api.post_server_action(
            server['id'], {'rebuild': {'imageRef': server['image']['id']}})
        end = self.wait_for_end(server)

        if end == 'ERROR':
            fault = self.show(server)['fault']['message']
            self.failure_shown(f'The server went to ERROR: {fault}')
        node = self.ironic.client.node.get(self.node_of(server))
        self.assertEqual('active', node.provision_state)
        self.failure_absent('The server was rebuilt and is ACTIVE.')
