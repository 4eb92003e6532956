# SPDX-License-Identifier: Apache-2.0

import pathlib
import subprocess
import sys

import fixtures
from oslotest import base

from lab import errors
from lab import lock

_TOP = pathlib.Path(lock.__file__).parent.parent
_PATIENT = """
import pathlib, sys
from lab import lock
print('waits', flush=True)
with lock.hold(pathlib.Path(sys.argv[1]), 'prepare', wait=True):
    print('held', flush=True)
"""
_HOLDER = """
import signal, sys, time, pathlib
signal.signal(signal.SIGTERM, signal.default_int_handler)
from lab import lock
with lock.hold(pathlib.Path(sys.argv[1]), 'up'):
    print('held', flush=True)
    # Not one long sleep: a signal just before it would not end it.
    while True:
        time.sleep(0.1)
"""


class LockTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.path = top / 'run' / 'lock'

    def holder(self, program=_HOLDER, says=b'held\n'):
        process = subprocess.Popen(
            [sys.executable, '-c', program, str(self.path)], cwd=_TOP,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(says, process.stdout.readline())
        return process

    def test_free_again_afterwards(self):
        for _ in range(2):
            with lock.hold(self.path, 'up'):
                pass

    def test_refusal_says_who_holds_it(self):
        process = self.holder()
        error = self.assertRaises(
            errors.LabError, lock.hold(self.path, 'boot').__enter__)
        self.assertIn(str(process.pid), str(error))
        self.assertIn('"up"', str(error))

    def test_free_when_the_holder_was_killed(self):
        process = self.holder()
        process.kill()
        process.wait()
        with lock.hold(self.path, 'down'):
            pass

    def test_down_interrupts_the_holder(self):
        process = self.holder()
        with lock.hold(self.path, 'down', interrupt=True):
            self.assertIsNotNone(process.wait())

    def test_who_waits_gets_it_in_the_end(self):
        with lock.hold(self.path, 'up'):
            process = self.holder(_PATIENT, b'waits\n')
            self.assertIsNone(process.poll())
        self.assertEqual(b'held\n', process.stdout.readline())
        self.assertEqual(0, process.wait())
