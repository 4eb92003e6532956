# SPDX-License-Identifier: Apache-2.0

"""Computes without nodes work side by side."""

from nova_ironic_multihost.tests.functional.failures import base


class Simultaneous(base.FailureTestCase):
    """Computes without nodes do not see each other.

    A compute is in the ring of others only when it owns a node. Those that
    start on an empty cloud, or were drained, each take nodes by a ring of
    their own, and nodes are handed on although nobody comes or goes.
    """

    def test(self):
        self.fleet.start('host1', 'host2', 'host3')
        self.ironic.enroll(12)

        history = self.watch(8)

        most = max(len(hosts) - 1 for hosts in history.values())
        moves = base.moves(history)
        if most > 1:
            self.failure_shown(
                f'12 new nodes moved {moves} times, one of them {most} times.')
        owners = self.owners()
        self.assertEqual(12, len(owners))
        self.assertEqual({'host1', 'host2', 'host3'}, set(owners.values()))
        self.failure_absent(
            f'12 new nodes moved {moves} times, none of them twice.')
