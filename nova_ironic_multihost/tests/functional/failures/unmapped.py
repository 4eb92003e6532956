# SPDX-License-Identifier: Apache-2.0

"""A compute is new and not mapped to its cell."""

from nova_ironic_multihost.tests.functional.failures import base


class Unmapped(base.FailureTestCase):
    """A new compute takes nodes before it is mapped to its cell.

    The API does not show them until somebody runs ``nova-manage cell_v2
    discover_hosts``, and builds there end in "Host is not mapped".
    """

    def test(self):
        self.ironic.enroll(8)
        self.fleet.start('host1')
        self.settle()

        self.fleet.start('host2', mapped=False)
        self.watch(5)
        hidden = len(self.fleet.records()) - len(self.owners())

        if hidden:
            self.failure_shown(
                f'{hidden} of 8 nodes vanished from the hypervisor list until '
                f'host2 was mapped.')
        self.fleet.discover('host2')
        self.watch(5)
        taken = len(self.nodes_of('host2'))
        self.assertTrue(taken)
        self.failure_absent(
            f'All 8 nodes stayed on host1; once host2 was mapped, it took '
            f'{taken}.')
