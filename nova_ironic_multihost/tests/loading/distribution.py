# SPDX-License-Identifier: Apache-2.0

"""nova-compute of a distribution loads our driver.

tools/platforms runs it where nova comes from packages, with the Python of the
system and with our wheel in it::

    python3 -m unittest nova_ironic_multihost.tests.loading.distribution
"""

from importlib import metadata
import json
import pathlib
import shutil
import sys
import unittest

from packaging import requirements

from nova_ironic_multihost.adapters import probe
from nova_ironic_multihost.tests.loading import installation

OURS = 'nova_ironic_multihost.driver.IronicMultiHostDriver'


class Distribution(installation.Host):
    """The Python of the system."""

    def _setUp(self):
        super()._setUp()
        self.python = pathlib.Path(sys.executable)
        self.scripts = pathlib.Path(
            shutil.which('nova-ironic-multihost-status')).parent
        self.nova_compute = pathlib.Path(shutil.which('nova-compute'))


class DistributionTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.host = Distribution()
        cls.host.setUp()
        cls.addClassCleanup(cls.host.cleanUp)

    def test_its_libraries_are_new_enough(self):
        for wanted in map(requirements.Requirement,
                          metadata.requires('nova-ironic-multihost')):
            with self.subTest(wanted.name):
                self.assertIn(metadata.version(wanted.name),
                              wanted.specifier)

    def test_nothing_is_lacking(self):
        done = self.host.run_python(
            f'import runpy; runpy.run_path({probe.__file__!r}, '
            'run_name="__main__")')
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(
            {'error': None, 'lacking': []},
            {name: found[name] for name in ('error', 'lacking')})

    def test_nova_compute_loads_the_driver(self):
        nova_compute = self.host.run_nova_compute()
        self.assertEqual(0, nova_compute.status, nova_compute.log)
        self.assertEqual(OURS, nova_compute.loaded['class'])

    def test_the_upgrade_check_runs(self):
        found = self.host.run_status()
        for name in 'Driver', 'Release of nova':
            self.assertEqual((0, None), found[name])
