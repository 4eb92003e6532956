# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses
import datetime
import inspect
import math
import operator
import re
import socket
import threading
from unittest import mock

import fixtures
from nova.compute import power_state
from nova.compute import provider_tree
from nova.compute import stats
from nova import exception as nova_exception
from nova import objects
from nova import rpc
from nova.scheduler.client import report
from openstack import exceptions as sdk_exception
from oslo_config import fixture as config_fixture
from oslo_messaging import conffixture as messaging_fixture
from oslo_reports import guru_meditation_report
from oslo_utils import fixture as time_fixture
from oslo_utils import timeutils
from oslotest import base

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.adapters import undo
from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost import exception
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import ring as hash_ring
from nova_ironic_multihost.telemetry import status_server
from nova_ironic_multihost.tests.unit.engine import listings
from nova_ironic_multihost.tests.unit.engine import test_watchdog
from nova_ironic_multihost.tests.unit.telemetry import test_status_server

NODES = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(20)]
ME = 'compute-1'


class FakeNode:
    """The part of an openstacksdk node that an audit reads."""

    is_maintenance = False
    power_state = 'power on'
    provision_state = 'available'
    resource_class = 'baremetal'
    traits = ()
    properties = {'cpu_arch': 'x86_64'}

    def __init__(self, node_id, instance_id=None):
        self.id = node_id
        self.instance_id = instance_id


class Pages(listings.Ironic):
    """What Ironic lists to a test, which may do something at each request."""

    def __init__(self, test):
        super().__init__()
        self.act = lambda: None
        self._test = test

    def node(self, node):
        self._answer('node')
        if node not in self._test.ironic:
            raise MarkerNotFound(node)
        instance = self._test.ironic[node]
        return NodeRow(node, instance, f'{node} {instance or "-"} 0'.encode())

    def _answer(self, question):
        super()._answer(question)
        for node in [*self._table]:
            if node not in self._test.ironic:
                self.delete(node)
        for node, instance in self._test.ironic.items():
            self.create(node)
            if self._table[node].instance != instance:
                self.change(node, instance=instance)
        self.act()


def node_of(body):
    """Make an object of what is listed."""
    uuid, instance, _ = body.decode().split()
    return FakeNode(uuid, None if instance == '-' else instance)


class DriverTestCase(base.BaseTestCase):
    """The driver of host compute-1, with nova and Ironic answering by value.

    ``services`` is host -> up, ``ironic`` node -> instance, ``placed``
    instance -> InstanceState, ``owners`` node -> host of its record.
    """

    def setUp(self):
        super().setUp()
        self.services = {}
        self.ironic = dict.fromkeys(NODES)
        self.placed = {}
        self.owners = {}
        self.allocations = set()
        self.host_aggregates = ()
        self.carried = set()
        self.config = self.useFixture(
            config_fixture.Config(multihost.CONF))
        multihost.CONF([], project='nova', default_config_files=[])
        self.config.config(host=ME)
        for name, answer in (
                ('ironic_services', self.all_services),
                ('compute_service', self.one_service),
                ('instance_uuids', self.instance_uuids),
                ('instance_states', lambda wanted: {
                    instance: self.placed[instance] for instance in wanted
                    if instance in self.placed}),
                ('records_of', lambda host: [
                    self.record(node) for node, owner in self.owners.items()
                    if owner == host]),
                ('records', lambda nodes: [
                    self.record(node) for node in nodes
                    if node in self.owners]),
                ('consumers', lambda client, node: frozenset(
                    ['i1'] if node in self.allocations else [])),
                ('host_mapped', lambda host: True),
                ('host_aggregates', lambda: self.host_aggregates),
                ('provider_aggregates', lambda client, node:
                    frozenset(self.carried))):
            self.patch(db, name, answer)
        self.registration = mock.Mock(**{'take_back.return_value': False})
        self.patch(nova_facts, 'ServiceRecord', lambda host: (
            self.registration if host == ME else self.fail(host)))
        self.patch(apply, 'apply', self.apply)
        self.manager = mock.Mock()
        self.manager.reportclient._association_refresh_time = {}
        self.manager.rt.compute_nodes = {}
        self.manager.rt.host = ME
        self.manager.rt.stats = collections.defaultdict(stats.Stats)
        self.pages = Pages(self)
        self.patch(multihost.ironic, 'NodePages', lambda driver: self.pages)
        self.patch(multihost.ironic, 'node',
                   lambda body, connection: node_of(body))
        self.driver = multihost.IronicMultiHostDriver(
            mock.Mock(_compute=self.manager))
        self.connection = mock.Mock()
        self.driver._ironic_connection = self.connection

    def apply(self, rows, targets, parts, real=apply.apply):
        self.parts = parts
        real(rows, targets, parts)

    def all_services(self, servicegroup_api, hypervisor_type):
        return [peers.ComputeService(host, up)
                for host, up in self.services.items()]

    def one_service(self, servicegroup_api, host):
        if host in self.services:
            return peers.ComputeService(host, self.services[host])
        return None

    def instance_uuids(self, host):
        return frozenset(instance for instance, state in self.placed.items()
                         if state.host == host)

    def record(self, node):
        row = mock.Mock(hypervisor_hostname=node, stats={})
        row.save = lambda: self.owners.update({node: row.host})
        return Record(node, self.owners[node], row=row)

    def patch(self, target, name, replacement):
        patcher = mock.patch.object(target, name, replacement)
        patcher.start()
        self.addCleanup(patcher.stop)

    def refuse(self):
        raise ListingError('connection refused')

    def preferred(self, host, *members):
        ring = hash_ring.Ring(members, 1024)
        return {node for node in NODES if ring.host_for(node) == host}

    def place(self, node, instance, host, deleted=False):
        self.ironic[node] = instance
        self.placed[instance] = InstanceState(host, deleted)

    def ago(self, seconds):
        """Return a time stamp of nova; the clock stands still from now on."""
        self.useFixture(time_fixture.TimeFixture())
        return timeutils.utcnow(with_timezone=True) - datetime.timedelta(
            seconds=seconds)

    def tasks(self):
        """Return {name: task} of all threads."""
        return {name: task for thread
                in self.driver.service.threads.values()
                for name, task in thread.tasks.items()}

    def waited(self, wait):
        """Return the number of waits that have ended, and their seconds."""
        [found] = self.driver.service.status_server.waits.labels(
            wait.value).collect()
        values = {one.name.rpartition('_')[2]: one.value
                  for one in found.samples}
        return values['count'], values['sum']

    def start_and_audit(self, times=1):
        """Do the first audit and some more; return the last answer."""
        for _ in range(times + 1):
            found = self.driver.get_available_nodes()
        return found


class GetAvailableNodesTestCase(DriverTestCase):

    def test_rules_for_nodes_with_instances(self):
        self.services = {'compute-1': True, 'compute-2': True}
        preferred = self.preferred(ME, ME, 'compute-2')
        theirs, = sorted(preferred)[:1]
        mine, = sorted(set(NODES) - preferred)[:1]
        self.place(theirs, 'i2', 'compute-2')
        self.place(mine, 'i1', ME)
        self.assertEqual((preferred - {theirs}) | {mine},
                         set(self.driver.get_available_nodes()))

    def test_first_answer_takes_nothing_from_others(self):
        self.owners = dict.fromkeys(NODES, 'compute-2')
        self.assertEqual([], self.driver.get_available_nodes())
        self.assertEqual(set(NODES), set(self.driver.get_available_nodes()))

    def test_start_is_over_even_if_ironic_was_away(self):
        self.owners = dict.fromkeys(NODES, 'compute-2')
        self.pages.act = self.refuse
        self.assertRaises(nova_exception.VirtDriverNotReady,
                          self.driver.get_available_nodes)
        self.pages.act = lambda: None
        self.assertEqual(set(NODES), set(self.driver.get_available_nodes()))

    def test_partitions_option_shapes_the_ring(self):
        self.config.config(group='ironic_multihost', ring_partitions=7)
        self.driver.get_available_nodes()
        self.assertEqual(7, self.driver.service.auditor.preferences.points)
        self.assertIs(self.driver.hash_ring,
                      self.driver.service.auditor.preferences.ring.hashring)

    def test_error_leaves_what_was_known_and_says_the_remedy(self):
        known = set(self.driver.get_available_nodes())
        self.pages.act = self.refuse
        with self.assertLogs('nova_ironic_multihost', 'ERROR') as logs:
            self.assertRaises(nova_exception.VirtDriverNotReady,
                              self.driver.get_available_nodes)
        self.assertEqual(known, set(self.driver.node_cache))
        self.assertIn('connection refused', logs.output[0])
        self.assertIn('[ironic]', logs.output[0])

    def test_instances_and_services_are_read_after_the_nodes(self):
        # A build that is claimed while Ironic lists is otherwise taken for
        # an instance of somebody else.
        order = []
        self.driver.get_available_nodes()
        self.pages.act = lambda: order.append('nodes')
        self.patch(db, 'instance_uuids',
                   lambda host: order.append('instances') or [])
        self.patch(db, 'ironic_services',
                   lambda *arguments: order.append('services') or [])
        self.driver.get_available_nodes()
        self.assertEqual('nodes', order[0])
        self.assertEqual(['services', 'instances'], order[-2:])

    def test_what_it_manages_is_logged_on_change_only_and_as_counts(self):
        with self.assertLogs(operator_news.__name__, 'INFO') as logs:
            self.driver.get_available_nodes()
            self.driver.get_available_nodes()
        line, = logs.output
        self.assertIn('Managing 20 of 20 nodes: 20 free and recorded nowhere '
                      'so far.', line)

    def test_only_the_partition_is_listed(self):
        self.config.config(group='ironic', shard='rack1')
        self.assertEqual([], self.driver.get_available_nodes())
        self.pages.act = lambda: self.pages.change(NODES[0], shard='rack1')
        self.assertEqual(NODES[:1], self.driver.get_available_nodes())


class InitHostTestCase(DriverTestCase):

    def test_starts_without_ironic(self):
        self.pages.act = self.refuse
        self.driver.init_host(ME)
        self.assertEqual(
            {ME}, set(self.driver.service.auditor.preferences.members))
        self.assertEqual([], self.driver.list_instance_uuids())

    def test_operations_are_those_of_this_host_from_the_start(self):
        self.driver.init_host(ME)
        self.placed = {'i1': InstanceState(ME.upper()),
                       'i2': InstanceState('compute-2')}
        self.assertEqual({'i1'}, self.parts.guard.present(
            'event', ['i1', 'i2']))

    def test_the_service_has_each_part_that_a_layer_uses(self):
        self.driver.init_host(ME)
        self.driver.get_available_nodes()
        for module in handlers, operations:
            found = re.findall(
                r'\bparts\.([a-z_]+(?:\.[a-z_]+)*)', inspect.getsource(module))
            self.assertTrue(found)
            for part in found:
                operator.attrgetter(part)(self.parts)

    def test_nova_that_is_another_is_refused_with_a_sentence(self):
        self.patch(table, 'mismatches', lambda: ['In nova 35 ...'])
        self.patch(apply, 'apply', self.fail)
        with self.assertLogs('nova_ironic_multihost', 'ERROR') as logs:
            error = self.assertRaises(exception.ConfigurationContradiction,
                                      self.driver.init_host, ME)
        self.assertIn('In nova 35', logs.output[0])
        self.assertIn('cannot start: In nova 35', str(error))

    def test_evacuations_are_refused_from_the_start(self):
        refused = []
        self.patch(undo.EvacuationUndo, 'refuse',
                   lambda evacuations, uuid: refused.append(uuid))
        self.driver.init_host(ME)
        self.parts.evacuation_refusals.refuse('i1')
        self.assertEqual(['i1'], refused)
        self.assertEqual(
            {}, self.manager._destroy_evacuated_instances(None, {}))

    def test_an_audit_of_a_node_copies_nothing_of_others(self):
        client = self.manager.reportclient = report.SchedulerReportClient(
            adapter=mock.Mock())
        self.driver.init_host(ME)
        # nova 34 copies one root itself.
        self.assertEqual(
            not hasattr(client, 'get_provider_subtree_and_ensure_root'),
            'get_provider_tree_and_ensure_root' in vars(client))

    def test_ironic_is_reached_by_way_of_the_operations(self):
        self.patch(operations, 'GuardedConnection',
                   lambda connection, guard, asking: ('asks', connection))
        self.assertEqual(('asks', self.connection),
                         self.driver.ironic_connection)

    def test_operations_wait_for_ironic_and_audits_do_not(self):
        waiting = []
        self.pages.act = lambda: waiting.append(isinstance(
            self.driver.ironic_connection, retry.RetryingConnection))
        self.driver.get_available_nodes()
        # That was the start.
        self.assertIsInstance(
            self.driver.ironic_connection, retry.RetryingConnection)
        self.driver.get_available_nodes()
        self.driver.service.nodes.poll_peers()
        self.assertEqual({False}, set(waiting))
        self.assertIsInstance(
            self.driver.ironic_connection, retry.RetryingConnection)

    def test_nobody_waits_for_ironic_with_the_lock_of_the_tracker(self):
        self.driver.get_available_nodes()
        waiting = []

        def get_node(driver, node_id):
            waiting.append(isinstance(driver.ironic_connection,
                                      retry.RetryingConnection))
            raise TimeoutError

        self.patch(names.IronicDriver, '_get_node', get_node)
        for ask in (self.driver.get_available_resource,
                    self.driver.node_is_available,
                    lambda node: self.driver.update_provider_tree(
                        mock.Mock(), node)):
            self.driver.node_cache.forget(NODES[0])
            self.assertRaises(TimeoutError, ask, NODES[0])
        self.assertEqual([False] * 3, waiting)

    def test_contradicting_settings_stop_the_service_with_the_remedy(self):
        self.config.config(update_resources_interval=-1)
        with self.assertLogs('nova_ironic_multihost', 'ERROR') as logs:
            error = self.assertRaises(exception.ConfigurationContradiction,
                                      self.driver.init_host, ME)
        self.assertIn('update_resources_interval', str(error))
        self.assertIn('update_resources_interval', logs.output[0])

    def watched(self):
        """Start a driver that systemd watches; return where that listens."""
        path = f'{self.useFixture(fixtures.TempDir()).path}/notify'
        line = test_watchdog.listening(self, path)
        with (fixtures.EnvironmentVariable('NOTIFY_SOCKET', path),
              fixtures.EnvironmentVariable('WATCHDOG_USEC', '30000000'),
              fixtures.EnvironmentVariable('WATCHDOG_PID')):
            self.driver = multihost.IronicMultiHostDriver(
                mock.Mock(_compute=self.manager))
        for one in self.driver.service.lease_renewer._timers:
            self.addCleanup(one.stop)
        return line

    def test_systemd_is_told_that_it_lives_before_the_first_audit(self):
        self.useFixture(messaging_fixture.ConfFixture(multihost.CONF))
        line = self.watched()
        self.driver.init_host(ME)
        self.assertEqual(b'READY=1\nWATCHDOG=1', line.recv(4096))

    def test_the_watchdog_has_to_be_faster_than_a_take_over(self):
        self.useFixture(messaging_fixture.ConfFixture(multihost.CONF))
        self.watched()
        self.config.config(group='ironic_multihost', instance_takeover='down',
                           takeover_after=269)
        error = self.assertRaises(exception.ConfigurationContradiction,
                                  self.driver.init_host, ME)
        self.assertIn('within 270 s', str(error))
        self.config.config(group='ironic_multihost', takeover_after=270)
        with self.assertNoLogs('nova_ironic_multihost', 'WARNING'):
            self.driver.init_host(ME)

    def test_take_over_of_whoever_is_not_heard_without_a_watchdog(self):
        self.config.config(group='ironic_multihost', instance_takeover='down')
        with self.assertLogs('nova_ironic_multihost', 'WARNING') as logs:
            self.driver.init_host(ME)
        self.assertIn('no watchdog', logs.output[0])
        self.config.config(
            group='ironic_multihost', instance_takeover='forced_down')
        with self.assertNoLogs('nova_ironic_multihost', 'WARNING'):
            self.driver.init_host(ME)

    def test_nobody_watches_and_nobody_asks(self):
        self.driver.init_host(ME)
        [timer] = self.driver.service.lease_renewer._timers
        self.assertFalse(timer.is_alive())

    def test_build_with_an_invalid_image_is_tried_on_no_other_node(self):
        """As nova does it from 33.0.2 on (bug 2127087)."""
        spawn = mock.Mock()
        self.patch(names.IronicDriver, 'spawn', spawn)
        other = nova_exception.InstanceDeployFailure('InvalidImage')
        for raised, expected in (
                (sdk_exception.BadRequestException('InvalidImage: it is raw'),
                 names.BuildAbortException),
                (sdk_exception.BadRequestException('another'),
                 sdk_exception.BadRequestException),
                (other, nova_exception.InstanceDeployFailure)):
            spawn.side_effect = raised
            error = self.assertRaises(
                expected, self.driver.spawn, mock.sentinel.context,
                mock.Mock(uuid='i1'), 'image', [], None, {}, power_on=True)
            self.assertIn(str(raised), str(error))
        self.assertEqual('image', spawn.call_args.args[2])

    def test_record_is_moved_only_if_it_still_may(self):
        self.services = {ME: True, 'compute-2': True}
        taken = mock.Mock(deleted=False, host='compute-2', stats=None,
                          hypervisor_hostname=NODES[0])
        gone = mock.Mock(deleted=True, host='compute-2')
        answers = iter([taken, gone, None])
        self.manager.rt._get_compute_node = lambda *args: next(answers)
        self.driver.init_host(ME)
        mine, *_ = self.driver.get_available_nodes()
        read = self.manager.rt._get_compute_node
        self.assertRaises(nova_exception.ComputeHostNotFound,
                          read, mock.sentinel.context, NODES[0])
        self.assertIs(gone, read(mock.sentinel.context, mine))
        self.assertIsNone(read(mock.sentinel.context, mine))

    def test_nova_compares_with_the_records_of_the_audit(self):
        self.driver.init_host(ME)
        self.owners = {NODES[0]: ME, NODES[1]: 'compute-2'}
        self.driver.get_available_nodes()
        rows = self.manager._get_compute_nodes_in_db(
            mock.sentinel.context, set(), use_slave=True, startup=False)
        self.assertEqual([NODES[0]],
                         [row.hypervisor_hostname for row in rows])


class ListInstanceUuidsTestCase(DriverTestCase):

    def test_empty_before_the_first_audit(self):
        self.place(NODES[0], 'i1', ME)
        self.assertEqual([], self.driver.list_instance_uuids())
        self.assertEqual([], self.pages.asked)

    def test_mine_and_leaked_but_not_unknown(self):
        self.place(NODES[0], 'mine', ME)
        self.place(NODES[1], 'leaked', 'compute-2', deleted=True)
        self.ironic[NODES[2]] = 'unknown'
        self.place(NODES[3], 'theirs', 'compute-2')
        self.start_and_audit()
        self.assertEqual({'mine', 'leaked'},
                         set(self.driver.list_instance_uuids()))
        self.patch(objects.Instance, 'get_by_uuid',
                   lambda *args, **kwargs: self.fail('nova was asked'))
        self.assertEqual(2, self.driver.get_num_instances())


class GetAvailableResourceTestCase(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.owners = dict.fromkeys(NODES, 'compute-2')
        self.start_and_audit()

    def come(self):
        """Have nova's tracker come to a node."""
        with self.driver.service.due_nodes.auditing(NODES[0]):
            self.driver.get_available_resource(NODES[0])
            self.driver.service.due_nodes.touch(NODES[0])

    def test_node_that_is_not_mine_is_refused(self):
        self.owners[NODES[0]] = 'compute-3'
        self.services['compute-3'] = True
        self.driver.get_available_nodes()
        self.assertRaises(nova_exception.ComputeHostNotFound,
                          self.driver.get_available_resource, NODES[0])

    def test_nothing_is_looked_up(self):
        """The record is judged when the tracker has read it."""
        for name in ('records', 'compute_service', 'instance_states'):
            self.patch(db, name, mock.Mock(side_effect=AssertionError))
        self.driver.get_available_resource(NODES[0])

    def test_placement_is_asked_for_a_node_that_is_about_to_move(self):
        # What is left of an attempt that failed must not be believed.
        self.come()
        forget = self.manager.reportclient.invalidate_resource_provider
        forget.assert_called_once_with(NODES[0])

    def test_placement_is_asked_again_for_nodes_that_came_lately(self):
        # Their former owner may have set traits since.
        self.manager.rt.compute_nodes = {NODES[0]: mock.Mock()}
        forget = self.manager.reportclient.invalidate_resource_provider
        self.come()
        forget.assert_not_called()
        self.driver.get_available_nodes()
        self.come()
        forget.assert_called_once_with(NODES[0])

    def test_partition_is_told_to_other_computes(self):
        self.patch(self.driver, '_can_send_version', mock.Mock())
        self.assertNotIn(
            db.PARTITION,
            self.driver.get_available_resource(NODES[0])['stats'])
        self.config.config(group='ironic', shard='rack1')
        self.assertEqual(
            'shard=rack1',
            self.driver.get_available_resource(NODES[0])['stats'][
                db.PARTITION])


class UpdateProviderTreeTestCase(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.patch(audit_state, 'PULL_DELAY_AUDITS', 1)
        self.tree = provider_tree.ProviderTree()
        for node in NODES:
            self.tree.new_root(node, node)

    def reserved(self, node):
        self.driver.update_provider_tree(self.tree, node)
        return self.tree.data(node).inventory['CUSTOM_BAREMETAL']['reserved']

    def pull(self):
        """Return a node that is about to move from compute-2."""
        self.services = {'compute-2': True, ME: True}
        self.owners = dict.fromkeys(NODES, 'compute-2')
        return self.start_and_audit()[0]

    def test_node_is_offered_after_it_has_moved_not_before(self):
        node = self.pull()
        self.assertEqual(1, self.reserved(node))
        self.manager.rt.compute_nodes = {node: mock.Mock()}
        self.assertEqual(0, self.reserved(node))

    def test_node_to_which_a_build_was_sent_does_not_move(self):
        node = self.pull()
        self.allocations = {node}
        self.assertRaises(nova_exception.ComputeHostNotFound,
                          self.driver.update_provider_tree, self.tree, node)

    def test_old_owner_does_not_overwrite_what_the_new_one_says(self):
        # nova asks again when placement says that another was faster.
        self.services = {'compute-2': True, ME: True}
        self.owners = dict.fromkeys(NODES, ME)
        self.manager.rt.compute_nodes = dict.fromkeys(NODES, mock.Mock())
        self.start_and_audit()
        lost = next(iter(self.preferred('compute-2', ME, 'compute-2')))
        self.assertEqual(0, self.reserved(lost))
        self.owners[lost] = 'compute-2'
        self.assertRaises(nova_exception.ComputeHostNotFound,
                          self.driver.update_provider_tree, self.tree, lost)

    def test_stray_instances_and_lost_nodes_are_not_offered(self):
        # Even where nova is told not to reserve nodes with instances.
        self.config.config(group='workarounds',
                           skip_reserve_in_use_ironic_nodes=True)
        self.place(NODES[0], 'leaked', 'compute-2', deleted=True)
        self.ironic[NODES[1]] = 'unknown'
        self.place(NODES[2], 'mine', ME)
        self.owners = dict.fromkeys(NODES, ME)
        self.start_and_audit()
        del self.ironic[NODES[3]]
        self.start_and_audit(0)
        self.assertEqual([1, 1, 0, 1, 0],
                         [self.reserved(node) for node in NODES[:5]])

    def test_node_has_the_aggregates_of_this_host(self):
        self.host_aggregates = (
            peers.Aggregate.of('ours', frozenset([ME]), None),
            peers.Aggregate.of('theirs', frozenset(['compute-2']), None))
        self.services = {ME: True, 'compute-2': True}
        node = self.start_and_audit()[0]
        # nova's copy is older than what neutron has done.
        self.tree.update_aggregates(node, ['theirs'])
        self.carried = {'theirs', 'of-neutron'}
        self.driver.update_provider_tree(self.tree, node)
        self.assertEqual({'ours', 'of-neutron'},
                         self.tree.data(node).aggregates)


class GetInfoTestCase(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.place(NODES[0], 'i1', ME)
        self.start_and_audit()
        self.instance = mock.Mock(uuid='i1', node=NODES[0])
        off = FakeNode(NODES[0], 'i1')
        off.power_state = 'power off'
        self.connection.nodes.return_value = iter([off])
        self.connection.get_node.return_value = off
        self.connection.find_node.return_value = off

    def state(self, **options):
        return self.driver.get_info(self.instance, **options).state

    def test_as_was_listed_last(self):
        self.assertEqual(power_state.RUNNING, self.state())

    def test_as_it_is_now(self):
        self.assertEqual(power_state.SHUTDOWN, self.state(use_cache=False))

    def test_of_an_instance_that_was_not_listed(self):
        self.driver.node_cache.forget(NODES[0])
        self.assertEqual(power_state.SHUTDOWN, self.state())

    def test_signature_is_novas(self):
        self.assertEqual(
            inspect.signature(names.IronicDriver.get_info),
            inspect.signature(multihost.IronicMultiHostDriver.get_info))


class IsNodeDeletedTestCase(DriverTestCase):

    def test_only_what_ironic_has_confirmed(self):
        self.owners = dict.fromkeys(NODES, ME)
        self.start_and_audit()
        del self.ironic[NODES[0]]
        for deleted in (False, True):
            self.driver.get_available_nodes()
            self.assertEqual(deleted,
                             self.driver.is_node_deleted(NODES[0]))
        self.assertFalse(self.driver.is_node_deleted(NODES[1]))
        self.assertFalse(self.driver.is_node_deleted('never-heard-of'))

    def test_nothing_is_deleted_before_the_first_audit(self):
        self.assertFalse(self.driver.is_node_deleted(NODES[0]))


class PrepareForSpawnTestCase(DriverTestCase):

    def prepare(self):
        instance = mock.MagicMock(uuid='i1', created_at=self.ago(40))
        instance.get.return_value = NODES[0]
        self.driver.prepare_for_spawn(instance)

    def test_node_is_reserved(self):
        node = FakeNode(NODES[0])
        self.connection.get_node.return_value = node
        self.prepare()
        self.connection.update_node.assert_called_once_with(
            node, retry_on_conflict=False, instance_id='i1')
        self.assertEqual((1, 40), self.waited(Wait.BUILD))

    def test_build_goes_elsewhere_when_another_has_the_node(self):
        self.connection.get_node.return_value = FakeNode(NODES[0])
        self.connection.update_node.side_effect = (
            sdk_exception.ConflictException)
        self.assertRaises(nova_exception.ComputeResourcesUnavailable,
                          self.prepare)
        self.assertEqual((0, 0), self.waited(Wait.BUILD))

    def test_build_goes_elsewhere_when_the_node_is_gone(self):
        self.connection.get_node.side_effect = sdk_exception.ResourceNotFound
        self.assertRaises(nova_exception.ComputeResourcesUnavailable,
                          self.prepare)

    def test_other_errors_end_the_build(self):
        self.connection.get_node.return_value = FakeNode(NODES[0])
        self.connection.update_node.side_effect = (
            sdk_exception.ForbiddenException)
        self.assertRaises(nova_exception.InstanceDeployFailure, self.prepare)


class RebuildTestCase(DriverTestCase):

    def rebuild(self, bdms, reimage):
        with mock.patch.object(names.IronicDriver, 'rebuild') as done:
            self.driver.rebuild(
                'context', 'instance', 'image', 'files', 'password',
                'allocations', bdms, 'detach', 'attach', network_info='net',
                reimage_boot_volume=reimage)
        self.assertEqual('net', done.call_args.kwargs['network_info'])
        return done.call_args.kwargs['reimage_boot_volume']

    def test_image_goes_to_a_boot_volume_only_if_there_is_one(self):
        for volume in (True, False):
            bdms = mock.Mock()
            bdms.root_bdm.return_value = mock.Mock(is_volume=volume)
            for reimage in (True, False):
                self.assertEqual(volume and reimage,
                                 self.rebuild(bdms, reimage))


class LookTestCase(DriverTestCase):
    """compute-2 has all nodes and leaves."""

    def setUp(self):
        super().setUp()
        self.patch(audit_state, 'PULL_DELAY_AUDITS', 1)
        self.config.config(group='ironic_multihost', pulls_per_audit=0)
        # Nobody is starting any more.
        self.config.config(service_down_time=0)
        self.services = {ME: True, 'compute-2': True}
        self.owners = dict.fromkeys(NODES, 'compute-2')
        self.tracked = self.manager.rt.compute_nodes
        self.audited = []
        self.stubborn = set()
        self.manager._update_available_resource_for_node = self.take
        self.manager.rt.remove_node = self.tracked.pop
        self.start_and_audit()
        self.driver.service.nodes.poll_peers()

    def take(self, context, node):
        self.audited.append(node)
        # A record that is at hand is not looked at.
        if node not in self.stubborn and node not in self.tracked:
            self.driver.get_available_resource(node)
            self.tracked[node] = mock.Mock()
            self.owners[node] = ME

    def test_free_nodes_of_a_dead_host_are_taken_and_audited_then(self):
        kept, = NODES[:1]
        self.owners[kept] = ME
        self.start_and_audit(incremental.TURNS)
        self.services['compute-2'] = False
        view = self.driver.service.nodes.poll_peers()
        self.assertFalse(view.live('compute-2'))
        self.assertEqual(dict.fromkeys(NODES, ME), self.owners)
        self.assertLessEqual(set(NODES[1:]), set(self.tracked))
        self.assertEqual(set(NODES), set(self.driver.node_cache))
        self.assertEqual([], self.audited)
        self.driver.service.background_audit.once()
        self.assertEqual(NODES, sorted(self.audited))

    def test_node_that_comes_again_is_audited_again(self):
        def audit(context, node):
            with self.driver.service.due_nodes.auditing(node):
                self.take(context, node)
                self.driver.service.due_nodes.touch(node)

        self.manager._update_available_resource_for_node = audit
        for _ in range(2):
            self.services['compute-2'] = False
            self.driver.service.nodes.poll_peers()
            self.driver.service.background_audit.once()
            self.assertEqual(NODES, sorted(self.audited))
            # It was another's in between, and this host has not noticed.
            self.audited.clear()
            self.services['compute-2'] = True
            self.owners.update(dict.fromkeys(NODES, 'compute-2'))
            self.driver.service.nodes.poll_peers()

    def test_node_that_is_out_of_service_is_audited_as_it_is_taken(self):
        """It has to be reserved before a build can be sent here."""
        self.patch(FakeNode, 'is_maintenance', True)
        self.services['compute-2'] = False
        self.driver.service.nodes.poll_peers()
        self.assertEqual(NODES, self.audited)

    def test_one_with_a_server_is_moved_whatever_ironic_says_of_it(self):
        self.patch(FakeNode, 'is_maintenance', True)
        self.ironic[NODES[0]] = 'i1'
        self.placed['i1'] = InstanceState(
            ME, node=NODES[0], vm_state='active')
        self.services['compute-2'] = False
        self.driver.service.nodes.poll_peers()
        self.assertEqual(ME, self.owners[NODES[0]])
        self.assertIn(NODES[0], self.tracked)
        self.assertEqual(NODES[1:], self.audited)

    def test_nothing_is_audited_in_the_background_meanwhile(self):
        self.services['compute-2'] = False
        self.driver.service.nodes.poll_peers()
        with mock.patch.object(
                self.driver.service.peer_poller, 'busy', True):
            self.driver.service.background_audit.once()
        self.assertEqual([], self.audited)
        self.driver.service.background_audit.once()
        self.assertEqual(NODES, sorted(self.audited))

    def test_stale_record_at_hand_is_forgotten_first(self):
        # Of a node that was here, and is taken from who took it.
        self.tracked[NODES[0]] = stale = mock.Mock()
        self.services['compute-2'] = False
        self.driver.service.nodes.poll_peers()
        self.assertIsNot(stale, self.tracked[NODES[0]])
        forget = self.manager.reportclient.invalidate_resource_provider
        forget.assert_any_call(NODES[0])

    def test_service_that_has_started_looks_until_it_stops(self):
        timers = mock.Mock()
        self.driver.service.threads = {'one': timers}
        hook = self.manager.post_start_hook
        self.driver.init_host(ME)
        timers.start.assert_not_called()
        self.manager.post_start_hook()
        hook.assert_called_once_with()
        timers.start.assert_called_once_with()
        timers.stop.assert_not_called()
        self.driver.cleanup_host(ME)
        timers.stop.assert_called_once_with()

    def test_service_that_is_told_to_end_while_it_starts_begins_nothing(self):
        self.driver.service.end()
        self.driver.service.begin()
        for one in self.driver.service.threads.values():
            one.join(60)
            self.assertFalse(one.is_alive())

    def test_what_is_done_every_few_seconds(self):
        self.driver.get_available_nodes()
        done = []
        for name in 'recovery', 'evacuation_refusals':
            self.patch(getattr(self.driver.service, name), 'sweep',
                       lambda view, name=name: done.append((name, view)))
        listen = mock.Mock()
        self.patch(self.driver.service.peer_poller, 'listen', listen)
        for task in self.tasks().values():
            task.run()
        view = self.driver.service.peer_poller.view
        self.assertIsNotNone(view)
        self.assertEqual(
            [('recovery', view), ('evacuation_refusals', view)], done)
        listen.assert_called_once()

    def test_tasks_that_may_wait_for_other_services_have_other_threads(self):
        self.assertEqual([
            {'peer_poll'}, {'heartbeats'}, {'recovery'},
            {'ironic_changes'}, {'evacuation_refusals'},
            {'background_audit'},
            {'provider_changes', 'in_flight'},
            {'backups', 'queue_forwarder'},
        ], [set(thread.tasks) for thread
            in self.driver.service.threads.values()])

    def test_copies_are_attended_while_the_queues_of_others_are_read(self):
        queue = mock.MagicMock()
        self.driver.service.backups._queue = queue
        self.patch(self.driver.service.forwarder, 'once', mock.Mock(
            side_effect=lambda: (
                queue.attended().__enter__.assert_called_once_with(),
                queue.attended().__exit__.assert_not_called())))
        self.tasks()['queue_forwarder'].run()
        self.driver.service.forwarder.once.assert_called_once_with()
        queue.attended().__exit__.assert_called_once_with(None, None, None)

    def test_lost_builds_are_found_although_the_own_queue_is_slow(self):
        client = mock.Mock()
        self.patch(rpc, 'get_client', lambda *args, **kwargs: client)
        self.driver.service.in_flight._builds.receive()
        client.prepare.assert_called_once_with(server=ME)

    def test_silence_that_a_look_has_met_is_told(self):
        self.driver.get_available_nodes()
        noted = mock.Mock()
        self.patch(self.driver.service.recovery, 'note_silence', noted)
        self.driver.service.nodes.poll_peers()
        noted.assert_not_called()
        self.patch(db, 'ironic_services', mock.Mock(
            side_effect=TimeoutError))
        self.assertRaises(TimeoutError, self.driver.service.nodes.poll_peers)
        noted.assert_called_once_with()

    def test_only_the_peer_poll_hurries_near_the_end_of_a_stop(self):
        self.driver.get_available_nodes()
        timers = self.tasks()
        before = {name: one._seconds() for name, one in timers.items()}
        self.patch(
            self.driver.service.auditor.heartbeats, 'next_over',
            lambda settings: 0)
        self.assertEqual({**before, 'peer_poll': 1}, {
            name: one._seconds() for name, one in timers.items()})
        self.assertEqual(10, before['peer_poll'])

    def test_what_a_look_has_pulled_is_asked_for_in_the_background(self):
        self.services = {ME: True}
        self.owners = dict.fromkeys(NODES, ME)
        self.driver.get_available_nodes()
        asked = []
        self.patch(self.driver.service.tracker, 'unchanged', lambda nodes: (
            asked.extend(nodes) or {*nodes}))
        self.driver.service.due_nodes._audited[NODES[0]] = mock.Mock()
        self.driver.service.peer_poller._pulled = (NODES[0],)
        self.driver.service.nodes.poll_peers()
        self.assertEqual([], asked)
        self.patch(self.driver.service.tracker, 'has', lambda node: True)
        self.patch(self.driver.service.tracker, 'audit', lambda node: None)
        self.tasks()['background_audit'].run()
        self.assertEqual([NODES[0]], asked)

    def test_records_of_this_host_are_not_read_while_nothing_happens(self):
        """They are at the first audit and at every tenth."""
        self.services = {ME: True}
        self.owners = dict.fromkeys(NODES, ME)
        self.driver.get_available_nodes()
        self.start_and_audit(incremental.TURNS)
        asked = []
        read = db.records_of
        self.patch(db, 'records_of', lambda host: (
            asked.append(host) or read(host)))
        self.patch(
            undo.BuildRequests, 'unclaimed', lambda self: frozenset())
        for name in ('peer_poll', 'ironic_changes', 'in_flight',
                     'background_audit'):
            for _ in range(10):
                self.tasks()[name].run()
        self.assertEqual([], asked)


class SwitchTestCase(DriverTestCase):
    """The service is disabled, or enabled."""

    def test_the_request_does_not_wait_and_the_status_is_looked_at(self):
        self.services[ME] = True
        self.driver.init_host(ME)
        self.start_and_audit(incremental.TURNS)
        self.driver.service.nodes.poll_peers()
        due, doubt = self.driver.service.due_nodes, mock.Mock()
        inputs = due._inputs
        self.patch(self.driver.service.auditor, 'doubt', doubt)
        self.manager._update_compute_provider_status(None, False)
        doubt.assert_called_once_with()
        task, = self.driver.service.threads['peer_poll'].tasks.values()
        self.assertEqual(-math.inf, task.due)
        task.run()
        self.assertNotEqual(inputs, due._inputs)


class EndTestCase(DriverTestCase):
    """The service is told to end."""

    def setUp(self):
        super().setUp()
        self.services.update({ME: True, 'compute-2': False})
        self.owners = dict.fromkeys(NODES[:10], ME)
        self.owners.update(dict.fromkeys(NODES[10:], 'compute-2'))
        self.driver.get_available_nodes()
        self.registration.take_back.assert_called_once_with()

    def end(self):
        self.driver.service.end()
        self.driver.service.shutdown._said.wait(60)

    def test_the_others_hear_it_once(self):
        self.registration.say.return_value = True
        self.end()
        self.driver.cleanup_host(ME)
        self.registration.say.assert_called_once()
        # There is nobody else to send builds to.
        self.registration.close.assert_not_called()

    def test_nothing_is_audited_any_more(self):
        self.end()
        self.assertRaises(nova_exception.VirtDriverNotReady,
                          self.driver.get_available_nodes)

    def test_what_was_decided_before_is_not_taken(self):
        self.assertEqual(set(NODES), set(self.driver.get_available_nodes()))
        self.manager.rt.compute_nodes = dict.fromkeys(NODES[:10])
        self.assertTrue(self.driver.service.recheck.may_take(NODES[15]))
        self.end()
        self.assertTrue(self.driver.service.recheck.may_take(NODES[5]))
        self.assertFalse(self.driver.service.recheck.still_valid(NODES[15]))
        self.assertTrue(self.driver.service.recheck.still_valid(NODES[5]))
        self.assertFalse(self.driver.service.recheck.may_create(
            NODES[5], settings.read()))

    def test_a_late_look_takes_nothing(self):
        self.end()
        self.driver.service.nodes.poll_peers()
        self.manager._update_available_resource_for_node.assert_not_called()

    def test_a_farewell_that_is_found_later_is_taken_back(self):
        """The one before was heard late."""
        self.driver.service.nodes.poll_peers()
        self.registration.take_back.assert_called_once_with()
        self.said = 'bye'
        self.driver.service.nodes.poll_peers()
        self.assertEqual(2, self.registration.take_back.call_count)
        self.end()
        self.driver.service.nodes.poll_peers()
        self.assertEqual(2, self.registration.take_back.call_count)

    def test_an_audit_takes_it_back_before_it_pulls(self):
        """The others pull what it would pull."""
        self.said = 'bye'
        done = []
        self.registration.take_back.side_effect = (
            lambda: done.append('back'))
        self.patch(self.driver.service.rebalancer, 'once',
                   lambda label: done.append('pull'))
        self.driver.init_host(ME)
        done.clear()
        nodes = self.driver.get_available_nodes()
        self.assertEqual(['back'], done)
        # What nova asks next.
        self.manager._get_compute_nodes_in_db(None, {*nodes})
        self.assertEqual(['back', 'pull'], done)

    def test_it_is_taken_back_whatever_fails_in_a_look(self):
        self.said = 'bye'
        self.driver.service.nodes.poll_peers()
        self.patch(
            self.driver.service.peer_poller,
            'once',
            mock.Mock(side_effect=OSError),
        )
        self.assertRaises(OSError, self.driver.service.nodes.poll_peers)
        self.assertEqual(3, self.registration.take_back.call_count)

    def test_nodes_are_marked_anew_when_it_was_taken_back(self):
        """An audit may have read that the service is disabled."""
        self.driver.service.nodes.poll_peers()
        due = self.driver.service.due_nodes
        for said, taken_back, anew in (
                ('bye', [False], 0), ('bye', [True], 1), ('bye', OSError, 0),
                # It has been, without an answer.
                ('', [False], 1), ('', AssertionError, 0)):
            self.registration.take_back.side_effect = taken_back
            self.said, switches = said, due.switches
            self.driver.service.nodes.poll_peers()
            self.assertEqual(switches + anew, due.switches)

    def one_service(self, servicegroup_api, host):
        found = super().one_service(servicegroup_api, host)
        return dataclasses.replace(
            found, stop_marker=getattr(self, 'said', '')) if (
                found and host == ME) else found

    def all_services(self, *args):
        return [self.one_service(None, service.host)
                for service in super().all_services(*args)]


class AuditNowTestCase(DriverTestCase):
    """A node is reserved, or freed: placement is told at once."""

    def setUp(self):
        super().setUp()
        self.owners = dict.fromkeys(NODES, ME)
        self.manager.rt.compute_nodes = dict.fromkeys(NODES, mock.Mock())
        self.tree = provider_tree.ProviderTree()
        for node in NODES:
            self.tree.new_root(node, node)
        self.manager._update_available_resource_for_node = self.report
        self.told = []
        self.connection.get_node.side_effect = lambda node, **kwargs: (
            FakeNode(node, self.ironic[node]))
        self.connection.update_node.side_effect = (
            lambda node, instance_id, **kwargs: self.ironic.update(
                {node.id: instance_id}))
        self.instance = mock.MagicMock(
            uuid='i1', created_at=self.ago(9), updated_at=self.ago(5),
            task_state='deleting')
        self.instance.get.return_value = NODES[0]
        self.start_and_audit()

    def report(self, context, node):
        self.driver.update_provider_tree(self.tree, node)
        inventory = self.tree.data(node).inventory
        self.told.append((node, inventory['CUSTOM_BAREMETAL']['reserved']))

    def test_node_that_is_reserved(self):
        self.driver.prepare_for_spawn(self.instance)
        self.assertEqual([(NODES[0], 1)], self.told)

    def test_later_reads_are_no_older_than_the_build(self):
        self.driver.prepare_for_spawn(self.instance)
        self.assertNotIn(NODES[0], self.driver.node_cache)

    def test_node_that_is_freed(self):
        self.driver.prepare_for_spawn(self.instance)

        def free(*args, **kwargs):
            self.ironic[NODES[0]] = None

        with mock.patch.object(
                names.IronicDriver, 'destroy', side_effect=free):
            self.driver.destroy('context', self.instance, 'network')
        self.assertEqual([(NODES[0], 1), (NODES[0], 0)], self.told)
        self.assertEqual((1, 5), self.waited(Wait.DELETE))

    def test_clean_up_after_a_build_is_no_delete(self):
        self.instance.task_state = 'spawning'
        with mock.patch.object(names.IronicDriver, 'destroy'):
            self.driver.destroy('context', self.instance, 'network')
        self.assertEqual((0, 0), self.waited(Wait.DELETE))

    def test_node_is_not_audited_when_it_could_not_be_freed(self):
        with mock.patch.object(names.IronicDriver, 'destroy',
                               side_effect=OSError('refused')):
            self.assertRaises(OSError, self.driver.destroy, 'context',
                              self.instance, 'network')
        self.assertEqual([], self.told)
        self.assertEqual((0, 0), self.waited(Wait.DELETE))

    def test_node_of_a_failed_build_is_read_anew(self):
        self.driver.prepare_for_spawn(self.instance)
        self.driver.node_cache[NODES[0]] = FakeNode(NODES[0], 'i1')
        with mock.patch.object(
                names.IronicDriver, 'failed_spawn_cleanup'):
            self.driver.failed_spawn_cleanup(self.instance)
        self.assertNotIn(NODES[0], self.driver.node_cache)

    def test_build_and_delete_go_on_when_it_fails(self):
        self.manager._update_available_resource_for_node = mock.Mock(
            side_effect=OSError('refused'))
        self.driver.prepare_for_spawn(self.instance)
        with mock.patch.object(names.IronicDriver, 'destroy'):
            self.driver.destroy('context', self.instance, 'network')

    def test_node_of_another_is_left_alone(self):
        # An audit would take it.
        self.manager.rt.compute_nodes = {}
        self.driver.prepare_for_spawn(self.instance)
        self.assertEqual([], self.told)

    def test_listing_from_before_is_not_believed(self):
        def reserve():
            self.pages.act = lambda: None
            self.driver.prepare_for_spawn(self.instance)

        self.pages.act = reserve
        self.driver.get_available_nodes()
        self.report('context', NODES[0])
        self.assertEqual([(NODES[0], 1)] * 2, self.told)

    def test_no_audit_of_all_nodes_for_one(self):
        # nova takes an empty cache for one that was never filled.
        self.driver.node_cache.clear()
        self.pages.asked.clear()
        self.driver.get_available_resource(NODES[0])
        self.assertEqual([], self.pages.asked)


class PollTestCase(DriverTestCase):

    def setUp(self):
        super().setUp()
        self.owners = dict.fromkeys(NODES, ME)
        self.manager.rt.compute_nodes = dict.fromkeys(NODES, mock.Mock())
        self.audited = []
        self.manager._update_available_resource_for_node = self.come
        self.start_and_audit()
        self.poll()
        self.audited.clear()

    def come(self, context, node):
        due_nodes = self.driver.service.due_nodes
        with due_nodes.auditing(node):
            self.audited.append(
                (node, self.driver.node_cache[node].instance_id))
            due_nodes.touch(node)

    def poll(self):
        self.driver.service.nodes.poll_ironic()
        self.driver.service.background_audit.once()

    def test_node_that_changes_is_audited_as_it_is_now(self):
        self.place(NODES[0], 'i1', ME)
        self.poll()
        thread = self.driver.service.threads['background_audit']
        self.assertEqual(-math.inf, thread.tasks['background_audit'].due)
        self.poll()
        self.assertEqual([(NODES[0], 'i1')], self.audited)

    def test_node_to_which_nova_has_come_is_left_to_it(self):
        self.place(NODES[0], 'i1', ME)
        self.place(NODES[1], 'i2', ME)
        self.driver.get_available_nodes()
        with self.driver.service.due_nodes.auditing(NODES[0]):
            self.driver.get_available_resource(NODES[0])
            self.driver.service.due_nodes.touch(NODES[0])
        self.poll()
        self.assertEqual([(NODES[1], 'i2')], self.audited)

    def test_what_this_host_changes_meanwhile_is_read_anew(self):
        self.place(NODES[0], 'i1', ME)
        self.manager._update_available_resource_for_node = mock.Mock()
        self.pages.act = lambda: self.driver.service.nodes.forget(NODES[0])
        self.driver.service.nodes.poll_ironic()
        self.assertNotIn(NODES[0], self.driver.node_cache)


class NodeCacheTestCase(DriverTestCase):

    def test_node_of_another_is_not_added(self):
        self.connection.get_node.side_effect = lambda node, **kwargs: (
            FakeNode(node))
        self.place(NODES[1], 'theirs', 'compute-2')
        self.services = {ME: True, 'compute-2': True}
        mine = set(self.start_and_audit())
        self.assertNotIn(NODES[1], mine)
        known = next(iter(mine))
        self.driver.node_cache.pop(known)
        for node in (known, NODES[1], 'not-listed'):
            self.assertEqual(node, self.driver._node_from_cache(node).id)
        self.assertEqual(mine, set(self.driver.node_cache))

    def test_cache_may_change_while_nova_iterates_over_it(self):
        self.start_and_audit()
        for node in self.driver.node_cache.values():
            self.driver.node_cache.pop(node.id)
        self.assertEqual({}, self.driver.node_cache)


class DeadTestCase(DriverTestCase):
    """A node of a compute service that is dead, with a server."""

    def setUp(self):
        super().setUp()
        self.services = {ME: True, 'compute-2': True, 'dead': False}
        [self.mine, *_] = sorted(
            set(NODES) & set(self.preferred(ME, ME, 'compute-2')))
        self.owners[self.mine] = 'dead'
        self.ironic[self.mine] = 'i1'
        self.placed['i1'] = InstanceState(
            'dead', node=self.mine, vm_state='active',
            task_state='rebooting')
        self.patch(db, 'compute_service', self.fenced)
        self.patch(nova_facts, 'take_over', self.take_over)
        self.beat = self.ago(90)
        self.notified = []
        self.recovered = []
        self.patch(nova_servers.ServerCalls, 'notify',
                   lambda instances, *event: self.notified.append(event))
        self.patch(self.driver.service.recovery, 'add', self.recovered.extend)
        self.driver.get_available_nodes()

    def fenced(self, servicegroup_api, host):
        service = self.one_service(servicegroup_api, host)
        return service and dataclasses.replace(
            service, forced_down=not service.up, beat=self.beat)

    def all_services(self, servicegroup_api, hypervisor_type):
        return [self.fenced(servicegroup_api, host)
                for host in self.services]

    def take_over(self, instances, host, eligible, attempts):
        self.placed |= {instance: dataclasses.replace(state, host=host)
                        for instance, state in instances.items()}
        return dict.fromkeys(instances, True)


class TakeoverTestCase(DeadTestCase):

    def test_it_is_managed_said_and_brought_to_rest(self):
        self.assertIn(self.mine, self.driver.get_available_nodes())
        self.assertEqual(ME, self.placed['i1'].host)
        self.assertEqual(['i1'], self.recovered)
        self.join()
        [(kind, payload)] = self.notified
        self.assertEqual('ironic_multihost.takeover', kind)
        self.assertEqual(
            {'host': ME, 'source_host': 'dead', 'instances': ['i1']},
            payload['ironic_multihost_object.data'])
        self.assertEqual((1, 90), self.waited(Wait.TAKEOVER))
        self.driver.get_available_nodes()
        self.assertEqual(1, len(self.notified))

    def test_a_look_is_enough(self):
        self.patch(self.driver, '_get_node',
                   lambda node: FakeNode(node, self.ironic[node]))
        self.driver.service.nodes.poll_peers()
        self.assertEqual(ME, self.placed['i1'].host)
        self.assertEqual(['i1'], self.recovered)
        self.assertEqual((1, 90), self.waited(Wait.TAKEOVER))
        self.driver.service.nodes.poll_peers()
        self.join()
        self.assertEqual(1, len(self.notified))

    def test_free_node_waits_since_the_last_heartbeat(self):
        [free] = [node for node in sorted(self.preferred(ME, ME, 'compute-2'))
                  if node != self.mine][:1]
        self.owners[free] = 'dead'
        self.driver.get_available_nodes()
        self.driver.service.nodes.poll_peers()
        self.assertEqual(ME, self.owners[free])
        self.assertEqual((1, 90), self.waited(Wait.MOVE))

    def test_one_at_rest_is_left_alone(self):
        self.placed['i1'] = dataclasses.replace(
            self.placed['i1'], task_state=None)
        self.driver.get_available_nodes()
        self.join()
        self.assertEqual((1, []), (len(self.notified), self.recovered))

    def join(self):
        for thread in threading.enumerate():
            if thread.name == 'ironic-multihost-takeover':
                thread.join(60)


class WindowTestCase(DeadTestCase):
    """A scrape over HTTP, and what is said of what goes on."""

    def setUp(self):
        self.patch(settings, 'metrics', lambda: ('127.0.0.1', 0))
        super().setUp()
        # As nova has them when it calls its conductor.
        self.useFixture(messaging_fixture.ConfFixture(multihost.CONF))
        self.now = 10000
        for one in (
            self.driver.service.recorder,
            self.driver.service.health_probe,
        ):
            one._clock = lambda: self.now
        self.driver.service.recorder.begun = self.now
        self.driver.service.recorder.turns.update(
            dict.fromkeys(Work, RunStats()))
        self.patch(self.driver.service, 'threads', {})
        self.lease = mock.Mock()
        self.patch(self.driver.service.lease_renewer, 'start', self.lease)
        self.driver.init_host(ME)
        self.addCleanup(self.driver.cleanup_host, ME)

    def test_lease_for_a_probe_where_nothing_else_watches(self):
        self.lease.assert_called_once_with()
        holder = self.driver.service.lease_renewer
        holder.renew()
        self.assertEqual(200, self.get(f'/leasez/{ME}')[0])
        late = holder._clock() + 121
        holder._clock = lambda: late
        status, _, body = self.get(f'/leasez/{ME}')
        self.assertEqual(503, status)
        self.assertIn('The lease has run out', body.decode())

    def start(self):
        self.driver.service.begin()
        self.go_on()

    def go_on(self):
        """Let an audit and a look come to their end."""
        self.driver.get_available_nodes()
        self.driver.service.nodes.poll_peers()

    def get(self, path):
        return test_status_server.get(
            self.driver.service.status_server.server, path)

    def scrape(self):
        status, _, body = self.get('/metrics')
        self.assertEqual(200, status)
        return test_status_server.parsed(body.decode())

    def health(self):
        status, _, body = self.get(f'/healthz/{ME}')
        return status, body.decode()

    def assertWell(self, why):
        status, text = self.health()
        self.assertEqual(200, status, text)
        self.assertIn(why, text)

    def assertIll(self, why):
        status, text = self.health()
        self.assertEqual(503, status, text)
        self.assertIn(why, text)

    def test_start_however_long_it_takes(self):
        self.now += 90000
        self.assertWell('starts')
        self.assertEqual(90000, self.scrape()['audit_age_seconds',])

    def test_well(self):
        self.start()
        self.now += 5
        self.assertWell('is well')
        found = self.scrape()
        self.assertEqual(2, found['members',])
        self.assertEqual(len(NODES), sum(
            number for (name, *_), number in found.items()
            if name == 'nodes'))
        self.assertEqual(5, found['audit_age_seconds',])
        self.assertEqual(5, found['listing_age_seconds',])
        self.assertEqual(0, found['brake_engaged',])
        self.assertEqual(0, found['operations_refused_total',])

    def test_audit_that_waits_while_machines_are_deleted(self):
        """By another of nova's tasks, which have one thread."""
        self.start()
        connection = self.driver.ironic_connection
        for _ in range(10):
            self.now += 900
            connection.get_node(NODES[0])
            self.assertWell('is well')

    def test_audit_that_deletes_many_records(self):
        self.start()
        for _ in range(10):
            self.now += 900
            self.driver.is_node_deleted(NODES[0])
            self.driver.service.nodes.poll_peers()
            self.assertWell('is well')

    def test_look_that_is_dead(self):
        self.start()
        self.now += 2000
        self.driver.get_available_nodes()
        self.assertIll('no peer poll got any further for 2000 s')
        self.driver.service.nodes.poll_peers()
        self.assertWell('is well')

    def test_ironic_that_does_not_answer(self):
        self.start()
        hangs, goes_on = threading.Event(), threading.Event()
        self.addCleanup(goes_on.set)

        def ask(node):
            hangs.set()
            goes_on.wait(60)

        self.connection.get_node = ask
        connection = self.driver.ironic_connection
        thread = threading.Thread(target=connection.get_node, args=['n1'])
        thread.start()
        self.assertTrue(hangs.wait(60))
        self.now += 2000
        self.assertWell('Ironic has not answered a request for 2000 s')
        goes_on.set()
        thread.join(60)
        self.assertIll('It hangs')

    def test_thread_that_reads_messages_is_dead(self):
        self.start()
        self.driver.service.attendance.note(mock.Mock(
            _started=True, **{'_listen_thread.is_alive.return_value': False}))
        self.assertIll('Nobody reads the messages')

    def test_brake(self):
        """It is shown, and notified."""
        self.owners = dict.fromkeys(NODES, ME)
        self.start()
        for node in NODES[1:]:
            self.ironic.pop(node)
        self.go_on()
        self.go_on()
        self.assertEqual(1, self.scrape()['brake_engaged',])
        self.assertIn(
            'engaged, 19 are missing',
            self.driver.service.status_server.report(),
        )

    def test_gate_that_refuses(self):
        self.start()
        self.placed['i3'] = InstanceState('compute-2')
        self.parts.guard.operate(
            'stop_instance', mock.Mock(uuid='i3'), self.fail)
        self.assertEqual(1, self.scrape()['operations_refused_total',])

    def test_moves_are_counted(self):
        self.start()
        reasons = dict.fromkeys(NODES[:3], ownership.Reason.ADOPTED)
        self.patch(self.driver.service.auditor, 'reason', reasons.get)
        for node in NODES[:3]:
            self.driver.service.tracker._moved(node, node != NODES[0])
        found = self.scrape()
        self.assertEqual(2, found['moves_total', 'adopted'])
        self.assertEqual(1, found['moves_total', 'failed'])

    def test_end(self):
        self.start()
        self.now += 2000
        address = self.driver.service.status_server.server.server_address
        self.driver.service.end()
        self.assertWell('about to end')
        self.driver.cleanup_host(ME)
        self.assertRaises(OSError, socket.create_connection, address, 30)

    def test_port_in_use_ends_nothing(self):
        used = self.driver.service.status_server.server.server_address
        self.patch(settings, 'metrics', lambda: used)
        other = multihost.IronicMultiHostDriver(
            mock.Mock(_compute=self.manager))
        with self.assertLogs(status_server.__name__, 'WARNING'):
            other.init_host(ME)

    def test_port_in_use_where_only_a_probe_ends_it(self):
        """The other one would answer the probe of this one, if not in words.

        Nobody would end this one, and others would take over what it has.
        """
        used = self.driver.service.status_server.server.server_address
        self.patch(settings, 'metrics', lambda: used)
        self.config.config(group='ironic_multihost', instance_takeover='down')
        other = multihost.IronicMultiHostDriver(
            mock.Mock(_compute=self.manager))
        with self.assertLogs('nova_ironic_multihost', 'ERROR') as logs:
            error = self.assertRaises(exception.ConfigurationContradiction,
                                      other.init_host, ME)
        self.assertIn('metrics_port', str(error))
        self.assertIn('metrics_port', logs.output[0])
        self.lease.assert_called_once_with()

    def test_report(self):
        report = guru_meditation_report.TextGuruMeditation
        self.start()
        # The drivers of other tests may have some.
        title, text = report.persistent_sections[-1]
        self.assertEqual('Ironic multi-host', title)
        self.assertIn('Members: 2', text())
