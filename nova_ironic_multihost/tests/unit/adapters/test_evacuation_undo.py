# SPDX-License-Identifier: Apache-2.0

"""What is undone of evacuations, in the databases of the nova installed."""

import contextlib
import datetime
import inspect
from unittest import mock

from keystoneauth1 import exceptions as ks_exception
from nova.compute import instance_actions
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova import exception
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import evacuation_undo
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import evacuation as rules
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base

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
        self.evacuations = evacuation_undo.EvacuationUndo(mock.Mock(
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
