# SPDX-License-Identifier: Apache-2.0

"""Ironic's credentials lose sight of the nodes."""

from nova_ironic_multihost.tests.functional.failures import base


class Blinded(base.FailureTestCase):
    """A slip in Ironic's access rules deletes every node from nova.

    Credentials that may see no node get an empty list and a 404 for each
    node. Records and resource providers are deleted at once.
    """

    def test(self):
        nodes = self.ironic.enroll(8)
        self.fleet.start('host1', 'host2')
        before = self.settle()
        self.boot('host1')
        self.mark_providers()

        self.proxy.answer('GET', '/v1/nodes/[^/]+', 404, {
            'error_message': '{"faultstring": "Node could not be found."}'})
        self.proxy.answer('GET', base.LISTING, 200, {'nodes': []})
        self.watch(5)
        records = len(set(nodes) - set(self.owners()))
        providers = len(set(nodes) - set(self.providers()))
        self.proxy.open()
        self.watch(1)

        if records or providers:
            self.failure_shown(
                f'{records} of 8 compute nodes and {providers} of 8 resource '
                f'providers were deleted.')
        self.assertEqual(before, self.settle())
        self.assertProvidersKept(nodes)
        self.failure_absent(
            'Nothing was deleted, and all was as before when it was over.')
