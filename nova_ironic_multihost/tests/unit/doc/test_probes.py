# SPDX-License-Identifier: Apache-2.0

"""The probes in the pages: nobody else can answer them."""

import pathlib
import re
import socket
import subprocess
import sys
import textwrap

from oslotest import base
import yaml

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.telemetry import status_server

ROOT = pathlib.Path(__file__).parents[4]

#: The body of a code block of YAML.
BLOCK = re.compile(r'code-block:: yaml\n\n((?:   .*\n|\n)+)')


def probes():
    """Yield (page, name, probe) of each probe in the pages."""
    for path in sorted((ROOT / 'doc').rglob('*.rst')):
        for block in BLOCK.findall(path.read_text()):
            if 'Probe:' not in block:
                continue
            for name, probe in yaml.safe_load(textwrap.dedent(block)).items():
                yield path, name, probe


class ProbesTestCase(base.BaseTestCase):

    def test_each_names_its_host(self):
        found = list(probes())
        for path, _, probe in found:
            if 'httpGet' in probe:
                self.assertRegex(probe['httpGet']['path'],
                                 '^/(leasez|healthz)/compute-1$', path)
            else:
                self.assertIn("'/leasez/' + socket.gethostname()",
                              probe['exec']['command'][-1])
        self.assertEqual({'startupProbe', 'livenessProbe'},
                         {name for _, name, _ in found})

    def probe(self, port, command):
        """Return the exit status of a command for nova-compute at a port."""
        program, *options, script = command
        self.assertEqual(('python3', ['-c']), (program, options))
        self.assertIn("'127.0.0.1', 9106", script)
        return subprocess.run(
            [sys.executable, '-c', script.replace('9106', str(port))],
            capture_output=True, timeout=60).returncode

    def test_programs_that_ask(self):
        [command] = {tuple(probe['exec']['command'])
                     for _, _, probe in probes() if 'exec' in probe}
        verdict = health.HealthState(True, 'It is valid.')
        mine, other = (
            status_server.StatusServer(
                host, None, None, lambda: verdict, ('127.0.0.1', 0))
            for host in (socket.gethostname(), 'other'))
        for one in mine, other:
            self.addCleanup(one.close)
            one.open()
        port = mine.server.server_address[1]
        self.assertEqual(0, self.probe(port, command))
        self.assertNotEqual(0, self.probe(
            other.server.server_address[1], command))
        verdict = health.HealthState(False, 'It has run out.')
        self.assertNotEqual(0, self.probe(port, command))
        mine.close()
        self.assertNotEqual(0, self.probe(port, command))
