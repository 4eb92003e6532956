# SPDX-License-Identifier: Apache-2.0

"""nova's driver for Ironic, and what nova makes of its errors."""

import inspect

from nova import exception
from nova import servicegroup
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost.tests.unit.adapters import base


class IronicDriverTestCase(oslo_base.BaseTestCase):

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
        for error in (names.VirtDriverNotReady,
                      exception.IronicAPIVersionNotAvailable):
            self.assertTrue(issubclass(error, names.NovaException))

    def test_fields_name_the_node_and_its_instance(self):
        self.assertLessEqual({'uuid', 'instance_uuid'},
                             set(names.node_fields()))
