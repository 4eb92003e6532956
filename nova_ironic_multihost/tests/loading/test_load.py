# SPDX-License-Identifier: Apache-2.0

"""nova-compute loads our driver, however our package is installed."""

import importlib.metadata
import pathlib
import unittest

from nova_ironic_multihost.tests.loading import health
from nova_ironic_multihost.tests.loading import installation

NOVA = int(importlib.metadata.version('nova').split('.')[0])

OURS = 'nova_ironic_multihost.driver.IronicMultiHostDriver'


#: Environment variables for the threading mode that is not nova's default;
#: nova 31 has only one.
OTHER_MODE = {'OS_NOVA_DISABLE_EVENTLET_PATCHING': str(NOVA < 34)}


#: What a build needs besides the package, and what people look for first.
NEEDED = {'CONTRIBUTING.rst', 'LICENSE', 'MANIFEST.in', 'README.rst',
          'SECURITY.rst', 'pyproject.toml', 'requirements.txt', 'setup.cfg'}

#: What no wheel has.
TESTS = 'nova_ironic_multihost/tests/'

#: Where what an operator installs by hand lies, in the source and installed.
BY_HAND, SHARED = 'etc/', 'share/nova-ironic-multihost/'


class InstallationTestCase(unittest.TestCase):

    editable = False
    archived = False

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.installation = installation.Installation(
            cls.editable, cls.archived)
        cls.installation.setUp()
        cls.addClassCleanup(cls.installation.cleanUp)

    def assert_ours(self, nova_compute, eventlet):
        self.assertEqual(0, nova_compute.status, nova_compute.log)
        self.assertEqual(OURS, nova_compute.loaded['class'])
        self.assertTrue(nova_compute.loaded['is_stock_subclass'])
        self.assertEqual(eventlet, nova_compute.loaded['eventlet_patched'])
        self.assertEqual(self.installation.package,
                         pathlib.Path(nova_compute.loaded['package']))


class Threadings:
    """Tests of all that a release runs with."""

    def test_default_threading(self):
        self.assert_ours(self.installation.run_nova_compute(),
                         eventlet=NOVA < 34)

    def test_fallback_command(self):
        self.assert_ours(
            self.installation.run_nova_compute(
                module='nova_ironic_multihost.loader'),
            eventlet=NOVA < 34)

    def test_the_command_that_checks_it_says_so(self):
        found = self.installation.run_status()
        for name in 'Driver', 'Release of nova':
            self.assertEqual((0, None), found[name])

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
                    module='nova_ironic_multihost.loader', **OTHER_MODE),
                eventlet=NOVA >= 34)


class HealthChecks:
    """Tests of what the tools that deploy nova take for nova-compute."""

    def test_they_find_the_command_that_takes_its_place(self):
        bus = health.SilentBus()
        bus.setUp()
        self.addCleanup(bus.cleanUp)
        process = self.installation.start(
            'nova-compute-ironic-multihost',
            f'rabbit://u:p@127.0.0.1:{bus.port}/')
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(bus.reached.wait(health.DEADLINE),
                        self.installation.log)
        self.assertTrue(health.openstack_helm(process.pid))
        self.assertIn(str(process.pid), health.rhoso(self))
        for version, healthy in health.kolla(self, bus.port).items():
            with self.subTest(version):
                self.assertTrue(healthy, self.installation.log)


class Contents:
    """Tests of what a wheel and an sdist hold."""

    def files(self, place='nova_ironic_multihost/'):
        return {name for name in installation.tracked()
                if name.startswith(place)}

    def assert_holds(self, wanted, held):
        # A checkout may have files that git does not know.
        self.assertEqual([], sorted(wanted - held))

    def test_wheel(self):
        held = self.installation.installed_files()
        self.assert_holds(self.files() - self.files(TESTS), held)
        self.assertEqual([], [name for name in held if TESTS in name])

    def test_what_is_installed_by_hand(self):
        # A file that is missing has no line in pyproject.toml.
        self.assertEqual(
            sorted([*self.files('share/'), *(
                SHARED + name.removeprefix(BY_HAND)
                for name in self.files(BY_HAND))]),
            sorted(self.installation.shared_files()))

    def test_sdist(self):
        self.assert_holds(self.files() | self.files(BY_HAND) | NEEDED,
                          self.installation.sdist_files())


class WheelTestCase(Threadings, Contents, HealthChecks,
                    InstallationTestCase):
    """From a checkout, where pbr finds the files by git."""


class EditableTestCase(Threadings, InstallationTestCase):

    editable = True


class ArchiveTestCase(Contents, InstallationTestCase):
    """As distributions and images build it.

    Without git setuptools finds the files by pyproject.toml and MANIFEST.in.
    """

    archived = True

    def test_driver(self):
        self.assert_ours(self.installation.run_nova_compute(),
                         eventlet=NOVA < 34)

    def test_nothing_else(self):
        self.assert_holds(self.installation.installed_files(), self.files())
