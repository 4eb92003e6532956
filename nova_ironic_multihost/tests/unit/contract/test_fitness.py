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

"""What nova lacks of what is replaced in it."""

from unittest import mock

from nova.compute import manager
from oslotest import base

from nova_ironic_multihost.contract import fitness
from nova_ironic_multihost.contract import patches


class LackingTestCase(base.BaseTestCase):

    def test_nothing_in_a_release_that_is_supported(self):
        self.assertEqual([], fitness.lacking())

    def test_methods_that_are_gone(self):
        class Other(manager.ComputeManager):
            _init_instance = None

        with mock.patch.dict(fitness.CLASSES, manager=Other):
            self.assertEqual(['Other._init_instance'], fitness.lacking())
        with mock.patch.object(patches, 'PATCHES', (
                patches.Patch('tracker', 'no_more', '', ()),)):
            self.assertEqual(['ResourceTracker.no_more'], fitness.lacking())


class AttributesTestCase(base.BaseTestCase):

    def test_one_that_is_named(self):
        self.assertEqual({'stop'}, fitness.attributes(
            patches.Patch('service', 'stop', '', ())))

    def test_some_that_are_listed(self):
        names = fitness.attributes(patches.Patch(
            'manager', 'operations.sent_to_host', '', ()))
        self.assertIn('reboot_instance', names)
        self.assertIn('_instance_update', fitness.attributes(
            patches.Patch('manager', 'operations.CLEAN_UPS', '', ())))
