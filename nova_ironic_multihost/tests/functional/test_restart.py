# SPDX-License-Identifier: Apache-2.0

"""A nova-compute that is started again: what it was asked for goes on."""

import threading
from unittest import mock

from nova.compute import manager
from nova.compute import rpcapi
from nova import context
from nova import objects

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.engine.builds.lost_builds import InFlightBuilds
from nova_ironic_multihost.tests.functional import base


class RestartTestCase(base.MultiHostTestCase):

    def setUp(self):
        super().setUp()
        self.ironic.enroll(2)
        self.fleet.start('host1')
        self.settle()
        # Nothing may be in ERROR for a moment either.
        self.failed = []
        fail = manager.ComputeManager._set_instance_obj_error_state

        def note(compute, instance, *args, **kwargs):
            self.failed.append(instance.uuid)
            fail(compute, instance, *args, **kwargs)

        self.patch(manager.ComputeManager, '_set_instance_obj_error_state',
                   note)

    def patch(self, target, name, value):
        patcher = mock.patch.object(target, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)
        return patcher

    def instance(self, server):
        cell = self.cell_mappings['cell1']
        with context.target_cell(context.get_admin_context(), cell) as ctxt:
            return objects.Instance.get_by_uuid(ctxt, server['id'])

    def leave(self, server, **changes):
        """host1 dies in the middle of something."""
        self.fleet.stop('host1')
        instance = self.instance(server)
        instance.update(changes)
        instance.save()

    def start(self):
        self.fleet.start('host1')
        while threads := [thread for thread in threading.enumerate()
                          if thread.name == 'ironic-multihost-takeover']:
            for thread in threads:
                thread.join(base.DEADLINE)

    def send(self, name, act):
        """Do something while host1 is away; wait until it was told of it.

        :param name: of the operation that it is told of.
        :param act: function without arguments.
        """
        self.fleet.stop('host1')
        sent = threading.Event()
        cast = getattr(rpcapi.ComputeAPI, name)

        def note(*args, **kwargs):
            cast(*args, **kwargs)
            sent.set()

        with mock.patch.object(rpcapi.ComputeAPI, name, note):
            result = act()
            self.assertTrue(sent.wait(base.DEADLINE))
        return result

    def test_build_that_ironic_has_done_becomes_active(self):
        server = self.boot()
        launched = self.instance(server).launched_at
        self.leave(server, vm_state='building', task_state='spawning',
                   power_state=0, launched_at=None)
        self.start()
        instance = self.instance(server)
        self.assertEqual(
            ('host1', 'active', None, 1),
            (instance.host, instance.vm_state, instance.task_state,
             instance.power_state))
        self.assertGreaterEqual(instance.launched_at, launched)
        self.assertEqual([], self.failed)

    def test_build_of_which_ironic_was_not_told_ends_with_a_reason(self):
        server = self.boot()
        node = self.node_of(server)
        self.ironic.client.node.set_provision_state(node, 'deleted')
        self.ironic.wait_for([node], provision_state='available')
        self.leave(server, vm_state='building', task_state='networking')
        self.start()
        self.assertEqual('ERROR', self.show(server)['status'])
        self.assertIn('no node is reserved',
                      self.show(server)['fault']['message'])

    def test_build_that_waits_in_the_queue_is_carried_out(self):
        server = self.send('build_and_run_instance', self.request_server)
        self.assertIsNone(self.instance(server).host)
        self.start()
        self.wait_for_status(server, 'ACTIVE')
        self.assertEqual([], self.failed)

    def test_rebuild_that_waits_in_the_queue_is_carried_out(self):
        server = self.boot()
        image = self.show(server)['image']['id']
        rebuilt = []

        def rebuild(driver, context, instance, *args, **kwargs):
            # Ironic 39.0.0 fails over each rebuild.
            instance.task_state = 'rebuild_spawning'
            instance.save(expected_task_state=['rebuilding'])
            rebuilt.append(instance.uuid)

        self.patch(names.IronicDriver, 'rebuild', rebuild)
        self.send('rebuild_instance', lambda: self.api.post_server_action(
            server['id'], {'rebuild': {'imageRef': image}}))
        self.assertEqual('rebuilding', self.instance(server).task_state)
        self.start()
        self.wait_for_end(server)
        self.assertEqual('ACTIVE', self.show(server)['status'])
        self.assertEqual([server['id']], rebuilt)
        self.assertEqual([], self.failed)

    def test_build_that_was_lost_on_the_way_ends_with_a_reason(self):
        self.fleet.stop('host1')
        lost = threading.Event()
        with mock.patch.object(
                rpcapi.ComputeAPI, 'build_and_run_instance',
                lambda *args, **kwargs: lost.set()):
            server = self.request_server()
            self.assertTrue(lost.wait(base.DEADLINE))
        self.start()
        self.fleet.miss('host1', InFlightBuilds.TURNS - 1)
        self.assertEqual('BUILD', self.show(server)['status'])
        self.fleet.miss('host1', 1)
        server = self.show(server)
        self.assertEqual('ERROR', server['status'])
        self.assertIn('lost on the way', server['fault']['message'])
        # Its node is free when it is deleted.
        self.delete(server)
        self.assertEqual(
            [{}] * 2, [self._get_allocations_by_provider_uuid(node)
                       for node in self.providers()])

    def test_build_that_goes_on_is_not_taken_for_lost(self):
        held = self.fleet.hold_claims('host1')
        server = self.request_server()
        held.arrived()
        self.fleet.miss('host1', InFlightBuilds.TURNS)
        held.release()
        self.wait_for_status(server, 'ACTIVE')
        self.assertEqual([], self.failed)
