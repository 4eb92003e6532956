# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.client import usage
from nova_ironic_multihost.tests import views


class UsageTestCase(base.BaseTestCase):

    def usage(self, seen, index=0):
        found = usage.of(seen.nodes[index], seen)
        return found.value, found.stray

    def test_free(self):
        self.assertEqual(('free', False), self.usage(views.consistent(), 1))

    def test_used(self):
        self.assertEqual(('used', False), self.usage(views.consistent()))

    def test_server_that_is_deleted(self):
        seen = views.changed(views.consistent(), 'instances', 0, deleted=True)
        self.assertEqual(('leaked', True), self.usage(seen))

    def test_server_that_nova_does_not_know(self):
        seen = views.without(views.consistent(), 'instances', 0)
        self.assertEqual(('unknown server', True), self.usage(seen))

    def test_active_for_nobody(self):
        seen = views.changed(views.consistent(), 'nodes', 1,
                             provision_state='active')
        self.assertEqual(('no server', True), self.usage(seen, 1))
