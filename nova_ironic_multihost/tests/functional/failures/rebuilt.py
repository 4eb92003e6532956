# SPDX-License-Identifier: Apache-2.0

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
