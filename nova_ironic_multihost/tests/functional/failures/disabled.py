# SPDX-License-Identifier: Apache-2.0

"""A compute is disabled."""

from nova_ironic_multihost.tests.functional.failures import base


class Disabled(base.FailureTestCase):
    """A disabled compute and its peers take free nodes from each other.

    Peers leave it out of their ring, it does not leave itself out. Each
    audit moves the nodes that it prefers, for as long as it is disabled.
    """

    def test(self):
        self.ironic.enroll(8)
        self.fleet.start('host2', 'host6', 'host7')
        self.settle()
        self.assertTrue(self.nodes_of('host7'))

        self.fleet.disable('host7')
        self.watch(5)
        moves = base.moves(self.watch(3))
        left = len(self.nodes_of('host7'))

        if moves or left:
            self.failure_shown(
                f'Five audits after host7 was disabled, three more moved '
                f'nodes {moves} times; {left} of 8 are on host7.')
        self.failure_absent(
            'Its nodes went to the others, then nothing moved any more.')
