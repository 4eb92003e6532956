# SPDX-License-Identifier: Apache-2.0

"""The recipes of etc/fencing against a real nova.

A machine is powered off by a BMC that ends nova-compute, and its server comes
to another compute service.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import time

from lab import settings
from lab.tests.stack import command

FENCING = command.ROOT / 'etc' / 'fencing'

#: Seconds for each thing that is waited for.
PATIENCE = 180


class FencingTestCase(command.LabTestCase):

    def test_script_and_agent(self):
        self.lab('up', *command.SMALL)
        self.lab('check', '--wait', str(PATIENCE))
        server = self.lab('boot', '--json').answer[0]
        first, node = server['host'], server['node']
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.home = pathlib.Path(place.name)
        self.lab_settings = settings.load(command.place()['LAB_DIR'])

        # nova hears from it: only what the BMC says counts.
        self.bmc(first)
        self.expect(self.script(first))
        self.assertEqual(2, self.agent('status', first).returncode)
        takeover_target = self.until_moved(node, first)

        # The same once more, and by Pacemaker's agent for the next one.
        self.expect(self.script(first))
        refused = self.agent('off', takeover_target, patience=0)
        self.assertEqual(1, refused.returncode)
        self.assertIn('is up', refused.stderr)
        self.lab('compute', 'start', first)
        self.expect(self.ours('unfence', first, '--wait', str(PATIENCE)))
        self.lab('compute', 'kill', takeover_target)
        self.expect(self.agent('off', takeover_target, powered_off=1))
        self.until_moved(node, takeover_target)
        self.lab('compute', 'start', takeover_target)
        self.expect(
            self.ours('unfence', takeover_target, '--wait', str(PATIENCE)))
        self.lab('check', '--wait', str(PATIENCE))

    def expect(self, done):
        """See that something has gone well."""
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def run_there(self, argv, text=None):
        lab = self.lab_settings
        return subprocess.run(
            argv, input=text, capture_output=True, text=True,
            timeout=command.DEADLINE, env={
                **os.environ, **command.place(), 'no_proxy': settings.HOST,
                'OS_CLIENT_CONFIG_FILE': str(lab.clouds),
                'FENCE_COMPUTE_DIRECTORY': str(self.home),
                'RUNTIME_DIRECTORY': str(self.home),
                'PATH': ':'.join((
                    str(self.home), str(self.program.parent),
                    os.environ['PATH']))})

    @property
    def program(self):
        return pathlib.Path(self.lab_settings.program(
            'nova-ironic-multihost'))

    def ours(self, *argv):
        """Run our command."""
        return self.run_there([
            str(self.program), '--os-cloud', 'lab-admin',
            '--os-baremetal-cloud', 'lab-system-admin', *argv])

    def bmc(self, host):
        """Make one whose power is nova-compute."""
        state = self.home / 'state'
        state.write_text('on\n')
        ipmitool = self.home / 'ipmitool'
        ipmitool.write_text(textwrap.dedent(f"""\
            #!/bin/bash
            set -e
            if [[ ${{!#}} == off ]]; then
                {sys.executable} {command.ROOT}/tools/lab compute kill {host}
                echo off > {state}
            fi
            echo "Chassis Power is $(cat {state})"
            """))
        ipmitool.chmod(0o755)
        (self.home / f'{host}.conf').write_text(
            'bmc=lab\nbmc_user=lab\nbmc_password_file=/dev/null\n'
            'OS_CLOUD=lab-admin\n')

    def script(self, host):
        """Run what systemd runs."""
        return self.run_there([str(FENCING / 'systemd' / 'fence-compute'),
                               host])

    def agent(self, action, host, **given):
        """Run what Pacemaker runs, as it does."""
        given = {'action': action, 'plug': host, 'cloud': 'lab-admin',
                 'clouds_file': self.lab_settings.clouds} | given
        return self.run_there(
            [str(self.program.parent / 'python'), '-W', 'ignore',
             str(FENCING / 'pacemaker' / 'fence_nova_ironic_multihost')],
            ''.join(f'{name}={value}\n' for name, value in given.items()))

    def until_moved(self, node, host):
        """Wait until another one has the server; return which."""
        end = time.monotonic() + PATIENCE
        while (owner := self.ours(
                'node', 'show', node, '-f', 'value', '-c', 'owner'
                ).stdout.strip()) in ('', host):
            self.assertLess(time.monotonic(), end)
            time.sleep(1)
        return owner
