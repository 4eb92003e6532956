# SPDX-License-Identifier: Apache-2.0

"""A compute with a shard works beside one without."""

from nova_ironic_multihost.tests.functional.failures import base


class Shard(base.FailureTestCase):
    """A compute with a shard and one without take the shard's nodes in turn.

    The one without lists the nodes of the shard, too, and its ring gives it
    a part of them; the one with the shard takes them all.
    """

    def test(self):
        self.ironic.enroll(4, shard='here')
        self.ironic.enroll(4)
        self.fleet.configure('host2', shard='here')
        self.fleet.start('host1', 'host2')

        self.watch(5)
        moves = base.moves(self.watch(3))

        if moves:
            self.failure_shown(
                f'After five audits, three more moved nodes {moves} times.')
        self.failure_absent('After five audits nothing moved any more.')
