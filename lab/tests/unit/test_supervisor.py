# SPDX-License-Identifier: Apache-2.0

"""A program that a watchdog of the lab watches."""

import os
import pathlib
import subprocess
import sys
import time

import fixtures
from oslotest import base

from lab import supervisor

#: Notes that it began, says the words of each of its arguments, one after the
#: other, and hangs.
PROGRAM = """
import os, pathlib, signal, socket, sys, time
log, ended = map(pathlib.Path, sys.argv[1:3])
signal.signal(signal.SIGTERM, lambda *_: ended.write_text('told'))
with log.open('a') as file:
    file.write('begun ')
line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
line.connect(chr(0) + os.environ['NOTIFY_SOCKET'][1:])
assert os.environ['WATCHDOG_USEC'] == '500000'
for words in sys.argv[3:]:
    line.sendall(words.encode())
    time.sleep(0.1)
while True:
    if ended.exists() and sys.argv[3:] == ['READY=1', 'polite']:
        sys.exit()
    time.sleep(0.01)
"""


class SupervisorTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.begun, self.told = self.top / 'begun', self.top / 'told'
        self.log = self.top / 'log'
        self.log.touch()

    def supervise(self, *words):
        with self.log.open('a') as log:
            process = subprocess.Popen(
                [sys.executable, '-m', 'lab.supervisor', '0.5',
                 sys.executable, '-c', PROGRAM, str(self.begun),
                 str(self.told), *words], stdout=log,
                env=os.environ | {'PYTHONPATH': str(
                    pathlib.Path(__file__).resolve().parents[3])})
        self.addCleanup(process.wait)
        self.addCleanup(process.terminate)
        return process

    def until(self, done):
        deadline = time.monotonic() + 60
        while not done():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def begins(self):
        return (self.begun.read_text().count('begun')
                if self.begun.exists() else 0)

    def test_one_that_hangs_is_killed_and_started_again(self):
        before = time.time()
        self.supervise('READY=1\nWATCHDOG=1')
        self.until(lambda: self.begins() > 1)
        first = supervisor.kills(self.log)[0]
        self.assertGreater(first, before + 0.4)
        self.assertLess(first, time.time() + 0.1)

    def test_a_sign_of_life_gives_it_more_time(self):
        before = time.time()
        self.supervise('READY=1', *['WATCHDOG=1'] * 6)
        self.until(lambda: supervisor.kills(self.log))
        self.assertGreater(supervisor.kills(self.log)[0], before + 1)

    def test_one_that_has_not_started_may_take_its_time(self):
        process = self.supervise('WATCHDOG=1')
        self.until(self.begins)
        process.terminate()
        process.wait(60)
        # It was killed as it did not end.
        self.assertEqual(1, len(supervisor.kills(self.log)))
        self.assertTrue(self.told.exists())
        self.assertEqual(1, self.begins())

    def test_one_that_ends_when_it_is_told_is_not_killed(self):
        process = self.supervise('READY=1', 'polite')
        self.until(self.begins)
        self.until(lambda: process.poll() is not None or (
            process.terminate() or False))
        self.assertEqual(1, self.begins())
