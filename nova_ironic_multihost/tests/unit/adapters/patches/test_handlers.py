# SPDX-License-Identifier: Apache-2.0

"""Attributes of live nova objects that are replaced."""

import contextlib
import functools
import inspect
import logging
import types
from unittest import mock

import fixtures
from nova.compute import build_results
from nova.compute import manager
from nova.compute import provider_tree
from nova.compute import resource_tracker
from nova.compute import stats
from nova.db.main import api as main_db
from nova import exception
from nova import objects
from nova import rpc
from nova.scheduler import request_filter
from nova import service
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import base as driver_base
from oslo_messaging._drivers import impl_rabbit
from oslo_messaging.rpc import server as rpc_server
from oslo_messaging import server
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE


def start(compute, act):
    """Patch the stop of a service from within its start; return it."""
    starting = object.__new__(service.Service)
    starting.manager = compute

    def start_it(self):
        base.replace(handlers.stop_driver, compute, end=act)

    start_it(starting)
    return starting


class RecordReadsTestCase(base.TrackerTestCase):

    def test_records_of_the_audit_are_what_nova_compares_with(self):
        rows = [mock.Mock(node=node, row=f'row of {node}')
                for node in ('due', 'at rest', 'gone')]
        base.replace(
            base.RECORD_READS, self.compute, nodes__audited__records=rows,
            auditor__last__records=(), rebalancer__records=(),
            due_nodes__next_of=lambda nodes: [
                node for node in nodes if node != 'at rest'])
        nodes = {'due', 'at rest', 'new'}
        self.assertEqual(
            ['row of due', 'row of gone'],
            self.compute._get_compute_nodes_in_db(
                mock.sentinel.context, nodes, use_slave=True, startup=False))
        # nova comes to these afterwards.
        self.assertEqual({'due', 'new'}, nodes)

    def test_tracker_keeps_what_came_before_it_has_its_lock(self):
        # Another thread takes a node while nova compares.
        self.rt.compute_nodes['lost'] = objects.ComputeNode()
        mine = []
        clean = self.rt.clean_compute_node_cache

        def clean_after_a_while(compute_nodes_in_db):
            mine.append(mock.Mock(row=mock.Mock(hypervisor_hostname=NODE)))
            self.rt.compute_nodes[NODE] = objects.ComputeNode()
            clean(compute_nodes_in_db)

        self.rt.clean_compute_node_cache = clean_after_a_while
        base.replace(
            base.RECORD_READS, self.compute, nodes__audited__records=(),
            auditor__last__records=mine, rebalancer__records=(),
            due_nodes__next_of=list)
        rows = self.compute._get_compute_nodes_in_db(
            mock.sentinel.context, {NODE})
        self.rt.clean_compute_node_cache(rows)
        self.assertEqual({NODE}, set(self.rt.compute_nodes))


class RecordMovesTestCase(base.TrackerTestCase):

    def setUp(self):
        super().setUp()
        self.read = self.rt._get_compute_node
        self.create = self.rt._init_compute_node

    def test_record_that_another_host_has_just_created(self):
        self.rt.service_ref = objects.Service(id=1)
        self.patch(self.rt, '_get_compute_node', return_value=None)
        self.patch(self.rt, '_copy_resources', side_effect=(
            lambda record, resources, initial=False: setattr(
                record, 'hypervisor_hostname', NODE)))
        self.patch(objects.ComputeNode, 'create',
                   side_effect=exception.DuplicateRecord(target=NODE))
        resources = {'hypervisor_hostname': NODE, 'uuid': NODE}
        context = names.admin_context()
        self.assertRaises(exception.InvalidConfiguration,
                          self.rt._init_compute_node, context, resources)
        base.replace(
            base.RECORD_MOVES, self.compute, nodes__may_take=bool,
            nodes__may_create=bool)
        self.assertRaises(names.ComputeHostNotFound,
                          self.rt._init_compute_node, context, resources)

    def test_record_is_not_moved_without_asking(self):
        self.rt.service_ref = objects.Service(id=1)
        record = objects.ComputeNode(
            uuid=NODE, hypervisor_hostname=NODE, host='compute-2',
            service_id=2, deleted=False, stats={})
        self.patch(objects.ComputeNode, 'get_by_uuid', return_value=record)
        saved = self.patch(self.rt, '_update')
        self.patch(self.rt, '_copy_resources')
        self.patch(self.rt, '_setup_pci_tracker')
        asked = []
        base.replace(
            base.RECORD_MOVES, self.compute,
            nodes__may_take=lambda found: asked.append(found) or may_take,
            nodes__may_create=self.fail,
            nodes__note_move=lambda *move: moved.append(move))
        moved = []
        resources = {'hypervisor_hostname': NODE, 'uuid': NODE}
        context = names.admin_context()
        may_take = False
        self.assertRaises(names.ComputeHostNotFound,
                          self.rt._init_compute_node, context, resources)
        saved.assert_not_called()
        self.assertEqual(('compute-2', 2), (record.host, record.service_id))
        self.assertEqual([Record(NODE, 'compute-2')], asked)
        self.assertFalse(self.tracker.has(NODE))
        self.assertEqual([], moved)
        may_take = True
        saved.side_effect = OSError
        self.assertRaises(OSError, self.rt._init_compute_node,
                          context, resources)
        self.assertEqual([(NODE, False)], moved)
        record.host = 'compute-2'
        saved.reset_mock(side_effect=True)
        self.rt._init_compute_node(context, resources)
        saved.assert_called_once()
        self.assertNotEqual('compute-2', record.host)
        self.assertEqual([(NODE, False), (NODE, True)], moved)
        # From now on it is here.
        self.rt._init_compute_node(context, resources)
        self.assertEqual(2, len(moved))

    def test_record_that_others_get_while_placement_is_told(self):
        """Placement may answer late."""
        self.rt.service_ref = objects.Service(id=1)
        owners = iter(['host-2', 'host-2', 'host-2', 'host-3', 'host-2', None])

        def read(*args):
            owner = next(owners)
            if owner is None:
                raise exception.ComputeHostNotFound(host=NODE)
            return objects.ComputeNode(
                uuid=NODE, hypervisor_hostname=NODE, host=owner,
                service_id=2, deleted=False, stats={})

        self.patch(objects.ComputeNode, 'get_by_uuid', side_effect=read)
        self.patch(self.rt, '_copy_resources')
        self.patch(self.rt, '_setup_pci_tracker')
        self.patch(self.rt, '_resource_change', return_value=True)
        told = self.patch(self.rt, '_update_to_placement')
        saved = self.patch(objects.ComputeNode, 'save')
        moved = []
        base.replace(
            base.RECORD_MOVES, self.compute,
            nodes__may_take=lambda record: record.host == 'host-2',
            nodes__may_create=self.fail,
            nodes__note_move=lambda *move: moved.append(move))
        resources = {'hypervisor_hostname': NODE, 'uuid': NODE}
        context = names.admin_context()
        self.rt._init_compute_node(context, resources)
        saved.assert_called_once()
        # Of a record that stays nobody asks again.
        self.rt.compute_nodes[NODE].obj_reset_changes()
        self.rt._update(context, self.rt.compute_nodes.pop(NODE))
        saved.reset_mock()
        for _ in 'another', 'deleted':
            told.reset_mock()
            self.assertRaises(names.ComputeHostNotFound,
                              self.rt._init_compute_node, context, resources)
            told.assert_called_once()
            saved.assert_not_called()
            self.assertFalse(self.tracker.has(NODE))
        self.assertEqual([(NODE, True)] + [(NODE, False)] * 2, moved)

    def test_undeleted_record_that_another_gets_meanwhile(self):
        """nova undeletes it with its old owner, then placement is told."""
        self.rt.service_ref = objects.Service(id=1)
        now = ['host-2', True]

        def read(*args):
            return objects.ComputeNode(
                uuid=NODE, hypervisor_hostname=NODE, host=now[0],
                service_id=2, deleted=now[1], stats={})

        self.patch(self.rt, '_get_compute_node', side_effect=read)
        self.patch(self.rt, '_copy_resources')
        self.patch(self.rt, '_setup_pci_tracker')
        self.patch(self.rt, '_resource_change', return_value=True)
        saved = self.patch(objects.ComputeNode, 'save')
        # The first one undeletes it.
        for owner, expected in ('host-3', 1), ('host-2', 2):
            now[:] = 'host-2', True
            saved.reset_mock()
            with mock.patch.multiple(
                    self.rt, _get_compute_node=self.rt._get_compute_node,
                    _init_compute_node=self.rt._init_compute_node,
                    _update_to_placement=(
                        lambda *args, owner=owner: now.__setitem__(
                            slice(None), (owner, False)))):
                base.replace(
                    base.RECORD_MOVES, self.compute,
                    nodes__may_take=lambda record: False,
                    nodes__may_create=lambda node: True)
                try:
                    self.rt._init_compute_node(names.admin_context(), {
                        'hypervisor_hostname': NODE, 'uuid': NODE})
                except names.ComputeHostNotFound:
                    self.assertEqual('host-3', owner)
            self.assertEqual(expected, saved.call_count)

    def test_failed_builds_of_a_record_are_counted_on(self):
        """When its owner changes, and when it is read again."""
        self.rt.service_ref = objects.Service(id=1)
        self.patch(objects.ComputeNode, 'get_by_uuid', side_effect=(
            lambda *args: objects.ComputeNode(
                uuid=NODE, hypervisor_hostname=NODE, host='compute-2',
                service_id=2, deleted=False, stats={'failed_builds': '2'})))
        saved = self.patch(self.rt, '_update')
        self.patch(self.rt, '_setup_pci_tracker')
        base.replace(
            base.RECORD_MOVES, self.compute,
            nodes__may_take=lambda found: True, nodes__may_create=self.fail)
        self.rt._init_compute_node(names.admin_context(), {
            'hypervisor_hostname': NODE, 'uuid': NODE, 'cpu_info': '',
            'stats': {'cpu_arch': 'x86_64'}})
        saved.assert_called_once()
        self.assertEqual(
            '2', self.rt.compute_nodes[NODE].stats['failed_builds'])
        self.rt.build_failed(NODE)
        self.assertEqual(3, self.rt.stats[NODE]['failed_builds'])

    def test_record_that_the_database_refuses(self):
        self.rt.service_ref = objects.Service(id=1)
        self.patch(objects.ComputeNode, 'get_by_uuid', side_effect=(
            lambda *args: objects.ComputeNode(
                uuid=NODE, hypervisor_hostname=NODE, host='compute-2',
                service_id=2, deleted=False, stats={})))
        for error, expected in (('DBDuplicateEntry', [NODE]),
                                ('DBDataError', [NODE]),
                                ('DBConnectionError', [])):
            barred = []
            with mock.patch.object(
                    self.rt, '_update',
                    side_effect=messaging.RemoteError(error, 'key')), (
                    mock.patch.multiple(
                        self.rt, _get_compute_node=self.read,
                        _init_compute_node=self.create)):
                base.replace(
                    base.RECORD_MOVES, self.compute,
                    nodes__may_take=lambda found: True,
                    nodes__may_create=self.fail,
                    nodes__bar=lambda node, exc: barred.append(node))
                self.assertRaises(
                    messaging.RemoteError, self.rt._init_compute_node,
                    names.admin_context(),
                    {'hypervisor_hostname': NODE, 'uuid': NODE})
            self.assertEqual(expected, barred)

    def test_record_is_not_created_without_asking(self):
        created = self.patch(self.rt, '_init_compute_node')
        read = self.patch(self.rt, '_get_compute_node', return_value=None)
        base.replace(
            base.RECORD_MOVES, self.compute, nodes__may_take=self.fail,
            nodes__may_create=lambda node: node != NODE)
        self.assertRaises(
            names.ComputeHostNotFound, self.rt._get_compute_node,
            names.admin_context(), NODE)
        self.assertIsNone(self.rt._get_compute_node(
            names.admin_context(), 'other'))
        read.return_value = mock.Mock(deleted=1)
        self.assertRaises(
            names.ComputeHostNotFound, self.rt._get_compute_node,
            names.admin_context(), NODE)
        created.assert_not_called()

    def test_other_errors_in_the_configuration_still_end_the_start(self):
        self.patch(self.rt, '_init_compute_node',
                   side_effect=exception.InvalidConfiguration('wrong'))
        base.replace(
            base.RECORD_MOVES, self.compute, nodes__may_take=bool,
            nodes__may_create=bool)
        self.assertRaises(
            exception.InvalidConfiguration, self.rt._init_compute_node,
            names.admin_context(), {'hypervisor_hostname': NODE})


class NodeAuditsTestCase(base.TrackerTestCase):

    def setUp(self):
        super().setUp()
        self.compute = object.__new__(manager.ComputeManager)
        self.compute.rt, self.compute.reportclient = self.rt, self.client
        self.tracker = nova_tracker.NovaTracker(
            manager.ComputeVirtAPI(self.compute))
        self.record = objects.ComputeNode(
            uuid=NODE, hypervisor_hostname=NODE, host='host-1')
        self.updated = self.patch(self.rt, '_update')
        self.patch(self.rt, 'update_available_resource', new=self.audit)
        self.next, self.elsewhere = True, False
        self.noted = []
        self.usage = self.patch(self.rt, 'update_usage')
        self.compute._complete_deletion = self.complete = mock.Mock()
        for tree in self.both_trees():
            tree.new_root(NODE, NODE)
        self.steps = 0
        base.replace(
            base.NODE_AUDITS, self.compute, due_nodes=self,
            recorder__sign=lambda work: self.step())

    def note_allocated(self, node):
        self.noted.append((node, 'allocated'))

    def test_what_is_allocated_of_a_node_is_noted(self):
        read = self.client.get_allocations_for_resource_provider
        for allocations, expected in (({}, []), (
                {'i1': {}}, [(NODE, 'allocated')])):
            self.noted.clear()
            with mock.patch.object(self.client, 'get', return_value=mock.Mock(
                    json=lambda found=allocations: {'allocations': found})):
                self.assertEqual(allocations, read(
                    names.admin_context(), NODE).allocations)
            self.assertEqual(expected, self.noted)

    def step(self):
        self.steps += 1

    def both_trees(self):
        """Return what was to be told to placement, and what was told."""
        self.rt.provider_tree = provider_tree.ProviderTree()
        return self.rt.provider_tree, self.client._provider_tree

    # The schedule:

    def is_next(self, node):
        return self.next

    @contextlib.contextmanager
    def auditing(self, node):
        self.noted.append(('begins', node))
        yield
        self.noted.append(('ends', node))

    def touch(self, node, told=True):
        self.failed = self.rt.stats[node].get('failed_builds')
        self.noted.append(('touched', node) if told else ('not told', node))

    def audit(self, context, nodename, startup=False):
        self.noted.append(('audits', nodename, startup))
        if self.elsewhere:
            raise names.ComputeHostNotFound(host=nodename)

    def test_node_that_is_due(self):
        self.compute._update_available_resource_for_node(
            None, NODE, startup=True)
        self.assertEqual(
            [('begins', NODE), ('audits', NODE, True), ('ends', NODE)],
            self.noted)
        # At its beginning and at its end.
        self.assertEqual(2, self.steps)

    def test_node_that_is_not(self):
        self.next = False
        self.compute._update_available_resource_for_node(None, NODE)
        self.assertEqual([], self.noted)
        self.assertEqual(0, self.steps)

    def test_node_that_the_driver_wants_to_be_audited(self):
        self.next = False
        self.tracker.audit(NODE)
        self.assertEqual(
            [('begins', NODE), ('audits', NODE, False), ('ends', NODE)],
            self.noted)

    def test_node_that_another_has_meanwhile(self):
        """nova would log a warning for each."""
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        self.elsewhere = True
        self.compute._update_available_resource_for_node(
            None, NODE, startup=True)
        self.tracker.audit(NODE)
        self.assertEqual([('begins', NODE), ('audits', NODE, True)] + [
            ('begins', NODE), ('audits', NODE, False)], self.noted)
        self.assertEqual('', log.output)

    def test_whatever_reports_a_node(self):
        self.rt._update(None, self.record, startup=True)
        self.updated.assert_called_once_with(None, self.record, startup=True)
        self.updated.side_effect = OSError
        self.assertRaises(OSError, self.rt._update, None, self.record)
        self.assertEqual([('touched', NODE), ('not told', NODE)], self.noted)

    def test_what_placement_was_not_told_though_nova_goes_on(self):
        wanted, known = self.rt.provider_tree, self.client._provider_tree
        for update in 'update_traits', 'update_aggregates':
            self.noted.clear()
            getattr(wanted, update)(NODE, ['x'])
            self.rt._update(None, self.record)
            getattr(known, update)(NODE, ['x'])
            self.rt._update(None, self.record)
            self.assertEqual(
                [('not told', NODE), ('touched', NODE)], self.noted)
        known.remove(NODE)
        self.rt._update(None, self.record)
        self.assertEqual(('not told', NODE), self.noted[-1])

    def test_instances_that_change_or_are_deleted(self):
        self.rt.update_usage(None, {'uuid': 'i1'}, NODE)
        self.usage.assert_called_once_with(None, {'uuid': 'i1'}, NODE)
        instance = mock.Mock(node=NODE)
        self.complete.side_effect = OSError
        self.assertRaises(OSError, self.compute._complete_deletion,
                          None, instance)
        self.complete.assert_called_once_with(None, instance)
        self.assertEqual([('touched', NODE)] * 2, self.noted)

    def test_builds_that_fail_and_succeed(self):
        """As soon as they are counted, and not before."""
        for build, failed in ((self.rt.build_failed, 1),
                              (self.rt.build_succeeded, 0)):
            build(NODE)
            self.assertEqual(failed, self.failed)
        self.assertEqual([('touched', NODE)] * 2, self.noted)


class EnablingTestCase(base.TrackerTestCase):

    def test_who_is_disabled_knows_it(self):
        done = []
        update = self.compute._update_compute_provider_status
        base.replace(
            handlers.note_switch, self.compute,
            note_switch=lambda: done.append('known'))
        self.compute._update_compute_provider_status(None, enabled=False)
        self.assertEqual(['known'], done)
        update.assert_not_called()


class CreationsTestCase(base.DatabaseTestCase):
    """Two hosts create the record of one node at the same time."""

    def setUp(self):
        super().setUp()
        self.services = {host: self.service(host) for host in ('a', 'b')}

    def tracker(self, host, may_take=bool):
        """Return a tracker of nova that creates what it is told to."""
        tracker = resource_tracker.ResourceTracker(
            host, mock.Mock(), reportclient=mock.Mock())
        tracker.service_ref = self.services[host]
        tracker.told = self.useFixture(fixtures.MockPatchObject(
            tracker, '_update_to_placement')).mock
        base.replace(
            base.RECORD_MOVES, mock.Mock(rt=tracker), nodes__may_take=may_take,
            nodes__may_create=bool)
        return tracker

    def copy_resources(self, record, resources, initial=False):
        record.update_from_virt_driver({
            **resources, 'hypervisor_type': 'ironic', 'hypervisor_version': 1,
            'cpu_info': '', 'vcpus': 1, 'vcpus_used': 0, 'memory_mb': 1,
            'memory_mb_used': 0, 'local_gb': 1, 'local_gb_used': 0})

    def init(self, tracker):
        with mock.patch.object(
                tracker, '_copy_resources', self.copy_resources), (
                    mock.patch.object(tracker, '_setup_pci_tracker')):
            return tracker._init_compute_node(
                names.admin_context(),
                {'hypervisor_hostname': NODE, 'uuid': NODE})

    def test_who_was_first_stands_down_as_nova_takes_its_record(self):
        first, second = self.tracker('a'), self.tracker('b')
        create = objects.ComputeNode.create

        def create_both(record):
            if record.host == 'a':
                create(record)
                self.init(second)
            else:
                create(record)

        # Neither of them has found a record.
        with mock.patch.object(objects.ComputeNode, 'create', create_both), (
                mock.patch.object(
                    objects.ComputeNode, 'get_by_uuid', self.get_by_uuid)):
            self.blind = 2
            self.assertRaises(
                names.ComputeHostNotFound, self.init, first)
        self.assertEqual({}, first.compute_nodes)
        self.assertEqual({NODE}, set(second.compute_nodes))
        self.assertEqual('b', objects.ComputeNode.get_by_uuid(
            names.admin_context(), NODE).host)

    def get_by_uuid(self, context, uuid):
        if self.blind:
            self.blind -= 1
            raise exception.ComputeHostNotFound(host=uuid)
        return objects.ComputeNodeList.get_all_by_uuids(context, [uuid])[0]

    def audit(self, tracker):
        self.init(tracker)
        with mock.patch.object(
                tracker, '_resource_change', return_value=True):
            tracker._update(names.admin_context(), tracker.compute_nodes[NODE])

    def assertIsWholly(self, host):
        """And stays when the other one's service is deleted."""
        [other] = self.services.keys() - {host}
        main_db.service_destroy(
            names.admin_context(), self.services[other].id)
        [row] = objects.ComputeNodeList.get_all_by_uuids(
            names.admin_context(), [NODE])
        self.assertEqual((host, self.services[host].id),
                         (row.host, row.service_id))

    def test_record_that_moves_before_its_old_owner_saves_it(self):
        """nova saves its usage at the end of a delete, for example."""
        old, new = self.tracker('a', lambda record: False), self.tracker('b')
        self.audit(old)
        self.audit(new)
        old.compute_nodes[NODE].save()
        old.told.reset_mock()
        self.assertRaises(names.ComputeHostNotFound, self.audit, old)
        old.told.assert_not_called()
        self.assertEqual({}, old.compute_nodes)
        self.assertIsWholly('b')

    def test_record_of_a_service_that_was_deleted_and_made_again(self):
        """nova undeletes it with the id of the deleted service."""
        self.audit(self.tracker('a'))
        main_db.service_destroy(names.admin_context(), self.services['a'].id)
        self.services['a'] = self.service('a')
        old, new = self.tracker('a', lambda record: False), self.tracker('b')
        self.init(old)
        self.audit(new)
        self.assertRaises(names.ComputeHostNotFound, self.audit, old)
        self.assertIsWholly('b')

    def test_service_id_of_a_record_of_ones_own(self):
        self.audit(self.tracker('a'))
        main_db.service_destroy(names.admin_context(), self.services['a'].id)
        self.services['a'] = self.service('a')
        tracker = self.tracker('a')
        for _ in range(2):
            self.audit(tracker)
        self.assertIsWholly('a')

    def moved_in_use(self):
        """Return the tracker whose node has moved; it saves its usage."""
        old, new = self.tracker('a', lambda record: False), self.tracker('b')
        base.replace((handlers.note_usage, operations.abort_claim),
                     mock.Mock(rt=old))
        self.audit(old)
        old.compute_nodes[NODE].service_id = None
        self.audit(new)
        return old

    def test_usage_of_a_node_that_has_moved(self):
        """The delete goes on and frees the allocation."""
        old = self.moved_in_use()
        old.compute_nodes[NODE].service_id = self.services['a'].id
        old.tracked_instances.add('i1')
        with mock.patch.multiple(
                old, _update_usage_from_instance=mock.Mock(),
                _resource_change=mock.Mock(return_value=True)):
            old.update_usage(names.admin_context(), {'uuid': 'i1'}, NODE)
        self.assertEqual({}, old.compute_nodes)
        self.assertIsWholly('b')

    def assertGivesBack(self, old):
        """And no other error hides why the build ends."""
        instance = mock.MagicMock(resources=None)
        old.tracked_instances.add(instance['uuid'])
        with mock.patch.multiple(
                old, _update_usage=mock.Mock(), _get_usage_dict=mock.Mock(),
                _resource_change=mock.Mock(return_value=True)), (
                    mock.patch.object(
                        stats.Stats, 'update_stats_for_instance')):
            old.abort_instance_claim(names.admin_context(), instance, NODE)
        self.assertEqual((None, None), (instance.host, instance.node))
        instance.save.assert_called_once_with()
        self.assertEqual({}, old.compute_nodes)
        self.assertIsWholly('b')

    def test_claim_of_a_node_that_has_moved(self):
        old = self.moved_in_use()
        old.compute_nodes[NODE].service_id = self.services['a'].id
        self.assertGivesBack(old)

    def test_claim_of_a_node_that_has_left_the_tracker(self):
        old = self.moved_in_use()
        old.remove_node(NODE)
        self.assertGivesBack(old)

    def test_record_that_nobody_else_wants(self):
        tracker = self.tracker('a')
        self.assertTrue(self.init(tracker))
        self.assertEqual({NODE}, set(tracker.compute_nodes))


class StopTestCase(oslo_base.BaseTestCase):

    def test_what_is_done_first_when_the_service_is_told_to_end(self):
        """Before it waits for what it is at, up to minutes."""
        done = []
        compute = object.__new__(manager.ComputeManager)
        for name in ('set_shutdown_in_progress', 'graceful_shutdown',
                     'cleanup_host'):
            setattr(compute, name,
                    lambda *args, name=name: done.append(name))
        starting = start(compute, lambda: done.append('told'))
        with mock.patch.object(service.Service, '__getattr__', None):
            starting.rpcserver = mock.Mock(**{
                'stop.side_effect': lambda: done.append('stopped')})
        starting.rpcserver_alt = None
        starting.binary = starting.topic = 'compute'
        starting.tg = mock.Mock()
        starting.stop()
        self.assertEqual('told', done[0])
        self.assertIn('stopped', done)
        self.assertIn(done[-1], ('graceful_shutdown', 'cleanup_host'))

    def test_the_service_ends_whatever_goes_wrong(self):
        ended = mock.Mock()
        compute = object.__new__(manager.ComputeManager)
        compute.set_shutdown_in_progress = lambda: None

        def stop(self):
            self.manager.set_shutdown_in_progress()
            ended()

        with mock.patch.object(service.Service, 'stop', stop):
            starting = start(compute, mock.Mock(
                side_effect=RuntimeError('no thread')))
            starting.stop()
        ended.assert_called_once_with()

    def test_another_service_is_left_alone(self):
        other = object.__new__(service.Service)
        other.manager = object.__new__(manager.ComputeManager)

        def start_within(self):
            base.replace(handlers.stop_driver, mock.Mock(), end=mock.Mock())

        start_within(other)
        self.assertEqual({'manager'}, set(vars(other)))


class ListenersTestCase(oslo_base.BaseTestCase):

    def listen(self, listener):
        """Have nova listen; return the adapter of that listener."""
        driver = object.__new__(impl_rabbit.RabbitDriver)
        compute = mock.Mock()
        with (mock.patch.object(impl_rabbit.RabbitDriver, 'listen',
                                lambda self, target, *batch: (
                                    driver_base.PollStyleListenerAdapter(
                                        listener, *batch))),
              mock.patch.object(rpc, 'TRANSPORT', mock.Mock(_driver=driver))):
            # The service may be started again in the same process.
            base.replace(handlers.hold_builds, compute)
            base.replace(handlers.hold_builds, compute)
            return driver.listen(mock.sentinel.target, 1, None)

    def test_each_listener_of_nova_holds_builds_from_the_start(self):
        listener = amqpdriver.RpcAMQPListener(
            mock.Mock(prefetch_size=0), mock.Mock())
        adapter = self.listen(listener)
        self.assertIs(listener, adapter._poll_style_listener)
        self.assertIsInstance(listener, listeners.Listener)
        self.assertFalse(adapter._started)

    def test_nova_listens_after_it_has_started_its_driver(self):
        self.assertIn('self.transport._listen(', inspect.getsource(
            rpc_server.RPCServer._create_listener))
        # Nothing comes before it is polled.
        source = inspect.getsource(server.MessageHandlingServer)
        self.assertLess(source.index('self.listener = self._create_listener'),
                        source.index('self.listener.start('))
        self.assertIn('self.connection.drain_events', inspect.getsource(
            impl_rabbit.Connection.consume))
        self.assertNotIn('.consume(', inspect.getsource(
            impl_rabbit.Connection.declare_consumer))

    def test_another_message_bus_is_left_alone(self):
        fake = mock.Mock()
        listen = fake.listen
        with mock.patch.object(rpc, 'TRANSPORT', mock.Mock(_driver=fake)):
            base.replace(handlers.hold_builds, mock.Mock())
        self.assertIs(listen, fake.listen)


class TraitsTestCase(base.TrackerTestCase):

    def test_trait_is_left_as_it_is(self):
        self.patch(objects.Service, 'get_by_compute_host',
                   return_value=mock.Mock(disabled=True))
        shutdown = mock.Mock(**{'begun.return_value': True})
        base.replace(handlers.set_traits, self.compute, shutdown=shutdown)
        self.assertNotIn('COMPUTE_STATUS_DISABLED', self.traits())
        shutdown.begun.return_value = False
        self.assertIn('COMPUTE_STATUS_DISABLED', self.traits())

    def traits(self):
        tree = provider_tree.ProviderTree()
        tree.new_root(NODE, NODE)
        tree.update_traits(NODE, ['CUSTOM_GOLD'])
        self.driver.capabilities_as_traits.return_value = {}
        return set(self.rt._get_traits(
            names.admin_context(), NODE, tree))

    def test_each_node_has_the_trait_that_the_scheduler_asks_for(self):
        base.replace(
            handlers.set_traits, self.compute, shutdown=mock.Mock())
        self.assertEqual(
            {'CUSTOM_GOLD', 'COMPUTE_NODE', 'OWNER_NOVA'}, self.traits())
        if not hasattr(request_filter, 'owner_nova_filter'):
            # Before nova 34 it does not ask.
            self.assertNotIn('OWNER_NOVA', inspect.getsource(request_filter))
            return
        spec = objects.RequestSpec(requested_resources=[])
        with mock.patch.object(request_filter, '_should_filter_by_owner'):
            request_filter.owner_nova_filter(mock.sentinel.context, spec)
        self.assertEqual({'OWNER_NOVA'}, spec.root_required)


class StartTestCase(base.TrackerTestCase):

    def test_service_says_when_it_has_started(self):
        hook = self.compute.post_start_hook
        started = mock.Mock()
        base.replace(handlers.start_driver, self.compute, begin=started)
        self.compute.post_start_hook()
        hook.assert_called_once_with()
        started.assert_called_once_with()

    def builds(self, answers, ending=None, error=None):
        """Return a manager that notes what becomes of its builds.

        :param answers: the last is what the guard answers instead of a build.
        :param ending: the last is whether the service ends.
        """
        compute = object.__new__(manager.ComputeManager)
        self.done, self.result = [], None

        def accept(self_, context, instance, *args, **kwargs):
            self.done.append('asked')
            if error:
                raise error
            self_._do_build_and_run_instance(context, instance, node=NODE)

        def carry_out(self_, context, instance, *args, **kwargs):
            self.done.append('built')
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result

        def build(name, instance, act, node, otherwise, adopt, failed, renew,
                  later):
            return {'otherwise': otherwise, 'later': later}.get(
                answers[-1], act)()

        for name, act in (('build_and_run_instance', accept),
                          ('_do_build_and_run_instance', carry_out)):
            setattr(compute, name, types.MethodType(functools.wraps(
                getattr(manager.ComputeManager, name))(act), compute))
        base.replace(
            base.BUILDS, compute, guard=mock.Mock(build=build),
            backups__keep=lambda *build: self.done.append(build),
            backups__end=lambda *build: self.done.append(build),
            shutdown__begun=lambda: ending[-1],
            in_flight=mock.Mock(
                begin=lambda uuid: self.done.append(f'{uuid} is here'),
                end=lambda uuid: self.done.append(f'{uuid} has ended')))
        return compute

    def test_builds_are_noted_and_copied(self):
        for error, more in ((None, ['built', ('i1', NODE)]),
                            # There is no thread for it.
                            (RuntimeError(), [])):
            compute = self.builds([None], error=error)
            with contextlib.suppress(RuntimeError):
                compute.build_and_run_instance(
                    mock.sentinel.context, mock.Mock(uuid='i1'), {},
                    node=NODE, admin_password='secret')
            here, (uuid, node, arguments), *rest = self.done
            self.assertEqual(('i1 is here', 'i1', NODE), (here, uuid, node))
            self.assertEqual(
                {'context', 'instance', 'image', 'node', 'admin_password'},
                arguments.keys())
            self.assertEqual('secret', arguments['admin_password'])
            self.assertEqual('i1 has ended', rest[-1])
            self.assertEqual(['asked', *more], [
                one for one in rest if one != 'i1 has ended'])

    def test_it_is_said_when_builds_are_over(self):
        policy = build_results.FAILED_BY_POLICY
        over = ['built', ('i1', NODE)]
        answers, ending = [], []
        compute = self.builds(answers, ending)
        for answer, result, ends, expected in (
                (None, build_results.ACTIVE, False, over),
                (None, build_results.FAILED, True, over),
                # By nova itself.
                (None, policy, True, over),
                ('otherwise', policy, False, [('i1', NODE)]),
                # It may have waited for an answer until now.
                ('otherwise', policy, True, []),
                ('later', policy, False, []),
                # The process ends, say.
                (None, SystemExit(), False, ['built'])):
            self.done.clear()
            answers.append(answer)
            ending.append(ends)
            self.result = result
            try:
                self.assertIs(result, compute._do_build_and_run_instance(
                    mock.sentinel.context, mock.Mock(uuid='i1'), node=NODE))
            except SystemExit:
                self.assertIsInstance(result, SystemExit)
            self.assertEqual([*expected, 'i1 has ended'], self.done)

    def test_something_else_is_done_at_the_start(self):
        seen = []
        done = self.compute._init_instance
        base.replace(
            handlers.init_instance, self.compute,
            recovery__start=lambda init, instance: seen.append(
                (init, instance)))
        self.compute.host = 'mine'
        spelt = self.useFixture(fixtures.MockPatchObject(
            handlers.nova_servers, 'spell_host')).mock
        asked = mock.Mock(host='Mine')
        self.compute._init_instance('context', asked)
        done.assert_not_called()
        [(init, instance)] = seen
        self.assertIs(asked, instance)
        spelt.assert_not_called()
        init()
        # Else nova would leave it alone.
        spelt.assert_called_once_with(asked, 'mine')
        done.assert_called_once_with('context', asked)
