# SPDX-License-Identifier: Apache-2.0

"""What tests of a dead compute service share."""

import threading

from nova import context
from nova import objects

from nova_ironic_multihost.tests.functional import base


class DeadComputeTestCase(base.MultiHostTestCase):
    """host1 has a server and dies; host2 is there to take it over."""

    def setUp(self):
        super().setUp()
        self.configure()
        self.nodes = self.enroll()
        self.fleet.start('host1', 'host2')
        self.settle()
        self.server = self.boot('host1')
        self.node = self.node_of(self.server)

    def configure(self):
        """Set options before the compute services start."""

    def enroll(self):
        return self.ironic.enroll(3)

    def die(self, **changes):
        """host1 dies in the middle of something, and is fenced."""
        self.fleet.kill('host1')
        if changes:
            instance = self.instance()
            instance.update(changes)
            instance.save()
        self.fleet.force_down('host1')

    def in_cell(self):
        return context.target_cell(
            context.get_admin_context(), self.cell_mappings['cell1'])

    def instance(self):
        with self.in_cell() as ctxt:
            return objects.Instance.get_by_uuid(ctxt, self.server['id'])

    def audit(self):
        """host2 audits and brings to rest what it takes over."""
        self.fleet.audit('host2')
        self.join()

    def sweep(self):
        """host2 goes on with what it has not finished."""
        self.fleet.sweep('host2')
        self.join()

    def join(self):
        while threads := [thread for thread in threading.enumerate()
                          if thread.name == 'ironic-multihost-takeover']:
            for thread in threads:
                thread.join(base.DEADLINE)

    def states(self):
        instance = self.instance()
        return instance.host, instance.vm_state, instance.task_state

    def machine(self):
        return self.ironic.client.node.get(self.node)
