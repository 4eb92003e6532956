# SPDX-License-Identifier: Apache-2.0

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
