# SPDX-License-Identifier: Apache-2.0

import pathlib
import socket
import socketserver
import sys
import threading
import time
from unittest import mock

import fixtures
from oslotest import base

from lab import isolation
from lab import processes
from lab import settings as places
from lab import state


class Echo(socketserver.StreamRequestHandler):
    """Stands for the message bus."""

    def handle(self):
        while line := self.rfile.readline():
            self.wfile.write(line)


class IsolationTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.settings = self.lab()
        state.State(self.settings).write(
            'up', computes=['compute-1'], driver='ours', options=['a.b=c'])
        self.processes = processes.Processes(
            self.settings.run, self.settings.logs)
        self.addCleanup(self.processes.sweep)
        self.computes = mock.Mock()
        self.isolation = isolation.Isolation(
            self.settings, self.computes, 'compute-1')

    def lab(self):
        """Settings of a lab with a bus, and nobody where its relay will be."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        while True:
            bus = socketserver.ThreadingTCPServer((places.HOST, 0), Echo)
            first = bus.server_address[1] - places.PORT_NAMES.index('rabbitmq')
            settings = places.Settings(
                directory, pathlib.Path(sys.prefix), first)
            # Bound and not listened on, a port is given to nobody else, yet
            # the relay can listen there: both set SO_REUSEADDR.
            held = socket.socket()
            self.addCleanup(held.close)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((places.HOST, settings.port('relay')))
            except OSError:
                bus.server_close()
                continue
            bus.daemon_threads = True
            threading.Thread(target=bus.serve_forever, daemon=True).start()
            self.addCleanup(bus.server_close)
            self.addCleanup(bus.shutdown)
            return settings

    def await_state(self, wanted):
        """The kernel takes its time with signals."""
        deadline = time.monotonic() + 20
        while self.processes.state('relay') != wanted:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def configured(self):
        """What the compute was configured with, call by call."""
        return [call.args for call in self.computes.configure.mock_calls]

    def test_the_compute_reaches_the_bus_through_the_relay(self):
        with self.isolation:
            [[names, driver, options]] = self.configured()
            self.assertEqual((['compute-1'], 'ours'), (names, driver))
            self.assertEqual('a.b=c', options[0])
            self.assertIn(f':{self.settings.port("relay")}/', options[1])
            with socket.create_connection(
                    (places.HOST, self.settings.port('relay'))) as client:
                client.sendall(b'hello\n')
                self.assertEqual(b'hello\n', client.recv(6))

    def test_a_watchdog_while_it_is_behind_the_relay(self):
        with isolation.Isolation(self.settings, self.computes, 'compute-1', 8):
            pass
        self.assertEqual(
            ['stop', 'configure', 'start_watched', 'stop', 'configure',
             'start'], [name for name, _, _ in self.computes.mock_calls])
        self.computes.start_watched.assert_called_once_with('compute-1', 8)

    def test_cut_and_mended(self):
        with self.isolation as line:
            line.cut()
            self.await_state('paused')
            line.mend()
            self.await_state('running')

    def test_afterwards_all_is_as_it_was(self):
        with self.isolation as line:
            line.cut()
            # A compute that cannot say goodbye takes minutes to stop.
            self.computes.stop.side_effect = lambda name: self.await_state(
                'running')
        self.assertEqual('stopped', self.processes.state('relay'))
        self.assertEqual((['compute-1'], 'ours', ('a.b=c',)),
                         self.configured()[-1])
        self.assertEqual(
            ['stop', 'configure', 'start'] * 2,
            [name for name, _, _ in self.computes.mock_calls])
