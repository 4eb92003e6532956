# SPDX-License-Identifier: Apache-2.0

"""What ships for systemd, as systemd and the driver understand it."""

import configparser
import pathlib
import shutil
import subprocess
import unittest

import fixtures
from oslotest import base

from nova_ironic_multihost.client.commands import app
from nova_ironic_multihost.client.commands import exporter
from nova_ironic_multihost import conf
from nova_ironic_multihost.rules import health

DROP_IN = (pathlib.Path(__file__).resolve().parents[4] / 'etc' / 'systemd'
           / 'nova-compute.service.d' / 'watchdog.conf')

EXPORTER = DROP_IN.parents[1] / 'nova-ironic-multihost-exporter.service'

#: As distributions write it.
UNIT = """\
[Unit]
Description=nova-compute
[Service]
ExecStart=/bin/true
Type=simple
Restart=on-failure
TimeoutStopSec=65
KillMode=process
[Install]
WantedBy=multi-user.target
"""


class DropInTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        parser = configparser.ConfigParser()
        parser.optionxform = str
        parser.read(DROP_IN)
        self.service = parser['Service']

    def test_dead_before_others_take_over_by_default(self):
        [after] = [option.default for option in conf.OPTS
                   if option.name == 'takeover_after']
        # nova's defaults.
        self.assertLessEqual(
            health.LeaseTiming(60, 60).over_after(
                int(self.service['WatchdogSec'])),
            after,
        )

    def test_no_longer_to_end_than_the_watchdog_waits(self):
        self.assertLessEqual(int(self.service['TimeoutStopSec']),
                             int(self.service['WatchdogSec']))

    def test_at_once_and_with_all_that_it_has_started(self):
        self.assertEqual('SIGKILL', self.service['WatchdogSignal'])
        self.assertEqual('control-group', self.service['KillMode'])

    @unittest.skipUnless(shutil.which('systemd-analyze'),
                         'there is no systemd-analyze')
    def test_systemd_understands_it(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        unit = root / 'nova-compute.service'
        unit.write_text(UNIT)
        folder = root / 'nova-compute.service.d'
        folder.mkdir()
        shutil.copy(DROP_IN, folder)

        def verify():
            return subprocess.run(
                ['systemd-analyze', 'verify', '--man=no', str(unit)],
                capture_output=True, text=True, timeout=120,
                env={'SYSTEMD_UNIT_PATH': f'{root}:', 'PATH': '/usr/bin:/bin'})

        done = verify()
        said = [line for line in done.stderr.splitlines()
                if 'nova-compute' in line or str(root) in line]
        self.assertEqual([], said)
        # It does read it.
        with (folder / DROP_IN.name).open('a') as file:
            file.write('WatchdogSignal=SIGNONE\n')
        self.assertIn('SIGNONE', verify().stderr)


class ExporterTestCase(base.BaseTestCase):

    def test_it_starts_the_exporter_with_options_that_there_are(self):
        parser = configparser.ConfigParser()
        parser.optionxform = str
        parser.read(EXPORTER)
        program, *argv = parser['Service']['ExecStart'].replace(
            '\\\n', ' ').split()
        self.assertEqual(app.Shell.NAME, pathlib.Path(program).name)
        shell = app.Shell()
        options, (name, *argv) = shell.parser.parse_known_args(argv)
        self.assertEqual(('admin', 'exporter'), (options.os_cloud, name))
        parser = exporter.Exporter(shell, None).get_parser('')
        self.assertEqual(9798, parser.parse_args(argv).port)
