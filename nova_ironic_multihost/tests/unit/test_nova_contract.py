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

import inspect
from unittest import mock

from nova.compute import manager
from nova import exception
from nova import objects
from nova import servicegroup
from nova.virt import driver as virt_driver
from oslo_config import fixture as config_fixture
from oslotest import base

from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost import membership
from nova_ironic_multihost import nova_contract


def parameters(function):
    return list(inspect.signature(function).parameters)


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

    def test_the_audit_skips_a_driver_that_is_not_ready(self):
        source = inspect.getsource(
            manager.ComputeManager.update_available_resource)
        self.assertIn('get_available_nodes()', source)
        self.assertIn('VirtDriverNotReady', source)
        self.assertTrue(issubclass(nova_contract.VirtDriverNotReady,
                                   nova_contract.NovaException))
        self.assertTrue(issubclass(exception.IronicAPIVersionNotAvailable,
                                   nova_contract.NovaException))

    def test_nova_loads_drivers_by_the_name_that_the_loader_answers(self):
        source = inspect.getsource(virt_driver.load_compute_driver)
        self.assertIn("'nova.virt.%s' % compute_driver", source)


class ReadsTestCase(base.BaseTestCase):

    def test_services_become_values(self):
        listed = [mock.Mock(host='a'), mock.Mock(host='b')]
        api = mock.Mock(service_is_up=lambda service: service.host == 'a')
        with mock.patch.object(objects.ServiceList,
                               'get_all_computes_by_hv_type',
                               return_value=listed) as read:
            services = nova_contract.ironic_services(
                mock.sentinel.context, api, 'ironic')
        read.assert_called_once_with(mock.sentinel.context, 'ironic')
        self.assertEqual([membership.ComputeService('a', True),
                          membership.ComputeService('b', False)], services)

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
