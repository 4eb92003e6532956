# SPDX-License-Identifier: Apache-2.0

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
