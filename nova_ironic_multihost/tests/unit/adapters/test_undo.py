# SPDX-License-Identifier: Apache-2.0

"""Builds and evacuations that are undone."""

import contextlib
import datetime
import inspect
import types
from unittest import mock

from keystoneauth1 import exceptions as ks_exception
from nova.compute import instance_actions
from nova.compute import manager
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova import exception
from nova import objects
from nova import rpc
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import undo
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import evacuation as rules
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE


class BuildsTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.allocations = mock.Mock(
            return_value={'allocations': {NODE: {}}})
        self.builds = undo.BuildRequests('Mine', mock.Mock(
            report_client=mock.Mock(
                get_allocs_for_consumer=self.allocations)))
        self.row = self.instance(uuidsentinel.instance, None)
        self.set('building', 'scheduling')
        self.build = SentBuild(self.row.uuid, NODE)

    def set(self, vm_state, task_state, host=None):
        self.row.vm_state = vm_state
        self.row.task_state = task_state
        self.row.host = host
        self.row.save()

    def read(self):
        row = objects.Instance.get_by_uuid(self.context, self.row.uuid)
        return row.vm_state, row.task_state

    def give_up(self, absent=lambda: True):
        return self.builds.give_up(self.build, 'lost', absent)

    def test_builds_without_a_host(self):
        for name, vm_state, host in (
                ('claimed', 'building', 'mine'), ('failed', 'error', None),
                ('active', 'active', 'mine')):
            row = self.instance(getattr(uuidsentinel, name), host)
            row.vm_state = vm_state
            row.save()
        gone = self.instance(uuidsentinel.gone, None)
        gone.vm_state = 'building'
        gone.save()
        gone.destroy()
        self.assertEqual({self.build}, self.builds.unclaimed())
        self.allocations.assert_called_once()

    def test_placement_is_asked_once_for_each(self):
        for _ in range(3):
            self.assertEqual({self.build}, self.builds.unclaimed())
        self.allocations.assert_called_once()
        # It was sent elsewhere.
        self.allocations.return_value = {
            'allocations': {uuidsentinel.other: {}}}
        self.row.updated_at = None
        self.row.progress = 1
        with mock.patch('oslo_utils.timeutils.utcnow',
                        return_value=self.row.created_at.replace(
                            year=2050, tzinfo=None)):
            self.row.save()
        self.assertEqual({SentBuild(self.row.uuid, uuidsentinel.other)},
                         self.builds.unclaimed())

    def test_build_of_which_the_node_is_not_known(self):
        for answer in {}, {NODE: {}, uuidsentinel.other: {}}:
            self.allocations.return_value = {'allocations': answer}
            self.assertEqual(frozenset(), self.builds.unclaimed())
        # nova repeats it, and warns of it once.
        self.allocations.side_effect = TimeoutError
        self.assertRaises(TimeoutError, self.builds.unclaimed)
        self.allocations.side_effect = None
        self.allocations.return_value = {'allocations': {NODE: {}}}
        self.assertEqual({self.build}, self.builds.unclaimed())

    def test_build_that_placement_fails_for_hides_no_other(self):
        other = self.instance(uuidsentinel.other, None)
        other.vm_state = 'building'
        other.save()

        def answer(context, uuid):
            if uuid == other.uuid:
                raise exception.ConsumerAllocationRetrievalFailed(
                    consumer_uuid=uuid, error='500')
            return {'allocations': {NODE: {}}}

        self.allocations.side_effect = answer
        self.assertEqual({self.build}, self.builds.unclaimed())

    def test_service_calls_itself(self):
        client = mock.Mock()
        with mock.patch.object(rpc, 'get_client', return_value=client):
            self.builds.receive()
        client.prepare.assert_called_once_with(server='Mine')
        client.prepare().call.assert_called_once_with(
            mock.ANY, 'ping', arg='Mine')

    def test_build_that_is_given_up(self):
        self.assertTrue(self.give_up())
        self.assertEqual(('error', None), self.read())
        self.assertIn('lost', objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid).message)

    def test_build_that_is_not_given_up(self):
        for vm_state, task_state, host in (
                ('building', None, 'mine'), ('error', None, None),
                ('active', None, 'mine')):
            self.set(vm_state, task_state, host)
            self.assertFalse(self.give_up())
            self.assertEqual((vm_state, task_state), self.read())
        self.row.destroy()
        self.assertFalse(self.give_up())

    def test_build_that_has_come(self):
        self.assertFalse(self.give_up(lambda: False))
        self.assertEqual(('building', 'scheduling'), self.read())

    def test_build_that_was_sent_elsewhere(self):
        """In the second in which it was read last."""
        self.builds.unclaimed()
        self.allocations.return_value = {
            'allocations': {uuidsentinel.other: {}}}
        self.assertFalse(self.give_up())
        self.assertEqual({SentBuild(self.row.uuid, uuidsentinel.other)},
                         self.builds.unclaimed())

    def test_answer_that_is_lost(self):
        save = objects.Instance.save

        def save_and_lose(*args, **kwargs):
            save(*args, **kwargs)
            raise messaging.MessagingTimeout

        with mock.patch.object(objects.Instance, 'save', save_and_lose):
            self.assertTrue(self.give_up())
        self.assertIsNotNone(objects.InstanceFault.get_latest_for_instance(
            self.context, self.row.uuid))
        self.set('building', 'scheduling')
        with mock.patch.object(objects.Instance, 'save',
                               side_effect=messaging.MessagingTimeout):
            self.assertFalse(self.give_up())

    def test_page_whose_last_build_is_gone(self):
        self.instance(uuidsentinel.other, None)
        with mock.patch.object(db, '_rows', side_effect=[
                [self.row] * db.INSTANCES,
                exception.MarkerNotFound(marker='m')]):
            self.assertEqual({self.build}, self.builds.unclaimed())

    def test_build_that_begins_in_this_moment(self):
        get = objects.Instance.get_by_uuid

        def get_before(*args, **kwargs):
            found = get(*args, **kwargs)
            self.set('building', 'networking', 'mine')
            return found

        with mock.patch.object(objects.Instance, 'get_by_uuid', get_before):
            self.assertFalse(self.give_up())
        self.assertEqual(('building', 'networking'), self.read())


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
        self.attempts = undo.BuildAttempts(self.driver)
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
        with mock.patch.object(undo.BuildAttempts, 'repeatable',
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

    def test_build_of_which_nova_has_lost_the_request(self):
        """It would begin for ever: nova cannot note its start."""
        self.assertIs(Action.DROP, forwarding.judge_backup(
            self.copy, host_key('mine'), RequestFacts(
                InstanceState(None, vm_state='building'),
                attempts=self.attempts.count(uuidsentinel.instance))).action)

    def test_attempts_that_did_not_end_are_counted(self):
        context = names.admin_context()
        objects.InstanceAction.action_start(
            context, uuidsentinel.instance, 'create', want_result=False)
        self.assertEqual(0, self.attempts.count(uuidsentinel.instance))

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

    def test_volumes_cannot_be_undone(self):
        self.assertTrue(self.attempts.repeatable(self.read()))
        for source in 'image', 'volume':
            objects.BlockDeviceMapping(
                names.admin_context(), instance_uuid=uuidsentinel.instance,
                source_type=source, destination_type={
                    'image': 'local'}.get(source, source)).create()
            self.assertEqual(
                source == 'image', self.attempts.repeatable(self.read()))


OWN, OTHER, BANDWIDTH = (
    uuidsentinel.own, uuidsentinel.other, uuidsentinel.bandwidth)


class Placement:
    """What a client of placement answers."""

    def __init__(self, uuid):
        self.allocations = {uuid: {OWN, OTHER, BANDWIDTH}}

    def get_allocs_for_consumer(self, context, consumer):
        return {'allocations': {
            node: {} for node in self.allocations.get(consumer, ())}}

    def remove_provider_tree_from_instance_allocation(
            self, context, consumer, node):
        self.allocations[consumer].discard(node)
        return True


class EvacuationsTestCase(base.DatabaseTestCase):

    def test_names_of_nova(self):
        """nova's API, conductor and manager write them: nova-contract.toml."""
        self.assertEqual(
            (task_states.REBUILDING, instance_actions.EVACUATE,
             instance_actions.REBUILD, 'compute_rebuild_instance'),
            (rules.TASK, rules.EVACUATE, rules.REBUILD, rules.REBUILT))
        self.assertRaises(NotImplementedError,
                          names.IronicDriver(None).get_host_ip_addr)

    def setUp(self):
        super().setUp()
        self.uuid = uuidsentinel.instance
        self.dead, self.live = self.service('dead'), self.service('live')
        self.record(self.dead, OWN)
        self.record(self.live, OTHER)
        self.placement = Placement(self.uuid)
        self.machine = mock.Mock(
            instance_id=self.uuid, provision_state='active',
            power_state='power off')
        self.evacuations = undo.EvacuationUndo(mock.Mock(
            virtapi=mock.Mock(_compute=mock.Mock(
                reportclient=self.placement)),
            _get_hypervisor_type=lambda: 'ironic',
            _get_node=lambda node: self.machine))
        self.row = self.instance(self.uuid, 'dead')
        self.row.update({'node': OWN, 'compute_id': 1, 'vm_state': 'active'})
        self.row.save()
        self.requests = 0
        self.asked('create')

    def asked(self, action):
        self.requests += 1
        self.context.request_id = f'req-{self.requests}'
        self.context.timestamp = timeutils.utcnow()
        objects.InstanceAction.action_start(
            self.context, self.uuid, action, want_result=False)

    def evacuate(self, status='accepted', **states):
        """Do what nova's API does."""
        self.row.task_state = 'rebuilding'
        self.row.update(states)
        self.row.save()
        self.asked('evacuate')
        return self.migrate(self.uuid, status)

    def migrate(self, uuid, status='accepted', node=OWN, **fields_):
        migration = objects.Migration(
            self.context, instance_uuid=uuid, status=status,
            source_compute='dead', source_node=node,
            **{'migration_type': 'evacuation', **fields_})
        migration.create()
        return migration

    def now(self):
        row = objects.Instance.get_by_uuid(self.context, self.uuid)
        return row.host, row.node, row.vm_state, row.task_state

    def statuses(self):
        return [migration.status for migration
                in objects.MigrationList.get_by_filters(self.context, {})]

    def events(self):
        action = objects.InstanceAction.get_by_request_id(
            self.context, self.uuid, f'req-{self.requests}')
        return objects.InstanceActionEventList.get_by_action(
            self.context, action.id)

    def assertUndone(self, vm_state='active'):
        self.assertEqual(('dead', OWN, vm_state, None), self.now())
        self.assertEqual({'failed'}, set(self.statuses()))
        self.assertEqual({OWN, BANDWIDTH},
                         self.placement.allocations[self.uuid])

    def test_all_is_undone(self):
        for vm_state in 'active', 'stopped', 'error':
            self.placement.allocations[self.uuid].add(OTHER)
            self.evacuate(vm_state=vm_state)
            self.assertTrue(self.evacuations.refuse(self.uuid))
            self.assertUndone(vm_state)
            [event] = self.events()
            self.assertEqual(
                (rules.REBUILT, 'Error', rules.REFUSED),
                (event.event, event.result, event.details))
        self.assertFalse(self.evacuations.refuse(self.uuid))
        self.assertEqual(1, len(self.events()))

    def test_machine_that_is_allocated_after_it_was_refused(self):
        self.evacuate()
        self.evacuations.refuse(self.uuid)
        self.placement.allocations[self.uuid].add(OTHER)
        self.row.task_state = 'rebuilding'
        self.row.save()
        self.asked('rebuild')
        self.assertFalse(self.evacuations.refuse(self.uuid))
        self.assertEqual({OWN, BANDWIDTH},
                         self.placement.allocations[self.uuid])
        # What somebody has begun since goes on.
        self.assertEqual(('dead', OWN, 'active', 'rebuilding'), self.now())

    def test_server_that_is_on_no_machine(self):
        """Say, it is being unshelved: it gets what it has allocated."""
        self.evacuate()
        self.row.update({'node': None, 'compute_id': None})
        self.row.save()
        self.evacuations.refuse(self.uuid)
        self.assertEqual({OWN, OTHER, BANDWIDTH},
                         self.placement.allocations[self.uuid])
        self.assertEqual(['failed'], self.statuses())

    def test_server_that_is_deleted(self):
        self.evacuate()
        get = objects.MigrationList.get_by_filters

        def delete_it_now(context, filters):
            found = get(context, filters)
            self.row.destroy()
            return found

        with mock.patch.object(
                objects.MigrationList, 'get_by_filters', delete_it_now):
            self.evacuations.refuse(self.uuid)
        # nova deletes its migrations with it.
        self.assertEqual([], self.statuses())
        self.assertFalse(self.evacuations.refuse(self.uuid))

    def test_server_that_has_nothing_allocated(self):
        self.placement.allocations.clear()
        self.evacuate()
        self.assertTrue(self.evacuations.refuse(self.uuid))
        self.assertEqual(('dead', OWN, 'active', None), self.now())

    def test_marks_stay(self):
        for mark in (takeover.taking('rebuilding', 'live'),
                     takeover.taken('rebuilding', 'live')):
            self.evacuate()
            self.row.task_state = mark
            self.row.save()
            self.evacuations.refuse(self.uuid)
            self.assertEqual(mark, self.now()[-1])
            self.assertEqual({'failed'}, set(self.statuses()))

    def test_who_writes_meanwhile_knows_better(self):
        self.evacuate()
        save = objects.Instance.save

        def save_too_late(row, **how):
            other = objects.Instance.get_by_uuid(self.context, self.uuid)
            other.task_state = 'deleting'
            save(other)
            save(row, **how)

        with mock.patch.object(objects.Instance, 'save', save_too_late):
            self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                              self.evacuations.refuse, self.uuid)
        self.assertEqual('deleting', self.now()[-1])
        # It is found again, and then it is clear what there is to do.
        self.assertEqual({self.uuid}, self.unrefused())
        self.evacuations.refuse(self.uuid)
        self.assertEqual('deleting', self.now()[-1])
        self.assertEqual(['failed'], self.statuses())

    def test_other_migrations_stay(self):
        for status in 'done', 'completed', 'failed':
            self.migrate(self.uuid, status)
        self.migrate(self.uuid, migration_type='resize')
        before = self.statuses()
        self.assertFalse(self.evacuations.refuse(self.uuid))
        self.assertEqual(before, self.statuses())

    def give_up(self, clock=None):
        """Do what nova's conductor does when nothing else is free.

        :param clock: the conductor's utcnow.
        """
        self.placement.allocations[self.uuid].discard(OTHER)
        self.evacuate('error', vm_state='error', task_state=None)
        with mock.patch.object(timeutils, 'utcnow', clock or timeutils.utcnow):
            self.find_none()

    def find_none(self):
        with contextlib.suppress(exception.NoValidHost):
            with compute_utils.EventReporter(
                    self.context, rules.SCHEDULED, 'conductor', self.uuid):
                none = exception.NoValidHost(reason='')
                compute_utils.add_instance_fault_from_exc(
                    self.context, self.row, none)
                raise none

    def test_error_of_one_that_nova_gave_up(self):
        self.give_up()
        self.assertEqual({self.uuid}, self.unrefused())
        self.assertTrue(self.evacuations.refuse(self.uuid))
        self.assertUndone('stopped')
        self.assertEqual(set(), self.unrefused())

    def test_error_of_one_that_a_conductor_gave_up_whose_clock_is_wrong(self):
        def earlier(with_timezone=False):
            return self.later(with_timezone) - datetime.timedelta(minutes=3)

        for clock in earlier, self.later:
            self.give_up(clock)
            self.evacuations.refuse(self.uuid)
            self.assertUndone('stopped')

    def test_error_of_before(self):
        compute_utils.add_instance_fault_from_exc(
            self.context, self.row, exception.NoValidHost(reason=''))
        with mock.patch.object(timeutils, 'utcnow', self.later):
            self.give_up()
            self.assertTrue(self.evacuations.refuse(self.uuid))
        self.assertUndone('error')

    def unrefused(self):
        return {uuid for uuid, one in self.evacuations.found().items()
                if one.unrefused}

    def tomorrow(self, with_timezone=False):
        return self.later(with_timezone) + datetime.timedelta(days=1)

    def later(self, with_timezone=False):
        return datetime.datetime.now(
            datetime.UTC if with_timezone else None) + datetime.timedelta(
                minutes=1)

    def test_those_that_nobody_has_refused(self):
        self.record(self.dead, uuidsentinel.kvm, 'QEMU')
        self.migrate(uuidsentinel.kvm_server, node=uuidsentinel.kvm)
        self.migrate(uuidsentinel.host_name, node='compute.example.org')
        for status in 'failed', 'done', 'completed':
            self.migrate(uuidsentinel.over, status)
        self.migrate(uuidsentinel.resized, migration_type='resize')
        expected = {}
        for status in 'accepted', 'pre-migrating', 'error':
            uuid = getattr(uuidsentinel, status)
            self.migrate(uuid, status)
            expected[uuid] = ('dead', OWN)
        for size in 1, 2, 100:
            with mock.patch.object(db, 'BATCH', size):
                found = self.evacuations.found()
                self.assertEqual(expected, {
                    uuid: (one.record.owner, one.record.node)
                    for uuid, one in found.items() if one.unrefused})
                # That one may still be undone again.
                self.assertEqual({uuidsentinel.over},
                                 found.keys() - expected.keys())
        # One that was given up or refused long ago is history.
        with mock.patch.object(timeutils, 'utcnow', self.tomorrow):
            self.assertEqual(
                expected.keys() - {uuidsentinel.error},
                self.evacuations.found().keys())

    def test_one_of_a_server_that_is_on_no_node(self):
        """Of another driver; that of this server is found all the same."""
        self.evacuate()
        self.migrate(uuidsentinel.other, node=None)
        self.assertEqual({self.uuid}, self.unrefused())

    # nova's conductor comes to one that has been refused

    def refuse_again(self):
        """Do what is done a minute later."""
        self.assertEqual(set(), self.unrefused())
        self.assertIn(self.uuid, self.evacuations.found())
        self.assertFalse(self.evacuations.refuse(self.uuid))

    def test_conductor_that_is_late_and_finds_no_other_machine(self):
        self.placement.allocations[self.uuid].discard(OTHER)
        self.evacuate()
        self.evacuations.refuse(self.uuid)
        self.row.refresh()
        self.row.vm_state = 'error'
        self.row.save()
        self.find_none()
        self.refuse_again()
        self.assertUndone('stopped')

    def test_conductor_that_is_late_and_whose_message_is_lost(self):
        self.placement.allocations[self.uuid].discard(OTHER)
        self.evacuate()
        self.evacuations.refuse(self.uuid)
        self.placement.allocations[self.uuid].add(OTHER)
        self.refuse_again()
        self.assertUndone()

    def test_other_machine_whose_record_is_gone_for_a_moment(self):
        self.evacuate()
        [row] = objects.ComputeNodeList.get_all_by_uuids(
            self.context, [OTHER])
        row.destroy()
        self.evacuations.refuse(self.uuid)
        self.record(self.live, OTHER)
        self.refuse_again()
        self.assertUndone()

    # it is in the middle of something else

    def test_error_of_one_that_is_being_taken_over(self):
        self.give_up()
        self.row.refresh()
        self.row.task_state = mark = takeover.taken(None, HostKey('live'))
        self.row.save()
        self.assertTrue(self.evacuations.refuse(self.uuid))
        self.assertEqual(['stopped', mark], list(self.now()[2:]))

    def test_mark_that_is_written_in_this_moment(self):
        self.give_up()
        save = objects.Instance.save

        def save_too_late(row, **how):
            other = objects.Instance.get_by_uuid(self.context, self.uuid)
            other.task_state = takeover.taking(None, HostKey('live'))
            save(other)
            save(row, **how)

        with mock.patch.object(objects.Instance, 'save', save_too_late):
            self.assertRaises(exception.UnexpectedTaskStateError,
                              self.evacuations.refuse, self.uuid)
        self.assertEqual({self.uuid}, self.unrefused())
        self.evacuations.refuse(self.uuid)
        self.assertEqual('stopped', self.now()[2])

    def test_rebuild_that_waits_goes_on(self):
        self.row.task_state = 'rebuilding'
        self.row.save()
        self.asked('rebuild')
        self.evacuate()
        self.evacuations.refuse(self.uuid)
        self.assertEqual(['active', 'rebuilding'], list(self.now()[2:]))

    def test_rebuild_that_begins_after_it_was_refused(self):
        """nova's API writes the task state before it notes the request."""
        self.evacuate()
        self.evacuations.refuse(self.uuid)
        self.row.refresh()
        self.row.task_state = 'rebuilding'
        self.row.save()
        self.refuse_again()
        self.assertEqual('rebuilding', self.now()[3])

    def test_error_that_an_operator_has_set(self):
        self.asked('resetState')
        self.row.vm_state = 'error'
        self.row.save()
        self.give_up()
        self.evacuations.refuse(self.uuid)
        self.assertEqual('error', self.now()[2])

    def test_machine_whose_bmc_does_not_answer(self):
        for power, expected in ((1, 'active'), (4, 'stopped')):
            self.give_up()
            self.row.power_state = power
            self.row.save()
            self.machine.power_state = None
            self.evacuations.refuse(self.uuid)
            self.assertEqual(expected, self.now()[2])

    #: What is asked and written, in this order.
    CALLS = (
        (Placement, 'get_allocs_for_consumer'),
        (objects.Instance, 'get_by_uuid'),
        (objects.ComputeNodeList, 'get_all_by_uuids'),
        (Placement, 'remove_provider_tree_from_instance_allocation'),
        (objects.MigrationList, 'get_by_filters'),
        (objects.InstanceActionList, 'get_by_instance_uuid'),
        (objects.InstanceFaultList, 'get_by_instance_uuids'),
        (objects.Instance, 'save'),
        (objects.InstanceActionEvent, 'event_start'),
        (objects.InstanceActionEvent, 'event_finish_with_failure'),
        (objects.Migration, 'save'))

    @contextlib.contextmanager
    def failing(self, target, name, error, done):
        """Let a call fail once, and do what was asked before that or not."""
        original = inspect.getattr_static(target, name)
        if isinstance(original, classmethod):
            call = getattr(target, name)
        elif isinstance(original, staticmethod):
            call = original.__func__
        else:
            call = original
        failed = []

        def fail(*args, **kwargs):
            if failed or done:
                answer = call(*args, **kwargs)
            if failed:
                return answer
            failed.append(name)
            raise error

        static = call is not original
        with mock.patch.object(
                target, name, staticmethod(fail) if static else fail):
            yield
            self.assertEqual([name], failed)

    def test_whatever_fails_is_found_and_done_again(self):
        for target, name in self.CALLS:
            for done in False, True:
                error = (ks_exception.ConnectFailure('no answer')
                         if target is Placement
                         else messaging.MessagingTimeout('no answer'))
                self.placement.allocations[self.uuid].add(OTHER)
                self.evacuate()
                with self.failing(target, name, error, done):
                    self.assertRaises(
                        type(error), self.evacuations.refuse, self.uuid)
                    found = self.unrefused()
                    if name == 'save' and target is objects.Migration and done:
                        # Only the answer was lost.
                        self.assertEqual(set(), found)
                    else:
                        self.assertEqual({self.uuid}, found, name)
                    self.evacuations.refuse(self.uuid)
                self.assertUndone()
                self.assertIn(rules.REFUSED, [
                    event.details for event in self.events()])

    def test_placement_that_refuses(self):
        self.evacuate()
        with mock.patch.object(
                Placement, 'remove_provider_tree_from_instance_allocation',
                return_value=False):
            self.assertRaises(
                names.NovaException, self.evacuations.refuse, self.uuid)
        self.assertEqual(['accepted'], self.statuses())

    def test_request_of_which_nova_knows_nothing(self):
        self.evacuate()
        with mock.patch.object(
                objects.InstanceActionEvent, 'event_start',
                side_effect=exception.InstanceActionNotFound(
                    request_id='r', instance_uuid=self.uuid)):
            self.evacuations.refuse(self.uuid)
        self.assertUndone()

    def test_other_errors_of_nova_are_errors(self):
        self.evacuate()
        with mock.patch.object(
                objects.InstanceActionEvent, 'event_start',
                side_effect=exception.InstanceActionEventNotFound(
                    event='e', action_id=1)):
            self.assertRaises(exception.InstanceActionEventNotFound,
                              self.evacuations.refuse, self.uuid)
