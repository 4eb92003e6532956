# SPDX-License-Identifier: Apache-2.0

"""A host's name changes its case."""

from nova_ironic_multihost.tests.functional.failures import base


class Renamed(base.FailureTestCase):
    """After a host name changed its case, its nodes with servers are nobody's.

    Instances are looked up by the spelling of the host (where the database
    minds it, as PostgreSQL does), while the ring does not mind.
    """

    def test(self):
        self.ironic.enroll(4)
        self.fleet.start('Host1')
        self.settle()
        server = self.boot()

        self.fleet.kill('Host1')
        self.fleet.start('host1')
        self.watch(3)

        owner = self.owners()[self.node_of(server)]
        if owner != 'host1':
            self.failure_shown(
                'After Host1 had become host1 the node with a server stayed '
                'on Host1, which is down.')
        self.failure_absent(
            'After Host1 had become host1 it owned the node with a server.')
