# SPDX-License-Identifier: Apache-2.0

"""Ironic goes away and comes back; its nodes do too, and connections."""

import unittest

from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import ironic


class ConnectionsTestCase(unittest.TestCase):

    def test_none_of_a_test_outlives_it(self):
        class Another(base.MultiHostTestCase):
            def runTest(self):
                self.ironic.enroll(2)
                before = self.ironic.connections()
                self.fleet.start('host1', 'host2')
                self.fleet.stop('host2')
                self.assertGreater(self.ironic.connections(), before)

        shared = ironic.shared()
        before = shared.connections()
        result = unittest.TestResult()
        Another('runTest').run(result)
        self.assertEqual(([], []), (result.errors, result.failures))
        # Or that of the fixture itself, which has none at first.
        self.assertLessEqual(shared.connections(), max(before, 1))


class IronicTestCase(base.MultiHostTestCase):

    def setUp(self):
        super().setUp()
        self.nodes = self.ironic.enroll(8)
        self.fleet.start('host1', 'host2')
        self.before = self.settle()
        self.mark_providers()

    def test_outage_changes_nothing(self):
        self.ironic.stop()
        self.fleet.audit()
        self.fleet.audit()
        self.assertEqual(self.before, self.owners())
        self.assertProvidersKept(self.nodes)
        self.assertNotIn('Traceback', self.stdlog.logger.output)

        self.ironic.start()
        self.assertEqual(self.before, self.settle())
        new, = self.ironic.enroll(1)
        self.assertIn(new, self.settle())

    def test_compute_restarts_without_ironic(self):
        self.fleet.stop('host2')
        self.ironic.stop()
        self.fleet.start('host2')
        self.fleet.audit()
        self.assertEqual(self.before, self.owners())
        self.assertProvidersKept(self.nodes)

        self.ironic.start()
        self.assertEqual(self.before, self.settle())
        self.assertProvidersKept(self.nodes)

    def test_enrolled_nodes_get_one_owner(self):
        new = self.ironic.enroll(4)
        after = self.settle()
        self.assertEqual(self.before, {node: after[node]
                                       for node in self.nodes})
        self.assertCountEqual(self.nodes + new, after)
        self.assertCountEqual(self.nodes + new, self.providers())

    def test_removed_node_goes_and_no_other(self):
        gone = self.nodes.pop()
        self.ironic.client.node.delete(gone)
        after = self.settle()
        del self.before[gone]
        self.assertEqual(self.before, after)
        self.assertProvidersKept(self.nodes)

    def test_provider_of_a_node_removed_under_its_server(self):
        server = self.boot()
        node = self.node_of(server)
        self.ironic.client.node.set_maintenance(node, True)
        self.ironic.client.node.delete(node)
        for _ in range(3):
            self.fleet.audit()
        self.assertIn(node, self.owners())
        self.delete(server)
        for _ in range(2):
            self.fleet.audit()
        self.assertNotIn(node, self.owners())
        self.assertNotIn(node, self.providers())
