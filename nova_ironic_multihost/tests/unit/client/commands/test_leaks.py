# SPDX-License-Identifier: Apache-2.0

import collections

from oslotest import base

from nova_ironic_multihost.client.commands import node
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.tests import views


Leak = collections.namedtuple('Leak', (
    'uuid', 'name', 'state', 'held_for', 'server', 'owner', 'frees', 'next'))


class LeaksTestCase(base.BaseTestCase):

    def found(self, seen):
        return [Leak(*row) for row in node.leaks(
            ownership_report.OwnershipReport(
                seen, ownership_report.SharedSettings(points=8)))]

    def deleted(self):
        return views.changed(views.consistent(), 'instances', 0, deleted=True)

    def test_none(self):
        self.assertEqual([], self.found(views.consistent()))

    def test_its_owner_frees_it(self):
        [found] = self.found(self.deleted())
        self.assertEqual(
            ('node-0', '', 'active', 'leaked', 'server-0', 'compute-1',
             'compute-1'), found[:-1])
        self.assertIn('running_deleted_instance_poll_interval', found.next)

    def test_who_takes_it_from_a_dead_owner_frees_it(self):
        seen = views.changed(self.deleted(), 'services', 0, up=False)
        [found] = self.found(seen)
        self.assertEqual('compute-1', found.owner)
        self.assertIn(found.frees, ('compute-2', 'compute-3'))
        self.assertIn('takes it: held for an instance that nova has deleted',
                      found.next)

    def test_nobody_is_there(self):
        seen = self.deleted()
        for index in range(3):
            seen = views.changed(seen, 'services', index, up=False)
        [found] = self.found(seen)
        self.assertEqual('', found.frees)
        self.assertIn('start or enable a compute service', found.next)

    def test_server_that_nova_does_not_know_is_left_alone(self):
        [found] = self.found(views.without(
            views.consistent(), 'instances', 0))
        self.assertEqual(
            ('unknown server', ''), (found.held_for, found.frees))
        self.assertIn('no record of its server', found.next)
        self.assertIn('node undeploy node-0', found.next)

    def test_states_in_which_ironic_refuses_to_undeploy(self):
        for state in ('available', 'manageable', 'enroll', 'clean failed',
                      'inspect failed', 'adopt failed'):
            [found] = self.found(views.changed(views.without(
                views.consistent(), 'instances', 0), 'nodes', 0,
                provision_state=state))
            self.assertIn('"openstack baremetal node unset --instance-uuid '
                          'node-0" frees it', found.next)

    def test_active_for_nobody_is_left_alone(self):
        [found] = self.found(views.changed(
            views.consistent(), 'nodes', 1, provision_state='active'))
        self.assertEqual(('node-1', '', ''), (
            found.uuid, found.server, found.frees))
        self.assertIn('active for no server', found.next)
