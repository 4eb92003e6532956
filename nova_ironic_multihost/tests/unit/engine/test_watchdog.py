# SPDX-License-Identifier: Apache-2.0

"""What is said to systemd, as it hears it."""

import os
import socket

import fixtures
from oslotest import base

from nova_ironic_multihost.engine import lifecycle

PID = 4711


def listening(test, address):
    """Return a socket at an address that waits for words."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    test.addCleanup(line.close)
    line.settimeout(60)
    line.bind(address)
    return line


class FindTestCase(base.BaseTestCase):

    def find(self, **environment):
        return lifecycle.find_watchdog(environment, PID)

    def test_nothing_watches(self):
        self.assertIsNone(self.find())
        self.assertIsNone(self.find(NOTIFY_SOCKET='/run/notify'))
        self.assertIsNone(self.find(WATCHDOG_USEC='30000000'))

    def test_systemd_watches(self):
        self.assertEqual(
            lifecycle.Watchdog('/run/notify', 30),
            self.find(NOTIFY_SOCKET='/run/notify', WATCHDOG_USEC='30000000',
                      WATCHDOG_PID=str(PID)))

    def test_it_need_not_say_whom(self):
        self.assertEqual(
            lifecycle.Watchdog('@notify', 1.5),
            self.find(NOTIFY_SOCKET='@notify', WATCHDOG_USEC='1500000'))

    def test_it_watches_another_process(self):
        self.assertIsNone(self.find(
            NOTIFY_SOCKET='/run/notify', WATCHDOG_USEC='30000000',
            WATCHDOG_PID='1'))

    def test_what_is_not_understood_is_nothing(self):
        for span in '', '0', '-5', '1.5', 'infinity':
            self.assertIsNone(self.find(
                NOTIFY_SOCKET='/run/notify', WATCHDOG_USEC=span))
        self.assertIsNone(self.find(
            NOTIFY_SOCKET='vsock:2:1', WATCHDOG_USEC='30000000'))


class TellTestCase(base.BaseTestCase):

    def test_words_on_a_path(self):
        path = f'{self.useFixture(fixtures.TempDir()).path}/notify'
        line = listening(self, path)
        lifecycle.Watchdog(path, 30).tell(
            lifecycle.SYSTEMD_READY, lifecycle.SYSTEMD_ALIVE)
        self.assertEqual(b'READY=1\nWATCHDOG=1', line.recv(4096))

    def test_words_without_a_path(self):
        name = f'ironic-multihost-{os.getpid()}'
        line = listening(self, f'\0{name}')
        lifecycle.Watchdog(f'@{name}', 30).tell(
            lifecycle.SYSTEMD_ALIVE)
        self.assertEqual(b'WATCHDOG=1', line.recv(4096))

    def test_nobody_hears(self):
        path = f'{self.useFixture(fixtures.TempDir()).path}/notify'
        self.assertRaises(
            OSError, lifecycle.Watchdog(path, 30).tell,
            lifecycle.SYSTEMD_ALIVE)
