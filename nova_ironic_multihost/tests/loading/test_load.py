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

"""nova-compute loads our driver, however our package is installed."""

import importlib.metadata
import pathlib
import unittest

from nova_ironic_multihost.tests.loading import installation

NOVA = int(importlib.metadata.version('nova').split('.')[0])

OURS = 'nova_ironic_multihost.driver.IronicMultiHostDriver'


#: Environment variables for the threading mode that is not nova's default;
#: nova 31 has only one.
OTHER_MODE = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': str(NOVA < 34)}


class Cases:
    """The tests; the two classes below say for which installation."""

    editable = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.installation = installation.Installation(cls.editable)
        cls.installation.setUp()
        cls.addClassCleanup(cls.installation.cleanUp)

    def assert_ours(self, nova_compute, eventlet):
        self.assertEqual(0, nova_compute.status, nova_compute.log)
        self.assertEqual(OURS, nova_compute.loaded['class'])
        self.assertTrue(nova_compute.loaded['is_stock_subclass'])
        self.assertEqual(eventlet, nova_compute.loaded['eventlet_patched'])
        self.assertEqual(self.installation.package,
                         pathlib.Path(nova_compute.loaded['package']))

    def test_default_threading(self):
        self.assert_ours(self.installation.run_nova_compute(),
                         eventlet=NOVA < 34)

    def test_fallback_command(self):
        self.assert_ours(
            self.installation.run_nova_compute(
                module='nova_ironic_multihost.cmd.compute'),
            eventlet=NOVA < 34)

    def test_stock_driver_stays_loadable(self):
        nova_compute = self.installation.run_nova_compute(
            compute_driver='ironic.IronicDriver')
        self.assertEqual(0, nova_compute.status, nova_compute.log)
        self.assertEqual('nova.virt.ironic.driver.IronicDriver',
                         nova_compute.loaded['class'])

    if NOVA > 31:
        def test_other_threading(self):
            self.assert_ours(
                self.installation.run_nova_compute(**OTHER_MODE),
                eventlet=NOVA >= 34)

        def test_fallback_command_other_threading(self):
            self.assert_ours(
                self.installation.run_nova_compute(
                    module='nova_ironic_multihost.cmd.compute', **OTHER_MODE),
                eventlet=NOVA >= 34)


class WheelTestCase(Cases, unittest.TestCase):

    editable = False


class EditableTestCase(Cases, unittest.TestCase):

    editable = True
