# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""What the driver takes from nova, checked against the nova installed here.

Runs on every supported nova; when a private interface moves, it says which.
"""

import contextlib
import functools
import inspect
from unittest import mock

import fixtures
from keystoneauth1 import exceptions as ks_exception
from nova.compute import manager
from nova.compute import resource_tracker
from nova.db.main import api as main_db
from nova import exception
from nova import objects
from nova.objects import base as objects_base
from nova.scheduler.client import report
from nova import service
from nova import servicegroup
from nova.virt import driver as virt_driver
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging
from oslotest import base

from nova_ironic_multihost.contract import nova as nova_contract
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost import driver as multihost

NODE = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'

# As nova-compute does when it starts.
objects.register_all()


def parameters(function):
    return list(inspect.signature(function).parameters)


def response(status, body=None):
    """Return what a request to placement returns."""
    answer = mock.MagicMock(
        status_code=status, text='', headers={}, json=lambda: body)
    answer.__bool__.return_value = status < 400
    return answer


class SignaturesTestCase(base.BaseTestCase):

    def assertParameters(self, expected, function):
        self.assertEqual(expected, parameters(function),
                         f'{function.__qualname__} changed in nova')

    def test_methods_of_novas_ironic_driver(self):
        driver = nova_contract.IronicDriver
        self.assertParameters(['self', 'virtapi', 'read_only'],
                              driver.__init__)
        self.assertParameters(['self', 'host'], driver.init_host)
        self.assertParameters(['self', 'refresh'],
                              driver.get_available_nodes)
        self.assertParameters(['self'], driver._refresh_cache)
        self.assertParameters(['self', 'ctxt'], driver._refresh_hash_ring)
        self.assertParameters(['self', 'return_generator', 'kwargs'],
                              driver._get_node_list)
        self.assertParameters(['self', 'version'], driver._can_send_version)
        self.assertParameters(['self'], driver._get_hypervisor_type)
        self.assertParameters(['self', 'node_id'], driver._get_node)
        self.assertParameters(['self', 'node_id'], driver._node_from_cache)
        self.assertParameters(['self', 'refresh'],
                              driver.get_nodenames_by_uuid)
        self.assertParameters(['self', 'nodename'],
                              driver.get_available_resource)
        self.assertParameters(
            ['self', 'provider_tree', 'nodename', 'allocations'],
            driver.update_provider_tree)
        self.assertParameters(['self', 'instance'], driver.prepare_for_spawn)
        self.assertParameters(['self', 'instance'],
                              driver.failed_spawn_cleanup)
        self.assertParameters(
            ['self', 'context', 'instance', 'network_info',
             'block_device_info', 'destroy_disks', 'destroy_secrets'],
            driver.destroy)
        self.assertParameters(['self', 'host'], driver.cleanup_host)

    def test_overrides_take_what_novas_methods_take(self):
        base_class = nova_contract.IronicDriver
        for name, method in vars(multihost.IronicMultiHostDriver).items():
            inherited = getattr(base_class, name, None)
            if inspect.isfunction(method) and inherited is not None:
                self.assertEqual(parameters(inherited), parameters(method),
                                 name)

    def test_attributes_of_novas_ironic_driver(self):
        driver = nova_contract.IronicDriver(None)
        self.assertEqual({}, driver.node_cache)
        self.assertEqual(0, driver.node_cache_time)
        self.assertIsInstance(driver.servicegroup_api, servicegroup.API)
        self.assertIn('_ironic_connection', vars(driver))
        self.assertTrue(driver.rebalances_nodes)

    def test_fields_name_the_node_and_its_instance(self):
        self.assertLessEqual({'uuid', 'instance_uuid'},
                             set(nova_contract.NODE_FIELDS))

    def test_reads_through_the_conductor(self):
        self.assertParameters(
            ['context', 'hv_type'],
            objects.ServiceList.get_all_computes_by_hv_type)
        self.assertParameters(['context', 'host'],
                              objects.InstanceList.get_uuids_by_host)
        self.assertParameters(['self', 'member'],
                              servicegroup.API.service_is_up)
        self.assertParameters(['context', 'host', 'use_slave'],
                              objects.Service.get_by_compute_host)
        self.assertParameters(['context', 'host', 'use_slave'],
                              objects.ComputeNodeList.get_all_by_host)
        self.assertParameters(['context', 'compute_uuids'],
                              objects.ComputeNodeList.get_all_by_uuids)
        self.assertParameters(['context', 'host'],
                              objects.HostMapping.get_by_host)
        self.assertParameters(['context'], objects.AggregateList.get_all)
        self.assertEqual(
            ['context', 'filters'],
            parameters(objects.InstanceList.get_by_filters)[:2])
        self.assertIn('expected_attrs',
                      parameters(objects.InstanceList.get_by_filters))

    def test_reads_of_placement(self):
        client = report.SchedulerReportClient
        self.assertParameters(['self', 'context', 'rp_uuid'],
                              client.get_allocations_for_resource_provider)
        self.assertParameters(['self', 'context', 'rp_uuid'],
                              client._get_provider_aggregates)
        self.assertIn('allocations', report.ProviderAllocInfo._fields)
        self.assertIn('aggregates', report.AggInfo._fields)

    def test_the_audit_skips_a_driver_that_is_not_ready(self):
        source = inspect.getsource(
            manager.ComputeManager.update_available_resource)
        self.assertIn('get_available_nodes()', source)
        self.assertIn('VirtDriverNotReady', source)
        self.assertTrue(issubclass(nova_contract.VirtDriverNotReady,
                                   nova_contract.NovaException))
        self.assertTrue(issubclass(exception.IronicAPIVersionNotAvailable,
                                   nova_contract.NovaException))

    def test_the_audit_passes_over_a_node_that_is_refused(self):
        source = inspect.getsource(
            manager.ComputeManager._update_available_resource_for_node)
        self.assertIn('except exception.ComputeHostNotFound', source)
        # The driver is asked before the record is looked at.
        source = inspect.getsource(
            resource_tracker.ResourceTracker.update_available_resource)
        self.assertLess(source.index('self.driver.get_available_resource('),
                        source.index('self._update_available_resource('))

    def test_the_audit_compares_with_records_that_can_be_replaced(self):
        method = manager.ComputeManager._get_compute_nodes_in_db
        self.assertParameters(
            ['self', 'context', 'nodenames', 'use_slave', 'startup'], method)
        compute = mock.Mock()
        nova_contract.Tracker(mock.Mock(_compute=compute)).patch_record_reads(list, list)
        self.assertEqual(parameters(method)[1:],
                         parameters(compute._get_compute_nodes_in_db))
        source = inspect.getsource(
            manager.ComputeManager.update_available_resource)
        self.assertIn('self._get_compute_nodes_in_db(', source)
        # The driver has decided when nova compares.
        self.assertLess(source.index('get_available_nodes()'),
                        source.index('self._get_compute_nodes_in_db('))

    def test_the_start_goes_through_instances_one_by_one(self):
        compute = manager.ComputeManager
        self.assertParameters(['self', 'context', 'instance'],
                              compute._init_instance)
        self.assertIn('self._init_instance(context, instance)',
                      inspect.getsource(compute.init_host))
        source = inspect.getsource(compute._init_instance)
        # What it does for another host's is nothing.
        self.assertIn('if instance.host != self.host:', source)
        for state in ('DELETING', 'POWERING_OFF', 'POWERING_ON',
                      'REBOOT_STARTED'):
            self.assertIn(f'task_states.{state}', source)
        self.assertParameters(
            ['self', 'instance', 'clean_task_state'],
            compute._set_instance_obj_error_state)
        self.assertParameters(['self', 'instance'], compute._get_power_state)
        self.assertParameters(
            ['self', 'instance'], nova_contract.IronicDriver._wait_for_active)

    def test_instances_are_written_if_they_are_as_they_were_read(self):
        self.assertEqual(
            ['self', 'expected_vm_state', 'expected_task_state'],
            parameters(objects.Instance.save)[:3])
        self.assertEqual(
            ['context', 'filters'],
            parameters(objects.MigrationList.get_by_filters)[:2])
        self.assertEqual(
            ['context', 'instance_uuid', 'limit'],
            parameters(objects.InstanceActionList.get_by_instance_uuid)[:3])

    def test_a_build_is_sent_elsewhere_when_its_node_is_taken(self):
        source = inspect.getsource(
            manager.ComputeManager._build_and_run_instance)
        self.assertIn('exception.ComputeResourcesUnavailable', source)
        self.assertIn('RescheduledException', source)

    def test_nova_loads_drivers_by_the_name_that_the_loader_answers(self):
        source = inspect.getsource(virt_driver.load_compute_driver)
        self.assertIn("'nova.virt.%s' % compute_driver", source)


class ReadsTestCase(base.BaseTestCase):

    def test_partition_is_read_from_nova_conf(self):
        config = self.useFixture(config_fixture.Config(nova_contract.CONF))
        nova_contract.CONF([], project='nova', default_config_files=[])
        self.assertEqual(membership.Partition(),
                         nova_contract.node_partition())
        config.config(group='ironic', conductor_group='g', shard='s',
                      peer_list=['a', 'b'])
        self.assertEqual(
            membership.Partition(conductor_group='g', shard='s',
                                 peer_list=('a', 'b')),
            nova_contract.node_partition())


class TrackerTestCase(base.BaseTestCase):
    """nova's resource tracker and its client of placement, both real."""

    def setUp(self):
        super().setUp()
        self.useFixture(config_fixture.Config(nova_contract.CONF))
        nova_contract.CONF([], project='nova', default_config_files=[])
        self.client = report.SchedulerReportClient(adapter=mock.Mock())
        self.client.clear_provider_cache(init=True)
        # nova 31 and 32 copy it, and only eventlet's locks can be copied.
        self.client._provider_tree.lock = contextlib.nullcontext()
        self.driver = mock.Mock()
        self.rt = resource_tracker.ResourceTracker(
            'host-1', self.driver, reportclient=self.client)
        self.compute = mock.Mock(reportclient=self.client, rt=self.rt)
        self.tracker = nova_contract.Tracker(
            manager.ComputeVirtAPI(self.compute))

    def test_the_driver_reaches_the_manager(self):
        self.assertIs(self.client, self.tracker.report_client)
        source = inspect.getsource(manager.ComputeManager.__init__)
        for attribute in ('self.rt = ', 'self.reportclient = ',
                          'ComputeVirtAPI(self)'):
            self.assertIn(attribute, source)

    def test_a_driver_on_its_own_has_no_tracker(self):
        tracker = nova_contract.Tracker(None)
        self.assertFalse(tracker.has(NODE))
        tracker.patch_record_reads(list, list)
        tracker.patch_record_moves(bool)
        tracker.audit(NODE)
        tracker.drop(NODE)
        tracker.patch_post_start(self.fail)

    def test_records_at_hand(self):
        self.assertFalse(self.tracker.has(NODE))
        self.rt.compute_nodes[NODE] = objects.ComputeNode()
        self.assertTrue(self.tracker.has(NODE))

    def test_records_of_the_audit_are_what_nova_compares_with(self):
        rows = [mock.sentinel.first, mock.sentinel.second]
        self.tracker.patch_record_reads(lambda: [mock.Mock(row=row) for row in rows], list)
        self.assertEqual(rows, self.compute._get_compute_nodes_in_db(
            mock.sentinel.context, [NODE], use_slave=True, startup=False))

    def test_tracker_keeps_what_came_before_it_has_its_lock(self):
        # Another thread takes a node while nova compares.
        self.rt.compute_nodes['lost'] = objects.ComputeNode()
        mine = []
        clean = self.rt.clean_compute_node_cache
        self.assertIn('@utils.synchronized(COMPUTE_RESOURCE_SEMAPHORE',
                      inspect.getsource(clean))

        def clean_after_a_while(rows):
            mine.append(mock.Mock(row=mock.Mock(hypervisor_hostname=NODE)))
            self.rt.compute_nodes[NODE] = objects.ComputeNode()
            clean(rows)

        self.rt.clean_compute_node_cache = clean_after_a_while
        self.tracker.patch_record_reads(list, lambda: list(mine))
        rows = self.compute._get_compute_nodes_in_db(
            mock.sentinel.context, [NODE])
        self.rt.clean_compute_node_cache(rows)
        self.assertEqual({NODE}, set(self.rt.compute_nodes))

    def test_audit_of_one_node(self):
        self.assertEqual(
            ['self', 'context', 'nodename', 'startup'], parameters(
                manager.ComputeManager._update_available_resource_for_node))
        audited = self.patch(self.rt, 'update_available_resource')
        self.compute._update_available_resource_for_node = functools.partial(
            manager.ComputeManager._update_available_resource_for_node,
            self.compute)
        self.tracker.audit(NODE)
        audited.assert_called_once_with(mock.ANY, NODE, startup=False)
        self.assertTrue(audited.call_args.args[0].is_admin)
        # Errors are nova's to log.
        audited.side_effect = OSError('refused')
        self.tracker.audit(NODE)

    def test_node_that_the_tracker_forgets(self):
        self.client._association_refresh_time[NODE] = 1.0
        self.rt.compute_nodes[NODE] = objects.ComputeNode()
        for _ in range(2):
            self.tracker.drop(NODE)
            self.assertFalse(self.tracker.has(NODE))
            self.assertNotIn(NODE, self.client._association_refresh_time)

    def test_service_says_when_it_has_started(self):
        source = inspect.getsource(service.Service.start)
        self.assertLess(source.index('self.manager.pre_start_hook('),
                        source.index('self.rpcserver.start()'))
        self.assertLess(source.index('self.rpcserver.start()'),
                        source.index('self.manager.post_start_hook()'))
        self.assertIn('update_available_resource(', inspect.getsource(
            manager.ComputeManager.pre_start_hook))
        hook = self.compute.post_start_hook
        started = mock.Mock()
        self.tracker.patch_post_start(started)
        self.compute.post_start_hook()
        hook.assert_called_once_with()
        started.assert_called_once_with()

    def test_service_that_stops_tells_the_driver(self):
        self.assertIn('self.driver.cleanup_host(', inspect.getsource(
            manager.ComputeManager.cleanup_host))

    def test_what_happens_to_nodes_is_told_without_the_trackers_lock(self):
        # It is not held where the driver is called to build and to delete,
        # and the allocation goes after the machine.
        for method in (manager.ComputeManager._build_resources,
                       manager.ComputeManager._shutdown_instance,
                       manager.ComputeManager._delete_instance):
            self.assertNotIn('COMPUTE_RESOURCE_SEMAPHORE',
                             inspect.getsource(method))
        self.assertIn('self.driver.prepare_for_spawn(', inspect.getsource(
            manager.ComputeManager._build_resources))
        source = inspect.getsource(manager.ComputeManager._delete_instance)
        self.assertLess(source.index('self._shutdown_instance('),
                        source.index('self._complete_deletion('))
        self.assertIn('delete_allocation_for_instance', inspect.getsource(
            manager.ComputeManager._complete_deletion))

    def test_node_in_use_is_reserved_by_novas_driver(self):
        source = inspect.getsource(
            nova_contract.IronicDriver.update_provider_tree)
        for call in ('self._node_from_cache(', '_node_resources_used(',
                     '_node_resources_unavailable('):
            self.assertIn(call, source)
        # The lock under which it forgets a node has this name.
        self.assertIn("'ironic-node-%s'", inspect.getsource(
            nova_contract.IronicDriver._unprovision))

    def test_record_that_another_host_has_just_created(self):
        self.rt.service_ref = objects.Service(id=1)
        self.patch(self.rt, '_get_compute_node', return_value=None)
        self.patch(self.rt, '_copy_resources', side_effect=(
            lambda record, resources, initial=False: setattr(
                record, 'hypervisor_hostname', NODE)))
        self.patch(objects.ComputeNode, 'create',
                   side_effect=exception.DuplicateRecord(target=NODE))
        resources = {'hypervisor_hostname': NODE, 'uuid': NODE}
        context = nova_contract.admin_context()
        self.assertRaises(exception.InvalidConfiguration,
                          self.rt._init_compute_node, context, resources)
        self.tracker.patch_record_moves(bool)
        self.assertRaises(nova_contract.ComputeHostNotFound,
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
        self.tracker.patch_record_moves(lambda found: asked.append(found) or may_take)
        resources = {'hypervisor_hostname': NODE, 'uuid': NODE}
        context = nova_contract.admin_context()
        may_take = False
        self.assertRaises(nova_contract.ComputeHostNotFound,
                          self.rt._init_compute_node, context, resources)
        saved.assert_not_called()
        self.assertEqual(('compute-2', 2), (record.host, record.service_id))
        self.assertEqual([ownership.Record(NODE, 'compute-2')], asked)
        self.assertFalse(self.tracker.has(NODE))
        may_take = True
        self.rt._init_compute_node(context, resources)
        saved.assert_called_once()
        self.assertNotEqual('compute-2', record.host)

    def test_placement_is_asked_again_for_what_was_forgotten(self):
        self.client._association_refresh_time[NODE] = 1.0
        self.tracker.refresh(NODE)
        self.assertNotIn(NODE, self.client._association_refresh_time)

    def test_other_errors_in_the_configuration_still_end_the_start(self):
        self.patch(self.rt, '_init_compute_node',
                   side_effect=exception.InvalidConfiguration('wrong'))
        self.tracker.patch_record_moves(bool)
        self.assertRaises(
            exception.InvalidConfiguration, self.rt._init_compute_node,
            nova_contract.admin_context(), {'hypervisor_hostname': NODE})

    def test_change_of_aggregates_reaches_placement(self):
        put = self.update_to_placement([response(200, {
            'aggregates': ['rack'], 'resource_provider_generation': 8})])
        put.assert_called_once_with(
            f'/resource_providers/{NODE}/aggregates',
            {'aggregates': ['rack'], 'resource_provider_generation': 7},
            version=mock.ANY, global_request_id=mock.ANY)

        # The driver wants again what is there.
        put = self.update_to_placement([])
        put.assert_not_called()

    def test_driver_is_asked_again_if_a_provider_changed_meanwhile(self):
        put = self.update_to_placement([response(409), response(200, {
            'aggregates': ['rack'], 'resource_provider_generation': 8})])
        self.assertEqual(2, put.call_count)
        self.assertEqual(2, self.driver.update_provider_tree.call_count)

    def update_to_placement(self, answers):
        """Let nova report a node of which the driver wants aggregate rack.

        :param answers: placement's, to requests that change something.
        :returns: the mock that takes these requests.
        """
        def ensure(*args, **kwargs):
            if not self.client._provider_tree.exists(NODE):
                self.client._provider_tree.new_root(NODE, NODE, generation=7)

        self.patch(self.client, '_ensure_resource_provider',
                   side_effect=ensure)
        self.patch(self.client, 'get_allocations_for_provider_tree',
                   return_value={})
        self.patch(self.rt, '_get_traits', return_value=[])
        self.patch(resource_tracker.pci_placement_translator,
                   'update_provider_tree_for_pci', return_value=False)
        self.driver.update_provider_tree.side_effect = (
            lambda tree, node: tree.update_aggregates(node, {'rack'}))
        put = self.patch(self.client, 'put', side_effect=answers)
        self.rt._update_to_placement(
            nova_contract.admin_context(),
            objects.ComputeNode(uuid=NODE, hypervisor_hostname=NODE), False)
        return put

    def test_aggregates_of_a_provider(self):
        get = self.patch(self.client, 'get', return_value=response(200, {
            'aggregates': ['rack'], 'resource_provider_generation': 8}))
        context = nova_contract.admin_context()
        self.assertEqual({'rack'}, nova_contract.provider_aggregates(
            context, self.client, NODE))
        get.return_value = response(503)
        self.assertIsNone(nova_contract.provider_aggregates(
            context, self.client, NODE))
        get.side_effect = ks_exception.ConnectFailure()
        self.assertIsNone(nova_contract.provider_aggregates(
            context, self.client, NODE))

    def test_allocations_of_a_provider(self):
        answer = {'allocations': {}, 'resource_provider_generation': 8}
        get = self.patch(self.client, 'get',
                         return_value=response(200, answer))
        context = nova_contract.admin_context()
        self.assertEqual(frozenset(), nova_contract.consumers(
            context, self.client, NODE))
        answer['allocations'] = {'server': {'resources': {'CUSTOM_X': 1}}}
        self.assertEqual({'server'}, nova_contract.consumers(
            context, self.client, NODE))
        get.return_value = response(503)
        self.assertIsNone(nova_contract.consumers(
            context, self.client, NODE))
        get.side_effect = ks_exception.ConnectFailure()
        self.assertIsNone(nova_contract.consumers(
            context, self.client, NODE))

    def patch(self, target, name, **behaviour):
        return self.useFixture(fixtures.MockPatchObject(
            target, name, **behaviour)).mock


class ConductorTestCase(base.BaseTestCase):
    """nova-compute has no database: all reads go through the conductor."""

    def setUp(self):
        super().setUp()
        self.asked = []
        conductor = mock.Mock()
        conductor.object_class_action_versions.side_effect = self.answer
        self.useFixture(fixtures.MockPatchObject(
            objects_base.NovaObject, 'indirection_api', conductor))
        self.useFixture(fixtures.MockPatchObject(
            main_db, 'DISABLE_DB_ACCESS', True))

    def answer(self, context, name, method, *args):
        self.asked.append(f'{name}.{method}')
        raise messaging.RemoteError('CantStartEngineError', 'no database')

    def test_all_reads(self):
        context = nova_contract.admin_context()
        for expected, read, *args in (
                ('ServiceList.get_all_computes_by_hv_type',
                 nova_contract.ironic_services, None, 'ironic'),
                ('Service.get_by_compute_host',
                 nova_contract.compute_service, None, 'host-1'),
                ('InstanceList.get_uuids_by_host',
                 nova_contract.instance_uuids, 'host-1'),
                ('InstanceList.get_by_filters',
                 nova_contract.instance_states, [NODE]),
                ('ComputeNodeList.get_all_by_host',
                 nova_contract.records_of, 'host-1'),
                ('ComputeNodeList.get_all_by_uuids',
                 nova_contract.records, [NODE])):
            self.assertRaises(messaging.RemoteError, read, context, *args)
            self.assertEqual(expected, self.asked.pop())

    def test_what_only_the_api_database_has_is_then_unknown(self):
        context = nova_contract.admin_context()
        self.assertIsNone(nova_contract.host_mapped(context, 'host-1'))
        self.assertEqual('HostMapping.get_by_host', self.asked.pop())
        self.assertIsNone(nova_contract.host_aggregates(context))
        self.assertEqual('AggregateList.get_all', self.asked.pop())
