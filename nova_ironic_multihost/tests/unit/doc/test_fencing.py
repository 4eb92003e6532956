# SPDX-License-Identifier: Apache-2.0

"""Whoever forces a compute service down by hand disables it right after."""

import os
import pathlib
import re
import subprocess

import fixtures
from oslotest import base

ROOT = pathlib.Path(__file__).resolve().parents[4]
USER = ROOT / 'doc' / 'source' / 'user'

#: Where commands stand that people copy.
FOLDERS = ('doc/source', 'etc', 'roles', 'playbooks', 'devstack', 'lab')

#: A command of python-openstackclient, its lines joined.
COMMAND = re.compile(r'compute service set (.* nova-compute)$', re.MULTILINE)


#: The script of the page that fences.
SCRIPT = USER / 'fence-and-drain' / 'fence-compute'

#: A machine that is off already; some BMCs refuse to power such a one off.
OFF = """#!/bin/bash
[[ ${!#} == status ]] || exit 1
echo 'Chassis Power is off'
"""


def commands(path):
    """What is set by the commands of a file, in their order."""
    text = re.sub(r'\\\n\s*', '', path.read_text())
    return COMMAND.findall(text)


class FencingTestCase(base.BaseTestCase):

    def test_order(self):
        found = 0
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob('*')):
                if path.suffix not in ('.rst', '.yaml', '.py', '.sh', ''):
                    continue
                if not path.is_file():
                    continue
                options = commands(path)
                for first, then in zip(options, [*options[1:], '']):
                    if '--down' in first:
                        found += 1
                        self.assertNotIn('--disable', first, path)
                        self.assertIn('--disable', then, path)
        # The page takeover.rst has it, and no other page repeats it.
        self.assertGreater(found, 0)

    def test_script_fences_one_that_is_off_already(self):
        home = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, text in (
                ('ipmitool', OFF),
                ('nova-ironic-multihost', '#!/bin/bash\necho "$*"\n')):
            (home / name).write_text(text)
            (home / name).chmod(0o755)
        self.assertIn(f'literalinclude:: fence-and-drain/{SCRIPT.name}\n',
                      (USER / 'fence-and-drain.rst').read_text())
        done = subprocess.run(
            [SCRIPT, 'east', 'bmc'],
            env={'PATH': f'{home}:{os.environ["PATH"]}'}, text=True,
            capture_output=True, timeout=60)
        self.assertEqual(0, done.returncode, done)
        self.assertIn('fence east', done.stdout)

    def test_each_tool_has_a_page_one_step_away(self):
        page = (USER / 'fencing' / 'index.rst').read_text()
        tools = {path.name for path in (ROOT / 'etc' / 'fencing').iterdir()
                 if path.is_dir()}
        self.assertEqual(5, len(tools))
        for tool in tools:
            self.assertIn(f'<{tool}>`', page)
            self.assertTrue((USER / 'fencing' / f'{tool}.rst').exists(), tool)
        for other in 'dead-compute', 'fence-and-drain':
            self.assertIn(':doc:`fencing/index`',
                          (USER / f'{other}.rst').read_text())
