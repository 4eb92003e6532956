# SPDX-License-Identifier: Apache-2.0

"""A node is enrolled beside a compute that serves a shard only."""

from nova_ironic_multihost.tests.functional.failures import base


class Unmanaged(base.FailureTestCase):
    """New nodes are nobody's when the ring gives them to a shard's compute.

    A compute without a shard counts the one with a shard as a peer for all
    nodes; that one does not even list nodes outside of its shard.
    """

    def test(self):
        self.ironic.enroll(2, shard='here')
        self.fleet.configure('host2', shard='here')
        self.fleet.start('host1', 'host2')
        self.watch(2)

        new = self.ironic.enroll(6)
        self.watch(5)

        unmanaged = len(set(new) - set(self.fleet.records()))
        if unmanaged:
            self.failure_shown(
                f'{unmanaged} of 6 new nodes had no owner after five audits.')
        self.failure_absent('All 6 new nodes had an owner.')
