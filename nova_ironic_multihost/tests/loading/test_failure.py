# SPDX-License-Identifier: Apache-2.0

"""What stops nova-compute from loading the driver is told by its log."""

import unittest

from nova_ironic_multihost.tests.loading import installation


class FailureTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.installation = installation.Installation(editable=False)
        cls.installation.setUp()
        cls.addClassCleanup(cls.installation.cleanUp)

    def break_module(self, name):
        """Let a module of our package need what nobody has."""
        module = self.installation.package / name
        self.addCleanup(module.write_text, module.read_text())
        module.write_text('import what_nobody_has\n')

    def assert_refused(self, nova_compute, cause):
        self.assertNotEqual(0, nova_compute.status, nova_compute.log)
        self.assertIsNone(nova_compute.loaded)
        self.assertIn(cause, nova_compute.log)

    def test_missing_dependency_of_the_driver(self):
        self.break_module('driver.py')
        self.assert_refused(self.installation.run_nova_compute(),
                            "No module named 'what_nobody_has'")

    def test_missing_dependency_of_the_plug_in(self):
        self.break_module('vif.py')
        self.assert_refused(self.installation.run_nova_compute(),
                            "No module named 'what_nobody_has'")

    def test_the_command_that_checks_it_tells_the_cause(self):
        for name in 'driver.py', 'vif.py':
            with self.subTest(name):
                self.break_module(name)
                result, details = self.installation.run_status()['Driver']
                self.assertEqual(2, result)
                self.assertIn("No module named 'what_nobody_has'", details)
                self.doCleanups()

    def test_broken_package_leaves_stock_alone(self):
        self.break_module('vif.py')
        nova_compute = self.installation.run_nova_compute(
            compute_driver='ironic.IronicDriver')
        self.assertEqual(0, nova_compute.status, nova_compute.log)

    def test_misspelled_class(self):
        self.assert_refused(
            self.installation.run_nova_compute(
                compute_driver='ironic_multihost.IronicMultihostDriver'),
            'IronicMultihostDriver')

    def test_misspelled_module(self):
        self.assert_refused(
            self.installation.run_nova_compute(
                compute_driver='ironic_multi_host.IronicMultiHostDriver'),
            "No module named 'nova.virt.ironic_multi_host'")
