# SPDX-License-Identifier: Apache-2.0

"""Nodes are in nobody's list for a while."""

import uuid

from nova_ironic_multihost.tests.functional.failures import base


class Noisy(base.FailureTestCase):
    """Each audit asks Ironic for each orphan and logs all node uuids for it.

    An orphan is a record of a node that the driver does not report: one that
    somebody else uses in Ironic, for instance. With 1000 nodes each such
    warning has 40 kB.
    """

    def test(self):
        nodes = self.ironic.enroll(6)
        self.fleet.start('host1')
        self.settle()
        for node in nodes[:3]:
            self.ironic.reserve(node, str(uuid.uuid4()))
        self.watch(1)

        self.proxy.requests.clear()
        before = len(self.stdlog.logger.output)
        self.watch(2)
        gets = sum(
            path.rpartition('/')[2] in nodes
            for _, path in self.proxy.requests)
        walls = sum(
            'WARNING' in line and sum(node in line for node in nodes) > 2
            for line in self.stdlog.logger.output[before:].splitlines())

        if gets or walls:
            self.failure_shown(
                f'Two audits with 3 orphans made {gets} requests for single '
                f'nodes and {walls} warnings with the uuids of all nodes.')
        self.failure_absent(
            'Two audits with 3 such nodes made no request for a single node '
            'and no such warning.')
