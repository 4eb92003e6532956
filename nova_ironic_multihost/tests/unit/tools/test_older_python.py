# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

from oslotest import base

from nova_ironic_multihost.tests.unit import tools

#: Those that people start, in a checkout.
TOOLS = ('bench', 'compare', 'failover', 'lab', 'platforms', 'test')

#: Runs a script with the version of Python that Ubuntu 22.04 has.
RUN = """
import runpy
import sys
sys.version_info = 3, 10, 12, 'final', 0
sys.argv = [path] = sys.argv[1:]
runpy.run_path(path, run_name='__main__')
"""


class OlderPythonTestCase(base.BaseTestCase):

    def test_is_refused_with_a_sentence(self):
        for name in TOOLS:
            done = subprocess.run(
                [sys.executable, '-c', RUN, str(tools.TOOLS / name)],
                stdin=subprocess.DEVNULL, capture_output=True, text=True)
            self.assertRegex(
                done.stderr, r'^[\w/]+: Python 3\.11 or newer is needed; run '
                rf'it with another one, as in: python3\.12 tools/{name}\b')
            self.assertEqual(1, done.returncode)
