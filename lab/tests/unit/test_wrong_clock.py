# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import subprocess
import sys
import tempfile

from oslotest import base

PROGRAM = """
import datetime, json, sys, time
from oslo_utils import timeutils
print(json.dumps([
    time.time(), timeutils.utcnow(with_timezone=True).timestamp(),
    timeutils.utcnow_ts(True), time.monotonic(),
    datetime.datetime.now().timestamp(), __name__, *sys.argv[1:]]))
"""


class WrongClockTestCase(base.BaseTestCase):

    def run_program(self, seconds):
        """Return what the program says, which runs as --seconds says."""
        with tempfile.NamedTemporaryFile('w', suffix='.py') as program:
            program.write(PROGRAM)
            program.flush()
            return json.loads(subprocess.run(
                [sys.executable, '-m', 'lab.wrong_clock', str(seconds),
                 program.name, '--option'],
                cwd=pathlib.Path(__file__).parents[3], check=True,
                stdout=subprocess.PIPE).stdout)

    def test_what_nova_reads_is_wrong(self):
        for seconds in (90, -90, 1000000):
            with self.subTest(seconds):
                *said, _, right, name, argument = self.run_program(seconds)
                for moment in said:
                    self.assertEqual(
                        round(seconds / 10), round((moment - right) / 10))
                self.assertEqual(('__main__', '--option'), (name, argument))
