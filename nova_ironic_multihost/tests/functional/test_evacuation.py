# SPDX-License-Identifier: Apache-2.0

"""A server that somebody evacuates stays on its machine, and is well."""

import functools
import threading
from unittest import mock

import fixtures
from nova.compute import rpcapi
from nova import objects
from nova import utils

from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import dead


class EvacuationTestCase(dead.DeadComputeTestCase):

    def setUp(self):
        super().setUp()
        # Down, and not fenced yet. What is free goes to host2.
        self.fleet.kill('host1')
        self.audit()
        # Before the first message: nova 34 looks for the method once.
        self.ended = threading.Event()
        compute = self.fleet.manager('host2')
        rebuild = compute.rebuild_instance

        def rebuild_and_tell(*args, **kwargs):
            try:
                return rebuild(*args, **kwargs)
            finally:
                self.ended.set()

        self.useFixture(fixtures.MockPatchObject(
            compute, 'rebuild_instance', rebuild_and_tell))

    def evacuate(self, **where):
        """Evacuate the server as far as the message to the new host.

        :param where: what is said to nova's API.
        :returns: function that sends the message and waits until it has been
            dealt with.
        """
        asked = threading.Event()
        messages = []

        def hold(client, ctxt, **message):
            messages.append(functools.partial(send, client, ctxt, **message))
            asked.set()

        send = rpcapi.ComputeAPI.rebuild_instance
        with mock.patch.object(rpcapi.ComputeAPI, 'rebuild_instance', hold):
            self.admin_api.post_server_action(
                self.server['id'], {'evacuate': where})
            self.assertTrue(asked.wait(base.DEADLINE))
        self.assertEqual('rebuilding', self.states()[2])
        self.assertEqual(2, len(self.allocated()))
        return functools.partial(self.deliver, messages[0])

    def deliver(self, message):
        self.ended.clear()
        message()
        self.assertTrue(self.ended.wait(base.DEADLINE))

    def allocated(self):
        """Return the nodes that placement has allocated to the server."""
        return set(self._get_allocations_by_server_uuid(self.server['id']))

    def migrations(self):
        return [migration.status for migration
                in objects.MigrationList.get_by_filters(
                    self.instance()._context,
                    {'instance_uuid': self.server['id']})]

    def told(self):
        """Return what the list of events of the server says about it."""
        actions = self.api.api_get(
            f'/servers/{self.server["id"]}/os-instance-actions'
        ).body['instanceActions']
        asked = next(
            one for one in actions if one['action'] == 'evacuate')
        events = self.api.api_get(
            f'/servers/{self.server["id"]}/os-instance-actions/'
            f'{asked["request_id"]}').body['instanceAction']['events']
        return [(one['result'], one['details']) for one in events
                if one['event'] == 'compute_rebuild_instance']

    def assertRefused(self, host='host1', vm_state='active'):
        self.assertEqual((host, vm_state, None), self.states())
        self.assertEqual({self.node}, self.allocated())
        self.assertEqual({'failed'}, set(self.migrations()))
        self.assertEqual(self.server['id'], self.machine().instance_uuid)
        self.assertEqual('active', self.machine().provision_state)
        self.assertIn(('Error', evacuation.REFUSED), self.told())

    def assertTakenOver(self, vm_state='active'):
        self.fleet.force_down('host1')
        self.audit()
        self.assertRefused('host2', vm_state)
        self.assertEqual('host2', self.owners()[self.node])

    def test_before_the_take_over(self):
        arrive = self.evacuate()
        # It waits: somebody may be building the server anew.
        self.fleet.force_down('host1')
        self.audit()
        self.assertEqual(
            ('host1', 'active', 'rebuilding'), self.states())
        arrive()
        self.assertRefused()
        self.assertNotIn('fault', self.show(self.server))
        self.assertTakenOver()
        # Nor does it hurt to hear it again.
        arrive()
        self.assertRefused('host2')
        self.assertEqual(1, len(self.told()))
        for _ in self.nodes[1:]:
            self.boot('host2')

    def test_of_a_server_that_is_not_taken_over(self):
        self.flags(instance_takeover='never', group='ironic_multihost')
        self.admin_api.post_server_action(
            self.server['id'], {'os-resetState': {'state': 'error'}})
        self.evacuate()()
        self.assertRefused(vm_state='error')
        self.assertEqual('host1', self.owners()[self.node])

    def test_to_a_host_by_its_name(self):
        self.evacuate(host='host2')()
        self.assertRefused()
        with utils.temporary_mutation(self.admin_api, microversion='2.67'):
            self.evacuate(host='host2', force=True)()
        self.assertRefused()
        self.assertTakenOver()

    def test_message_that_is_late(self):
        """It waited in the queue of a host that was dead itself."""
        arrive = self.evacuate()
        self.fleet.refuse('host2')
        self.assertTakenOver()
        arrive()
        self.assertRefused('host2')
        # Not even when somebody rebuilds the server by then.
        instance = self.instance()
        instance.task_state = 'rebuilding'
        instance.save()
        arrive()
        self.assertEqual(('host2', 'active', 'rebuilding'), self.states())

    def test_take_over_while_nova_accepts_it(self):
        """The server is marked between two writes of nova's API."""
        create = objects.Migration.create

        def create_too_late(migration):
            self.fleet.force_down('host1')
            self.audit()
            self.assertEqual(('host2', 'active', None), self.states())
            create(migration)
            # What has been read is as old as that.
            instance = self.instance()
            instance.task_state = 'rebuilding'
            instance.save()

        with mock.patch.object(
                objects.Migration, 'create', create_too_late):
            arrive = self.evacuate()
        arrive()
        self.assertRefused('host2')

    def test_mark_that_is_written_over(self):
        self.fleet.force_down('host1')
        for mark in (takeover.taking(None, 'host2'),
                     takeover.taken(None, 'host2')):
            instance = self.instance()
            instance.task_state = mark
            instance.save()
            self.evacuate()()
            self.assertRefused()
        self.assertTakenOver()

    def test_nothing_else_is_free(self):
        """nova sets the server to ERROR, and nobody else hears of it."""
        for _ in self.nodes[1:]:
            self.boot('host2')
        self.admin_api.post_server_action(
            self.server['id'], {'evacuate': {}})
        self._wait_for_migration_status(self.server, ['error'])
        self._wait_for_state_change(self.server, 'ERROR')
        self.fleet.refuse('host2')
        self.assertRefused()
        self.assertTakenOver()

    def test_the_dead_one_comes_back_meanwhile(self):
        arrive = self.evacuate()
        self.fleet.start('host1')
        self.join()
        self.assertEqual({self.node}, {self.node} & self.allocated())
        self.assertEqual(('host1', 'active', None), self.states())
        self.assertEqual('active', self.machine().provision_state)
        arrive()
        self.assertRefused()
        self.settle()
        self.assertEqual('host1', self.owners()[self.node])
