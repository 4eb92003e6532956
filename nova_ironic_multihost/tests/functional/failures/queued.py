# SPDX-License-Identifier: Apache-2.0

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
