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

from oslotest import base as oslo_base

from nova_ironic_multihost.tests.unit.client.upgrade import base


class SettingsTestCase(oslo_base.BaseTestCase):

    def test_hosts_are_compared_in_lower_case(self):
        self.assertEqual('one', base.of_host('ONE').key)

    def test_a_controller_has_no_driver(self):
        self.assertTrue(base.of_host('one').of_compute)
        self.assertFalse(base.of_host('one', compute_driver=None).of_compute)
