# SPDX-License-Identifier: Apache-2.0

"""nova's driver for Ironic, and what nova makes of its errors."""

import inspect

from nova.compute import manager
from nova.compute import resource_tracker
from nova import exception
from nova import servicegroup
from nova.virt import driver as virt_driver

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost.tests.unit.adapters import base


class IronicDriverTestCase(base.SignaturesTestCase):

    def test_methods_of_novas_ironic_driver(self):
        driver = names.IronicDriver
        self.assertParameters(['self', 'virtapi', 'read_only'],
                              driver.__init__)
        self.assertParameters(['self', 'host'], driver.init_host)
        self.assertParameters(['self', 'refresh'],
                              driver.get_available_nodes)
        self.assertParameters(['self'], driver._refresh_cache)
        self.assertParameters(['self', 'ctxt'], driver._refresh_hash_ring)
        self.assertParameters(['self', 'node_id'], driver._node_from_cache)
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
        base_class = names.IronicDriver
        for name, method in vars(multihost.IronicMultiHostDriver).items():
            inherited = getattr(base_class, name, None)
            if inspect.isfunction(method) and inherited is not None:
                self.assertEqual(base.parameters(inherited),
                                 base.parameters(method), name)

    def test_attributes_of_novas_ironic_driver(self):
        driver = names.IronicDriver(None)
        self.assertEqual({}, driver.node_cache)
        self.assertEqual(0, driver.node_cache_time)
        self.assertIsInstance(driver.servicegroup_api, servicegroup.API)
        self.assertIn('_ironic_connection', vars(driver))
        self.assertTrue(driver.rebalances_nodes)

    def test_fields_name_the_node_and_its_instance(self):
        self.assertLessEqual({'uuid', 'instance_uuid'},
                             set(names.node_fields()))

    def test_nova_loads_drivers_by_the_name_that_the_loader_answers(self):
        source = inspect.getsource(virt_driver.load_compute_driver)
        self.assertIn("'nova.virt.%s' % compute_driver", source)

    def test_service_that_stops_tells_the_driver(self):
        self.assertIn('self.driver.cleanup_host(', inspect.getsource(
            manager.ComputeManager.cleanup_host))


class ErrorsTestCase(base.SignaturesTestCase):

    def test_the_audit_skips_a_driver_that_is_not_ready(self):
        source = inspect.getsource(
            manager.ComputeManager.update_available_resource)
        self.assertIn('get_available_nodes()', source)
        self.assertIn('VirtDriverNotReady', source)
        self.assertTrue(issubclass(names.VirtDriverNotReady,
                                   names.NovaException))
        self.assertTrue(issubclass(exception.IronicAPIVersionNotAvailable,
                                   names.NovaException))

    def test_the_audit_passes_over_a_node_that_is_refused(self):
        source = inspect.getsource(
            manager.ComputeManager._update_available_resource_for_node)
        self.assertIn('except exception.ComputeHostNotFound', source)
        # The driver is asked before the record is looked at.
        source = inspect.getsource(
            resource_tracker.ResourceTracker.update_available_resource)
        self.assertLess(source.index('self.driver.get_available_resource('),
                        source.index('self._update_available_resource('))

    def test_a_build_is_sent_elsewhere_when_its_node_is_taken(self):
        source = inspect.getsource(
            manager.ComputeManager._build_and_run_instance)
        self.assertIn('exception.ComputeResourcesUnavailable', source)
        self.assertIn('RescheduledException', source)
