# SPDX-License-Identifier: Apache-2.0

"""tools/lab, called as a user calls it."""

import atexit
import fcntl
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import zlib

from lab import processes

ROOT = pathlib.Path(__file__).resolve().parents[3]

#: Labs of their own, beside the one that a developer may have up: one for
#: each process that runs tests, numbered from 1.
LABS = ROOT / '.lab-test'
AT_MOST = 4

#: Distance of the base ports of two labs. The first one stays the same for a
#: checkout and differs between two.
PORTS = 20
FIRST_PORT = 20000 + zlib.crc32(str(ROOT).encode()) % 150 * AT_MOST * PORTS

#: Seconds after which a command that hangs is given up.
DEADLINE = 1800

COMPUTES = 3
#: As few as an experiment can do with: audits of nodes are most of what a lab
#: does.
NODES = 12
#: Where no experiment has to choose among them.
FEW_NODES = 9
#: For experiments that boot eight servers on one compute.
MANY_NODES = 24

#: Short, and yet no more work than the processors can do.
AUDITS = ('--set', 'DEFAULT.update_resources_interval=8',
          '--set', 'DEFAULT.report_interval=3')
#: Long enough for heartbeats that a busy machine has delayed.
INTERVALS = (*AUDITS, '--set', 'DEFAULT.service_down_time=10')

#: All tests that may have the same lab do, for it is then not made anew.
SHAPE = ('--computes', str(COMPUTES), '--nodes', str(NODES), *INTERVALS)
LARGE = ('--computes', str(COMPUTES), '--nodes', str(MANY_NODES), *INTERVALS)
SMALL = ('--computes', str(COMPUTES), '--nodes', str(FEW_NODES), *INTERVALS)


@functools.cache
def place():
    """Variables that name the lab of this process, which it has for itself.

    The first call chooses one, ends what an interrupted run has left in all
    that nobody has, and sees to it that this one is down in the end. A lab
    stays up from one test to the next one.
    """
    LABS.mkdir(exist_ok=True)
    with open(LABS / 'lock', 'a') as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        free = {}
        for number in range(1, AT_MOST + 1):
            lock = open(LABS / f'{number}.lock', 'a')
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
            else:
                free[number] = lock
        if not free:
            raise RuntimeError(f'All {AT_MOST} labs of the tests are in use.')
        for number in free:
            _end(number)
        mine = min(free)
        for number, lock in free.items():
            if number != mine:
                lock.close()
    atexit.register(_end, mine, free[mine])
    return {'LAB_DIR': str(LABS / str(mine)),
            'LAB_BASE_PORT': str(FIRST_PORT + (mine - 1) * PORTS)}


def _end(number, lock=None):
    """Take a lab down, and end what devstack has started on it.

    :param lock: what is held until then
    """
    machine = LABS / str(number) / 'devstack'
    processes.Processes(machine / 'run', machine / 'logs').sweep()
    if (LABS / str(number) / 'state.json').exists():
        subprocess.run(
            [sys.executable, str(ROOT / 'tools' / 'lab'), '--dir',
             str(LABS / str(number)), 'down'],
            stdin=subprocess.DEVNULL, capture_output=True, check=False)


class Command:
    """What came of one call of tools/lab.

    :ivar status: exit status.
    :ivar output: what it printed.
    :ivar errors: what it printed to standard error.
    :param deadline: seconds after which it is given up.
    """

    def __init__(self, *arguments, deadline=DEADLINE):
        process = subprocess.run(
            [sys.executable, str(ROOT / 'tools' / 'lab'), *arguments],
            env={**os.environ, **place()}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=deadline)
        self.status = process.returncode
        self.output = process.stdout
        self.errors = process.stderr

    @property
    def answer(self):
        """What ``--json`` gave."""
        return json.loads(self.output.splitlines()[-1])


class LabTestCase(unittest.TestCase):
    """A test that calls tools/lab."""

    def lab(self, *arguments, deadline=DEADLINE):
        """Call it; a failure is one of the test. Returns a Command."""
        command = Command(*arguments, deadline=deadline)
        if command.status:
            self.keep_logs()
        self.assertEqual(0, command.status,
                         f'{arguments}: {command.output}{command.errors}')
        return command

    def refused(self, *arguments):
        """Call it and return how it explains that it cannot do that."""
        command = Command(*arguments)
        self.assertNotEqual(0, command.status)
        self.assertNotIn('Traceback', command.errors)
        return command.errors

    def experiment(self, name, *arguments, shape=SHAPE, deadline=DEADLINE):
        """Run one that has to pass; returns its figures.

        It gets the lab that the test before has left, if that is as it was
        when it came up, otherwise one that is as if it were new.

        :param shape: options that say which lab
        :param deadline: seconds after which it is given up
        """
        figures = self.lab(
            'run', name, *shape, '--reset', '--keep', '--assert', '--json',
            *arguments, deadline=deadline).answer
        self.assertEqual(('pass', []),
                         (figures['verdict'], figures['failed']))
        return figures

    def keep_logs(self):
        """Copy the logs of the lab, which the next one replaces."""
        logs = pathlib.Path(place()['LAB_DIR']) / 'logs'
        kept = LABS / 'failed' / self.id()
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(logs, kept)
