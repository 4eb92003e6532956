# SPDX-License-Identifier: Apache-2.0

"""A compute is forced down, yet alive."""

from nova_ironic_multihost.tests.functional.failures import base


class Fenced(base.FailureTestCase):
    """A compute that is forced down but alive takes free nodes back for ever.

    Peers leave it out of their ring, it does not leave itself out.
    """

    def test(self):
        self.ironic.enroll(8)
        self.fleet.start('host2', 'host6', 'host7')
        self.settle()
        self.assertTrue(self.nodes_of('host7'))

        self.fleet.force_down('host7')
        self.watch(5)
        moves = base.moves(self.watch(3))
        left = len(self.nodes_of('host7'))

        if moves or left:
            self.failure_shown(
                f'Five audits after host7 was forced down, three more moved '
                f'nodes {moves} times; {left} of 8 are on host7.')
        self.failure_absent(
            'Its nodes went to the others, then nothing moved any more.')
