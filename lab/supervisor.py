# SPDX-License-Identifier: Apache-2.0

"""Run a program as systemd runs a service that has a watchdog.

``python -m lab.supervisor SECONDS PROGRAM ARGUMENT...``. From when the program
says that it has started, it is killed with SIGKILL when it shows no sign of
life for SECONDS, and is started again. Told to end it has as long, and more
whenever it asks for more: ``Type=notify``, ``WatchdogSec``,
``WatchdogSignal=SIGKILL``, ``TimeoutStopSec`` and ``Restart=always`` of
systemd. What the program logs goes where this logs when it kills.
"""

import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time

#: Seconds from the end of a program to its next start.
REST = 1.0
#: Seconds after which it is looked whether the program has ended.
GLANCE = 0.1

_KILLED = re.compile(r'^supervisor: killed at ([\d.]+)$', re.MULTILINE)


def kills(log):
    """When programs were killed: seconds since the epoch, the first first.

    :param log: path of the log
    """
    return [float(at) for at in _KILLED.findall(
        pathlib.Path(log).read_text(errors='replace'))]


class Supervisor:
    """Supervises one program.

    :param seconds: without a sign of life
    :param argv: program and arguments
    """

    def __init__(self, seconds, argv):
        self._seconds = seconds
        self._argv = argv
        self._ending = False
        name = f'lab-supervisor-{os.getpid()}'
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._line.bind(f'\0{name}')
        self._environment = os.environ | {
            'NOTIFY_SOCKET': f'@{name}',
            'WATCHDOG_USEC': str(round(seconds * 1e6))}

    def run(self):
        """Run the program until this is told to end, and it has ended."""
        signal.signal(signal.SIGTERM, self._end)
        while not self._ending:
            self._child = subprocess.Popen(
                self._argv, env=self._environment, process_group=0)
            self._deadline = None
            while self._child.poll() is None:
                self._look()
            if not self._ending:
                time.sleep(REST)

    def _end(self, number, frame):
        self._ending = True
        self._deadline = time.monotonic() + self._seconds
        self._child.terminate()

    def _look(self):
        if select.select([self._line], [], [], GLANCE)[0]:
            self._hear(self._line.recv(4096).decode().splitlines())
        elif self._deadline and time.monotonic() > self._deadline:
            os.killpg(self._child.pid, signal.SIGKILL)
            print(f'supervisor: killed at {time.time():.1f}', flush=True)
            self._child.wait()

    def _hear(self, words):
        later = time.monotonic() + self._seconds
        if self._ending:
            if any(word.startswith('EXTEND_TIMEOUT_USEC=') for word in words):
                self._deadline = max(self._deadline, later)
        elif 'READY=1' in words or (
                self._deadline is not None and 'WATCHDOG=1' in words):
            self._deadline = later


if __name__ == '__main__':
    Supervisor(float(sys.argv[1]), sys.argv[2:]).run()
