# SPDX-License-Identifier: Apache-2.0

from oslotest import base as oslo_base

from nova_ironic_multihost.tests.unit.client.upgrade import base


class SettingsTestCase(oslo_base.BaseTestCase):

    def test_hosts_are_compared_in_lower_case(self):
        self.assertEqual('one', base.of_host('ONE').key)

    def test_a_controller_has_no_driver(self):
        self.assertTrue(base.of_host('one').of_compute)
        self.assertFalse(base.of_host('one', compute_driver=None).of_compute)
