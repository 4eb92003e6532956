# SPDX-License-Identifier: Apache-2.0

import types
from unittest import mock

from nova.compute import manager
from nova import context as nova_context
from nova import exception
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import finish_build
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.tests.unit.adapters import base


class NamesTestCase(oslo_base.BaseTestCase):

    def test_events_have_the_names_of_the_methods(self):
        for kind, name in ((finish_build.BUILD, '_do_build_and_run_instance'),
                           (finish_build.REBUILD, 'rebuild_instance')):
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
        self.patch(finish_build, '_start_thread',
                   lambda target, *args: target(*args))
        self.create = self.patch_notification('BUILD')
        self.rebuild = self.patch_notification('REBUILD')

    def patch_notification(self, name):
        notify = mock.Mock()
        self.patch(finish_build, name, getattr(
            finish_build, name)._replace(notify=notify))
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
        finish_build.complete(self.manager, self.read())
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
        finish_build.complete(self.manager, self.read())
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
        finish_build.complete(self.manager, self.read())
        self.assertEqual([('req-1', 'powering-off')], states)

    def test_what_somebody_has_changed_meanwhile(self):
        self.at('building', 'spawning')
        instance = self.read()
        self.row.task_state = 'deleting'
        self.row.save()
        self.assertRaises(
            exception.UnexpectedDeletingTaskStateError, finish_build.complete,
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
            finish_build.complete(self.manager, self.read())
        self.assertEqual('powering-off', self.read().task_state)
        self.manager.stop_instance.assert_called_once()
        self.rebuild.assert_called_once()

    def test_write_that_is_lost(self):
        self.at('building', 'spawning')
        with mock.patch.object(objects.Instance, 'save',
                               side_effect=messaging.MessagingTimeout):
            self.assertRaises(messaging.MessagingTimeout,
                              finish_build.complete, self.manager, self.read())
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
            finish_build.complete(self.manager, instance)
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
        finish_build.complete(self.manager, self.read())
        self.assertEqual('active', self.read().vm_state)

    def test_fault(self):
        self.at('building', 'networking')
        finish_build.note_fault(self.read(), finish_build.BUILD, 'no disk')
        self.assertEqual('Error', self.result())
        self.assertIn('no disk', objects.InstanceFault.
                      get_latest_for_instance(
                          self.context, self.row.uuid).message)
