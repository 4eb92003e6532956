# SPDX-License-Identifier: Apache-2.0

"""nova's calls for servers, and the end of a build that lost its thread."""

import types
from unittest import mock

import fixtures
from nova.compute import manager
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import rpc
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslo_utils import uuidutils
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base


class InstanceOfThisHostTestCase(base.DatabaseTestCase):
    """What is done for an instance that was taken over."""

    def setUp(self):
        super().setUp()
        self.row = self.instance(uuidsentinel.instance, 'mine')
        self.row.vm_state = 'active'
        self.row.task_state = 'powering-off'
        self.row.save()
        self.manager = mock.Mock(spec=[
            '_init_instance', '_set_instance_obj_error_state',
            'restore_instance', 'soft_delete_instance',
            'terminate_instance'])
        self.manager.host = 'mine'
        self.init = self.manager._init_instance
        self.instances = nova_servers.ServerCalls(
            mock.Mock(_compute=self.manager))

    def now(self):
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        return row.vm_state, row.task_state

    def test_one_that_is_gone(self):
        self.row.destroy()
        self.assertIsNone(self.instances.read(self.row.uuid))

    def test_those_of_a_host_that_do_something(self):
        expected = {}
        for host, task_state in (
                ('here', 'deleting'), ('here', 'rebuild_spawning'),
                ('here', 'rescuing'),
                ('here', takeover.taken('deleting', 'here')),
                ('here', takeover.taken('deleting', 'elsewhere')),
                ('here', None), ('here', 'resize_prep'),
                ('elsewhere', 'deleting')):
            row = self.instance(uuidutils.generate_uuid(), host)
            row.task_state = task_state
            row.save()
            expected[row.uuid] = task_state
        # Half deleted, and deleted.
        for row in (self.instance(uuidutils.generate_uuid(), 'here'),
                    self.instance(uuidutils.generate_uuid(), 'elsewhere'),
                    gone := self.instance(uuidutils.generate_uuid(), 'here')):
            row.vm_state = 'deleted'
            row.save()
        gone.destroy()
        half = min(row.uuid for row in objects.InstanceList.get_by_filters(
            self.context, {'vm_state': 'deleted', 'host': 'here',
                           'deleted': False}))
        with mock.patch.object(db, 'INSTANCES', 2):
            found = self.instances.busy('here')
        self.assertEqual(
            dict(list(expected.items())[:4]) | {half: None},
            {uuid: state.task_state for uuid, state in found.items()})

    def test_what_it_was_asked_for_last(self):
        asked = self.instances.asked_last
        self.assertIsNone(asked(self.row.uuid))
        for number, (action, expected) in enumerate((
                ('create', None), ('rebuild', 'rebuild'),
                ('evacuate', 'rebuild'), ('stop', 'rebuild'))):
            self.context.request_id = f'req-{number}'
            objects.InstanceAction.action_start(
                self.context, self.row.uuid, action, want_result=False)
            self.assertEqual(expected, asked(self.row.uuid))
        self.context.request_id = 'req-1'
        for note in (objects.InstanceActionEvent.event_start,
                     objects.InstanceActionEvent.event_finish):
            self.assertEqual('rebuild', asked(self.row.uuid))
            note(self.context, self.row.uuid, 'compute_rebuild_instance',
                 want_result=False)
        self.assertEqual('evacuate', asked(self.row.uuid))

    def test_all_that_are_half_deleted(self):
        self.useFixture(fixtures.MockPatchObject(db, 'INSTANCES', 2))
        made = set()
        for _ in range(5):
            row = self.instance(uuidutils.generate_uuid(), 'here')
            row.vm_state = 'deleted'
            row.save()
            made.add(row.uuid)
        self.assertEqual(made, set(self.instances.busy('here')))

    def test_all_of_a_host_little_by_little(self):
        here = {self.instance(uuidutils.generate_uuid(), 'here').uuid
                for _ in range(5)}
        self.instance(uuidutils.generate_uuid(), 'elsewhere')
        for size in 1, 2, 5, 100:
            found = []
            with mock.patch.object(db, 'INSTANCES', size):
                while some := self.instances.of_host(
                        'here', found[-1] if found else None):
                    found += some
            self.assertCountEqual(here, found)

    def test_the_last_one_that_was_read_is_gone(self):
        row = self.instance(uuidutils.generate_uuid(), 'here')
        row.destroy()
        self.instance(uuidutils.generate_uuid(), 'here')
        for gone in row.uuid, uuidutils.generate_uuid():
            self.assertEqual({}, self.instances.of_host('here', gone))

    def test_states_are_written_if_nobody_else_has(self):
        first = self.instances.read(self.row.uuid)
        second = self.instances.read(self.row.uuid)
        self.assertTrue(self.instances.set_states(first, 'active', None))
        self.assertFalse(self.instances.set_states(second, 'stopped', None))
        self.assertEqual(('active', None), self.now())

    def test_what_nova_does_is_noted_under_the_last_request(self):
        for request in ('req-1', 'req-2'):
            context = nova_context.get_admin_context()
            context.request_id = request
            objects.InstanceAction.action_start(
                context, self.row.uuid, 'stop', want_result=False)
        self.instances.init(self.instances.read(self.row.uuid))
        [(context, instance), _] = self.init.call_args
        self.assertEqual('req-2', context.request_id)
        self.assertEqual(self.row.uuid, instance.uuid)

    def test_nova_finds_its_own_host_in_one_that_was_renamed_in_case(self):
        self.manager.host = 'Mine'
        self.instances.init(self.instances.read(self.row.uuid))
        [(_, instance), _] = self.init.call_args
        self.assertEqual('Mine', instance.host)
        self.assertEqual('Mine', self.instances.read(self.row.uuid).host)
        self.assertEqual(('active', 'powering-off'), self.now())

    def test_the_host_of_another_is_left_alone(self):
        for host in ('other', None):
            instance = mock.Mock(host=host)
            nova_servers.spell_host(instance, 'mine')
            self.assertEqual(host, instance.host)

    def test_so_is_what_another_has_taken_since_it_was_read(self):
        instance = self.instances.read(self.row.uuid)
        self.row.host = 'other'
        self.row.save()
        nova_servers.spell_host(instance, 'Mine')
        self.assertEqual('other', self.instances.read(self.row.uuid).host)
        self.row.destroy()
        nova_servers.spell_host(instance, 'Mine')
        self.assertEqual('mine', instance.host)

    def test_so_is_what_another_takes_in_this_moment(self):
        instance = self.instances.read(self.row.uuid)
        read = objects.Instance.get_by_uuid

        def read_before(*args, **options):
            found = read(*args, **options)
            self.row.host = 'other'
            self.row.task_state = 'taken-over:x:powering-off'
            self.row.save()
            return found

        with mock.patch.object(objects.Instance, 'get_by_uuid', read_before):
            nova_servers.spell_host(instance, 'Mine')
        self.assertEqual('other', self.instances.read(self.row.uuid).host)

    def test_what_nova_does_without_a_request(self):
        self.instances.init(self.instances.read(self.row.uuid))
        self.init.assert_called_once()

    def test_what_is_to_be_deleted_or_restored(self):
        for task_state, act, method in (
                ('deleting', self.instances.delete,
                 self.manager.terminate_instance),
                ('soft-deleting', self.instances.delete,
                 self.manager.soft_delete_instance),
                ('restoring', self.instances.restore,
                 self.manager.restore_instance)):
            self.row.task_state = task_state
            self.row.save()
            act(self.instances.read(self.row.uuid))
            method.assert_called_once()
            self.assertEqual(self.row.uuid, method.call_args.args[1].uuid)
        self.row.vm_state, self.row.task_state = 'deleted', 'soft-deleting'
        self.row.save()
        self.instances.delete(self.instances.read(self.row.uuid))
        self.assertEqual(2, self.manager.terminate_instance.call_count)

    def test_a_fault_says_why(self):
        self.instances.fail(self.instances.read(self.row.uuid), 'no disk')
        fault = objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid)
        self.assertIn('no disk', fault.message)
        self.manager._set_instance_obj_error_state.assert_called_once_with(
            mock.ANY, clean_task_state=True)

    def test_notifications(self):
        sent = []
        with mock.patch.object(rpc, 'NOTIFICATION_TRANSPORT', mock.Mock()), \
                mock.patch.object(messaging, 'Notifier') as notifier:
            notifier.return_value.info = lambda *args: sent.append(args)
            self.instances.notify('event', {'host': 'h'})
        self.assertEqual([({}, 'event', {'host': 'h'})], sent)
        self.assertEqual(0, notifier.call_args.kwargs['retry'])
        self.assertIsNone(notifier.call_args.kwargs['topics'])

    def test_nobody_to_be_notified(self):
        with mock.patch.object(rpc, 'NOTIFICATION_TRANSPORT', None):
            self.instances.notify('event', {})


class NamesTestCase(oslo_base.BaseTestCase):

    def test_events_have_the_names_of_the_methods(self):
        for kind, name in ((nova_servers.BUILD, '_do_build_and_run_instance'),
                           (nova_servers.REBUILD, 'rebuild_instance')):
            self.assertEqual(f'compute_{name}', kind.event)
            self.assertTrue(hasattr(manager.ComputeManager, name))


class CompletionTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.row = self.instance(uuidsentinel.instance, 'mine')
        self.manager = mock.Mock(
            host='mine', _get_power_state=lambda instance: 1)
        # nova's own.
        self.manager._update_instance_after_spawn = types.MethodType(
            manager.ComputeManager._update_instance_after_spawn, self.manager)
        # At once instead of in a thread.
        self.patch(periodic, 'start_thread',
                   lambda name, target, *args: target(*args))
        self.create = self.patch_notification('BUILD')
        self.rebuild = self.patch_notification('REBUILD')

    def patch_notification(self, name):
        notify = mock.Mock()
        self.patch(nova_servers, name, getattr(
            nova_servers, name)._replace(notify=notify))
        return notify

    def patch(self, target, name, value):
        patcher = mock.patch.object(target, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def at(self, vm_state, task_state, action='create'):
        self.row.vm_state = vm_state
        self.row.task_state = task_state
        self.row.system_metadata = {'network_allocated': 'True', 'a': 'b'}
        self.row.save()
        for request, asked in ('req-1', action), ('req-2', 'reboot'):
            context = nova_context.get_admin_context()
            context.request_id = request
            objects.InstanceAction.action_start(
                context, self.row.uuid, asked, want_result=False)
        context.request_id = 'req-1'
        self.event = {'create': 'compute__do_build_and_run_instance'}.get(
            action, 'compute_rebuild_instance')
        objects.InstanceActionEvent.event_start(
            context, self.row.uuid, self.event, want_result=False)

    def read(self):
        return objects.Instance.get_by_uuid(self.context, self.row.uuid)

    def result(self):
        """Return how the event of the action has ended."""
        action = objects.InstanceAction.get_by_request_id(
            self.context, self.row.uuid, 'req-1')
        [event] = objects.InstanceActionEventList.get_by_action(
            self.context, action.id)
        return event.result

    def test_build(self):
        self.at('building', 'spawning')
        nova_servers.complete(self.manager, self.read())
        row = self.read()
        self.assertEqual(
            ('active', None, 1), (row.vm_state, row.task_state,
                                  row.power_state))
        self.assertIsNotNone(row.launched_at)
        self.assertEqual({'a': 'b'}, row.system_metadata)
        self.assertEqual('Success', self.result())
        self.create.assert_called_once()
        self.rebuild.assert_not_called()
        [call] = self.manager._notify_about_instance_usage.call_args_list
        self.assertEqual('create.end', call.args[2])
        self.manager._update_scheduler_instance_info.assert_called_once()
        self.manager.stop_instance.assert_not_called()

    def test_rebuild(self):
        self.at('active', 'rebuild_spawning', 'rebuild')
        nova_servers.complete(self.manager, self.read())
        self.assertEqual('active', self.read().vm_state)
        self.assertEqual('Success', self.result())
        self.rebuild.assert_called_once()
        [call] = self.manager._notify_about_instance_usage.call_args_list
        self.assertEqual('rebuild.end', call.args[2])

    def test_server_that_was_stopped_is_stopped_again(self):
        self.at('stopped', 'rebuild_spawning', 'rebuild')
        states = []
        self.manager.stop_instance.side_effect = (
            lambda context, instance, clean: states.append(
                (context.request_id, self.read().task_state)))
        nova_servers.complete(self.manager, self.read())
        self.assertEqual([('req-1', 'powering-off')], states)

    def test_what_somebody_has_changed_meanwhile(self):
        self.at('building', 'spawning')
        instance = self.read()
        self.row.task_state = 'deleting'
        self.row.save()
        self.assertRaises(
            exception.UnexpectedDeletingTaskStateError, nova_servers.complete,
            self.manager, instance)
        self.assertEqual('building', self.read().vm_state)
        self.create.assert_not_called()

    def test_answer_that_is_lost(self):
        self.at('stopped', 'rebuild_spawning', 'rebuild')
        save = objects.Instance.save

        def save_and_lose(*args, **kwargs):
            save(*args, **kwargs)
            raise messaging.MessagingTimeout

        with mock.patch.object(objects.Instance, 'save', save_and_lose):
            nova_servers.complete(self.manager, self.read())
        self.assertEqual('powering-off', self.read().task_state)
        self.manager.stop_instance.assert_called_once()
        self.rebuild.assert_called_once()

    def test_write_that_is_lost(self):
        self.at('building', 'spawning')
        with mock.patch.object(objects.Instance, 'save',
                               side_effect=messaging.MessagingTimeout):
            self.assertRaises(messaging.MessagingTimeout,
                              nova_servers.complete, self.manager, self.read())
        self.create.assert_not_called()

    def test_addresses_that_the_api_shows_first(self):
        names.CONF.set_override('default_access_ip_network_name', 'public')
        self.addCleanup(names.CONF.clear_override,
                        'default_access_ip_network_name')
        self.at('building', 'spawning')
        instance = self.read()

        def vif(label, *addresses):
            return {'network': {'label': label}, 'ips': [
                {'address': address, 'version': version}
                for version, address in addresses]}

        class Vif(dict):
            def fixed_ips(self):
                return self['ips']

        with mock.patch.object(
                objects.Instance, 'get_network_info', lambda self: [
                    Vif(vif('private', (4, '10.0.0.1'))),
                    Vif(vif('public', (4, '192.0.2.1'), (4, '192.0.2.2'),
                            (6, '2001:db8::1')))]):
            nova_servers.complete(self.manager, instance)
        self.assertEqual(('192.0.2.1', '2001:db8::1'), (
            str(self.read().access_ip_v4), str(self.read().access_ip_v6)))

    def test_nobody_listens(self):
        self.at('building', 'spawning')
        self.create.side_effect = TimeoutError
        self.manager._update_scheduler_instance_info.side_effect = (
            TimeoutError)
        self.manager._notify_about_instance_usage.side_effect = TimeoutError
        self.patch(objects.InstanceActionList, 'get_by_instance_uuid',
                   mock.Mock(side_effect=TimeoutError))
        nova_servers.complete(self.manager, self.read())
        self.assertEqual('active', self.read().vm_state)

    def test_fault(self):
        self.at('building', 'networking')
        nova_servers.note_fault(self.read(), nova_servers.BUILD, 'no disk')
        self.assertEqual('Error', self.result())
        self.assertIn('no disk', objects.InstanceFault.
                      get_latest_for_instance(
                          self.context, self.row.uuid).message)
