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

"""tools/lab, called as a user calls it."""

import json
import os
import pathlib
import subprocess
import sys
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[3]

#: A lab of its own, beside the one that a developer may have up. Its ports
#: stay the same for one checkout and differ between two. All tests share it,
#: one after the other.
PLACE = {
    'LAB_DIR': str(ROOT / '.lab-test'),
    'LAB_BASE_PORT': str(20000 + zlib.crc32(str(ROOT).encode()) % 500 * 20)}

#: Seconds after which a command that hangs is given up.
DEADLINE = 1800


class Command:
    """What came of one call of tools/lab.

    :ivar status: exit status.
    :ivar output: what it printed.
    :ivar errors: what it printed to standard error.
    """

    def __init__(self, *arguments):
        process = subprocess.run(
            [sys.executable, str(ROOT / 'tools' / 'lab'), *arguments],
            env={**os.environ, **PLACE}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=DEADLINE)
        self.status = process.returncode
        self.output = process.stdout
        self.errors = process.stderr

    @property
    def answer(self):
        """What ``--json`` gave."""
        return json.loads(self.output.splitlines()[-1])


class LabTestCase(unittest.TestCase):
    """A test that calls tools/lab."""

    def lab(self, *arguments):
        """Call it; a failure is one of the test. Returns a Command."""
        command = Command(*arguments)
        self.assertEqual(0, command.status,
                         f'{arguments}: {command.output}{command.errors}')
        return command

    def refused(self, *arguments):
        """Call it and return how it explains that it cannot do that."""
        command = Command(*arguments)
        self.assertNotEqual(0, command.status)
        self.assertNotIn('Traceback', command.errors)
        return command.errors
