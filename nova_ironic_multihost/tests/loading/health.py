# SPDX-License-Identifier: Apache-2.0

"""A nova-compute that runs, and how the tools that deploy it look for it."""

import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

import fixtures

from nova_ironic_multihost.tests import deployers

#: Seconds after which what does not come is given up.
DEADLINE = 120


class SilentBus(fixtures.Fixture):
    """A port that takes connections and never says a word.

    nova-compute waits there for a conductor, as long as it is let.

    :ivar port: on 127.0.0.1.
    :ivar reached: set when there has been a connection.
    """

    def _setUp(self):
        self.reached = threading.Event()
        self._held = []
        self._server = socket.create_server(('127.0.0.1', 0))
        self.port = self._server.getsockname()[1]
        thread = threading.Thread(target=self._hold)
        thread.start()
        self.addCleanup(thread.join)
        # A plain close would not wake up the thread.
        self.addCleanup(self._server.shutdown, socket.SHUT_RDWR)

    def _hold(self):
        with self._server:
            try:
                while True:
                    self._held.append(self._server.accept()[0])
                    self.reached.set()
            except OSError:
                for connection in self._held:
                    connection.close()


def kolla(test, port):
    """Whether kolla's own check is content with nova-compute, by release.

    :returns: {version: bool}, {} where kolla was not fetched.
    """
    if deployers.PACKAGES not in os.environ:
        return {}
    if not shutil.which('ss'):
        test.skipTest('There is no ss; Debian has it in iproute2.')
    return {version: _becomes_true(
        ['bash', str(next(directory.glob('**/base/healthcheck_port'))),
         'nova-compute', str(port)])
        for version, directory in deployers.packages(test, 'kolla').items()}


def rhoso(test):
    """The processes that the liveness probe of RHOSO finds, by their ids."""
    if not shutil.which('pgrep'):
        test.skipTest('There is no pgrep; Debian has it in procps.')
    return subprocess.run(
        ['pgrep', '-r', 'DRST', 'nova-compute'], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=DEADLINE).stdout.split()


def openstack_helm(pid):
    """Whether the health probe of openstack-helm takes a process for one."""
    words = pathlib.Path(f'/proc/{pid}/cmdline').read_text().split('\0')
    return 'nova-compute' in ' '.join(words)


def _becomes_true(command):
    """Whether a command succeeds before long; nova-compute may reconnect."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if not subprocess.run(command, stdin=subprocess.DEVNULL,
                              capture_output=True,
                              timeout=DEADLINE).returncode:
            return True
        time.sleep(1)
    return False
