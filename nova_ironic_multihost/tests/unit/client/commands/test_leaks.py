# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import node
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.tests import views


class LeaksTestCase(base.BaseTestCase):

    def found(self, seen):
        return node.leaks(
            ownership_report.OwnershipReport(
                seen, ownership_report.SharedSettings(points=8)))

    def deleted(self):
        return views.changed(views.consistent(), 'instances', 0, deleted=True)

    def test_none(self):
        self.assertEqual([], self.found(views.consistent()))

    def test_its_owner_frees_it(self):
        [leak] = self.found(self.deleted())
        self.assertEqual(
            ('node-0', 'active', cloud_state.Usage.LEAKED, 'server-0',
             'compute-1', 'compute-1'),
            (leak.node.uuid, leak.node.provision_state, leak.kind,
             leak.node.instance_uuid, leak.owner, leak.frees))
        self.assertIn('running_deleted_instance_poll_interval', leak.next)

    def test_who_takes_it_from_a_dead_owner_frees_it(self):
        seen = views.changed(self.deleted(), 'services', 0, up=False)
        [leak] = self.found(seen)
        self.assertEqual('compute-1', leak.owner)
        self.assertIn(leak.frees, ('compute-2', 'compute-3'))
        self.assertIn('takes it at its next audit', leak.next)

    def test_who_is_to_take_it_and_may_not_yet(self):
        seen = views.changed(self.deleted(), 'services', 0, up=False)
        for index in 1, 2:
            seen = views.changed(seen, 'services', index, mapped=False)
        [leak] = self.found(seen)
        self.assertIn('does not yet: to be taken when this host is mapped',
                      leak.next)

    def test_nobody_is_there(self):
        seen = self.deleted()
        for index in range(3):
            seen = views.changed(seen, 'services', index, up=False)
        [leak] = self.found(seen)
        self.assertEqual('', leak.frees)
        self.assertIn('Start one', leak.next)

    def test_server_that_nova_does_not_know_is_left_alone(self):
        [leak] = self.found(views.without(
            views.consistent(), 'instances', 0))
        self.assertEqual(
            (cloud_state.Usage.UNKNOWN, ''), (leak.kind, leak.frees))
        self.assertIn('no record of its server', leak.next)
        self.assertIn('node undeploy node-0', leak.next)

    def test_states_in_which_ironic_refuses_to_undeploy(self):
        for state in ('available', 'manageable', 'enroll', 'clean failed',
                      'inspect failed', 'adopt failed'):
            [leak] = self.found(views.changed(views.without(
                views.consistent(), 'instances', 0), 'nodes', 0,
                provision_state=state))
            self.assertIn('"openstack baremetal node unset --instance-uuid '
                          'node-0" frees it', leak.next)

    def test_active_for_nobody_is_left_alone(self):
        [leak] = self.found(views.changed(
            views.consistent(), 'nodes', 1, provision_state='active'))
        self.assertEqual(('node-1', None, ''), (
            leak.node.uuid, leak.node.instance_uuid, leak.frees))
        self.assertIn('active for no server', leak.next)
