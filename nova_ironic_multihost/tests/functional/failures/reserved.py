# SPDX-License-Identifier: Apache-2.0

"""Somebody else reserves the node that a build is for."""

import uuid

from nova_ironic_multihost.tests.functional.failures import base


class Reserved(base.FailureTestCase):
    """A build fails for good when its node was taken at the last moment.

    Ironic answers 409 when the node has another instance already. Other
    nodes are free, but the build is not rescheduled.
    """

    def test(self):
        self.ironic.enroll(3)
        self.fleet.start('host1')
        self.settle()

        def take():
            server, = self.api.get_servers()
            node, = self.wait_for_allocation(server)
            self.ironic.reserve(node, str(uuid.uuid4()))

        self.proxy.before(act=take, **base.RESERVATION)
        end = self.wait_for_end(self.request_server())

        if end == 'ERROR':
            self.failure_shown(
                'The server went to ERROR while 2 nodes were free.')
        self.failure_absent('The server became ACTIVE on another node.')
