# SPDX-License-Identifier: Apache-2.0

"""A server is deleted while its compute is down."""

from nova_ironic_multihost.tests.functional.failures import base


class Leaked(base.FailureTestCase):
    """A server deleted while its compute is down leaves its machine running.

    nova forgets the server; no driver reports a node with an instance that
    is deleted, so nova's reaper never finds it, not even when the compute is
    back.
    """

    def test(self):
        self.ironic.enroll(4)
        self.fleet.start('host1', 'host2')
        self.settle()
        server = self.boot('host2')
        node = self.node_of(server)

        self.fleet.kill('host2')
        self.delete(server)
        self._audit_and_reap()
        self.fleet.start('host2')
        self._audit_and_reap()

        seen = self.ironic.client.node.get(node)
        if seen.instance_uuid:
            self.failure_shown(
                f'The node was still {seen.provision_state} with the deleted '
                f'server after six audits, three with its compute back.')
        self.ironic.wait_for([node], provision_state='available')
        self.failure_absent('The node was torn down and is available.')

    def _audit_and_reap(self):
        for _ in range(3):
            self.fleet.audit()
            self.fleet.reap()
