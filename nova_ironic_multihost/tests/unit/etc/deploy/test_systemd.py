# SPDX-License-Identifier: Apache-2.0

"""The unit of nova-compute, as systemd reads it."""

import pathlib
import shutil
import subprocess

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit.etc.deploy import fragments


class SystemdTestCase(base.BaseTestCase):

    def verify(self, text):
        """What systemd has to say of a unit."""
        program = shutil.which('systemd-analyze')
        if not program:
            self.skipTest('There is no systemd.')
        unit = pathlib.Path(self.useFixture(fixtures.TempDir()).path
                            ) / 'nova-compute.service'
        # It looks for the program.
        unit.write_text(text.replace('/opt/nova/bin/nova-compute',
                                     '/bin/true'))
        return subprocess.run(
            [program, 'verify', '--man=no', '--recursive-errors=no',
             str(unit)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60).stdout

    def test_systemd_understands_the_unit(self):
        text = (fragments.DEPLOY / 'systemd/nova-compute.service').read_text()
        self.assertEqual('', self.verify(text))
        self.assertIn('StopSeconds', self.verify(text.replace(
            'TimeoutStopSec', 'StopSeconds')))

    def test_a_stop_is_told_to_nova_compute_alone(self):
        # A second SIGTERM ends it at once with eventlet.
        unit = fragments.read('systemd/nova-compute.service')['Service']
        self.assertEqual('mixed', unit['KillMode'])
        self.assertNotIn('ExecStop', unit)
