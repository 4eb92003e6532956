# SPDX-License-Identifier: Apache-2.0

"""What was done for a build is undone, in the databases of nova."""

import types
from unittest import mock

import fixtures
from nova.compute import manager
from nova.compute import utils as compute_utils
from nova import exception
from nova import objects
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.adapters import build_undo
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.rules import backup_copies
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.tests.unit.adapters import base

PORT = uuidsentinel.port


class AttemptsTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        row = self.instance(uuidsentinel.instance, 'mine')
        row.update({'node': base.NODE, 'compute_id': 1,
                    'vm_state': 'building',
                    'task_state': 'spawning'})
        row.save()
        self.done = []
        self.ports = {PORT: uuidsentinel.instance}
        self.manager = mock.Mock()
        self.manager.network_api.list_ports = self.list_ports
        self.manager._nil_out_instance_obj_host_and_node = types.MethodType(
            manager.ComputeManager._nil_out_instance_obj_host_and_node,
            self.manager)
        self.manager._deallocate_network = self.deallocate
        self.driver = mock.Mock(virtapi=mock.Mock(_compute=self.manager),
                                destroy=self.destroy)
        self.attempts = build_undo.BuildAttempts(self.driver)
        networks = objects.NetworkRequestList(objects=[
            objects.NetworkRequest(port_id=PORT)])
        self.copy = QueuedRequest(
            RequestKind.BUILD, uuidsentinel.instance, base.NODE,
            arguments={'requested_networks': networks.obj_to_primitive()})

    def destroy(self, context, instance, network_info):
        self.done.append('machine')

    def deallocate(self, context, instance, requested_networks):
        self.done.append(('ports', [
            network.port_id for network in requested_networks or ()]))

    def list_ports(self, context, device_id):
        return {'ports': [{'id': port} for port, its in self.ports.items()
                          if its == device_id]}

    def test_ports_of_other_servers_are_left_alone(self):
        self.ports[PORT] = uuidsentinel.other
        self.attempts.undo(self.read(), self.copy)
        self.assertEqual(['machine', ('ports', [])], self.done)

    def test_build_that_wants_no_networks(self):
        networks = objects.NetworkRequestList(objects=[
            objects.NetworkRequest(network_id='none')])
        self.ports = None
        self.attempts.undo(self.read(), QueuedRequest(
            RequestKind.BUILD, uuidsentinel.instance, base.NODE, arguments={
                'requested_networks': networks.obj_to_primitive()}))
        self.assertIsNone(self.read().host)

    def test_one_that_was_left_on_no_host(self):
        row = self.read()
        row.host = row.node = row.compute_id = None
        row.save()
        self.attempts.renew(row.uuid, objects.NetworkRequestList(objects=[
            objects.NetworkRequest(port_id=PORT)]))
        found = self.read()
        self.assertEqual(
            (None, 'building', 'scheduling', 'False'),
            (found.host, found.vm_state, found.task_state,
             found.system_metadata['network_allocated']))
        self.assertEqual(['machine', ('ports', [PORT])], self.done)
        # What is asked for again finds it done.
        self.attempts.renew(row.uuid, None)
        self.assertEqual(2, len(self.done))

    def test_one_that_was_left_and_cannot_be_repeated(self):
        row = self.read()
        row.host = row.node = row.compute_id = None
        row.save()
        with mock.patch.object(build_undo.BuildAttempts, 'repeatable',
                               return_value=False):
            self.attempts.renew(row.uuid, None)
        self.assertEqual([], self.done)
        self.assertEqual('spawning', self.read().task_state)

    def test_one_that_somebody_is_at(self):
        self.attempts.renew(self.read().uuid, None)
        self.assertEqual([], self.done)
        self.assertEqual(('mine', 'spawning'), (
            self.read().host, self.read().task_state))

    def read(self):
        return objects.Instance.get_by_uuid(
            names.admin_context(), uuidsentinel.instance)

    def take_over(self, **changes):
        """Another compute service does, while this one is at it."""
        instance = self.read()
        instance.update({'host': 'other', **changes})
        instance.save()

    def test_taken_over_while_its_machine_is_undone(self):
        self.driver.destroy = lambda *args: self.take_over()
        self.assertRaises(exception.InstanceUpdateConflict,
                          self.attempts.undo, self.read(),
                          self.copy)
        self.assertEqual([], self.done)
        self.assertEqual('other', self.read().host)

    def test_built_by_another_while_its_ports_are_undone(self):
        """Killed before nova had given it a task state."""
        row = self.read()
        row.task_state = None
        row.save()
        self.manager._deallocate_network = lambda *args: self.take_over(
            vm_state='active')
        self.assertRaises(exception.InstanceUpdateConflict,
                          self.attempts.undo, self.read(), self.copy)
        found = self.read()
        self.assertEqual(('other', base.NODE, None), (
            found.host, found.node, found.task_state))

    def test_all_of_it_is_undone_and_its_host_last(self):
        self.attempts.undo(self.read(), self.copy)
        self.assertEqual(['machine', ('ports', [PORT])], self.done)
        instance = self.read()
        self.assertEqual(
            (None, None, 'building', 'scheduling'),
            (instance.host, instance.node, instance.vm_state,
             instance.task_state))
        # nova would take the ports that are gone for made.
        self.assertEqual(
            'False', instance.system_metadata['network_allocated'])

    def test_what_fails_leaves_it_to_be_repeated(self):
        error = OSError('no neutron')
        self.manager._deallocate_network = mock.Mock(side_effect=error)
        self.assertRaises(
            OSError, self.attempts.undo, self.read(), self.copy)
        self.assertEqual('mine', self.read().host)
        self.manager._deallocate_network = self.deallocate
        self.attempts.undo(self.read(), self.copy)
        self.assertIsNone(self.read().host)

    def test_whoever_deletes_it_meanwhile_does(self):
        instance = self.read()
        deleting = self.read()
        deleting.task_state = 'deleting'
        deleting.save()
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.attempts.undo, instance, self.copy)
        self.assertEqual(('mine', 'deleting'), (
            self.read().host, self.read().task_state))

    def test_build_without_requested_networks(self):
        self.attempts.undo(self.read(), QueuedRequest(
            RequestKind.BUILD, uuidsentinel.instance, base.NODE))
        self.assertIsNone(self.read().host)

    def test_attempts_that_did_not_end_are_counted(self):
        self.assertEqual(0, self.attempts.count(uuidsentinel.instance))
        context = names.admin_context()
        objects.InstanceAction.action_start(
            context, uuidsentinel.instance, 'create', want_result=False)

        def begin(event='compute__do_build_and_run_instance'):
            objects.InstanceActionEvent.event_start(
                context, uuidsentinel.instance, event, want_result=False)

        for attempts_made in 1, 2:
            begin()
            self.assertEqual(
                attempts_made, self.attempts.count(uuidsentinel.instance))
        # What is something else is none, nor is one that has ended.
        begin('conductor_build')
        self.assertEqual(2, self.attempts.count(uuidsentinel.instance))
        objects.InstanceActionEvent.event_finish(
            context, uuidsentinel.instance,
            'compute__do_build_and_run_instance', want_result=False)
        self.assertEqual(1, self.attempts.count(uuidsentinel.instance))
        # But one of which nova has not decided what becomes of it.
        objects.InstanceActionEvent.event_finish_with_failure(
            context, uuidsentinel.instance,
            'compute__do_build_and_run_instance', exc_val='no answer',
            exc_tb='', want_result=False)
        self.assertEqual(2, self.attempts.count(uuidsentinel.instance))

    def build(self, error, event='compute__do_build_and_run_instance'):
        """Have nova begin a build, and not be able to note it."""
        def begin():
            with compute_utils.EventReporter(
                    names.admin_context(), event, 'mine',
                    uuidsentinel.instance):
                self.fail('nova does not begin it then')

        with mock.patch.object(objects.InstanceActionEvent, 'event_start',
                               side_effect=error):
            self.noting(begin)

    def noting(self, act):
        """Carry out a build, and note whether it fails."""
        base.around(
            operations.carry_out_build, self.read(), act,
            failed=self.attempts.note_failure, guard=mock.Mock(
                build=lambda name, instance, build, *more: build()))

    def test_attempts_that_cannot_be_noted_are_counted(self):
        """Or a build of which nova has lost the request begins for ever."""
        for number in range(backup_copies.ATTEMPTS):
            self.assertEqual(
                number, self.attempts.count(uuidsentinel.instance))
            # The request is not in the database.
            self.assertRaises(exception.InstanceActionNotFound, self.build,
                              exception.InstanceActionNotFound(
                                  request_id='r', instance_uuid='i'))
        self.assertIs(Action.DROP, backup_copies.judge(
            self.copy, host_key('mine'), RequestFacts(
                InstanceState(None, vm_state='building'),
                attempts=self.attempts.count(uuidsentinel.instance))).action)

    def test_error_that_is_raised_for_another_tells_it_as_well(self):
        class Ended(BaseException):
            pass

        def begin():
            try:
                self.build(OSError('no answer'))
            except OSError as exc:
                raise Ended from exc

        self.assertRaises(Ended, self.noting, begin)
        # By both.
        self.assertEqual(2, self.attempts.count(uuidsentinel.instance))

    def test_other_failures_are_not_counted(self):
        self.assertRaises(OSError, self.build, OSError(), 'compute_reboot')
        self.attempts.note_failure(uuidsentinel.instance, OSError('never'))
        self.assertEqual(0, self.attempts.count(uuidsentinel.instance))

    def test_not_all_builds_are_remembered(self):
        self.useFixture(fixtures.MockPatchObject(build_undo, 'REMEMBERED', 1))
        self.assertRaises(OSError, self.build, OSError())
        try:
            self.build(OSError())
        except OSError as exc:
            self.attempts.note_failure('another', exc)
        self.assertEqual(0, self.attempts.count(uuidsentinel.instance))

    def test_volumes_cannot_be_undone(self):
        self.assertTrue(self.attempts.repeatable(self.read()))
        for source in 'image', 'volume':
            objects.BlockDeviceMapping(
                names.admin_context(), instance_uuid=uuidsentinel.instance,
                source_type=source, destination_type={
                    'image': 'local'}.get(source, source)).create()
            self.assertEqual(
                source == 'image', self.attempts.repeatable(self.read()))
