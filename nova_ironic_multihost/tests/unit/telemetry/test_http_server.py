# SPDX-License-Identifier: Apache-2.0

"""A server for HTTP, with a few pages that anybody may read."""

import contextlib
import importlib.util
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from oslotest import base
import testtools

from nova_ironic_multihost.telemetry import status_server


#: A process with eventlet's threads: while somebody waits for the next reader,
#: and for some that say nothing, another thread goes on.
EVENTLET = """
import eventlet
eventlet.monkey_patch()
import socket
import urllib.request

from nova_ironic_multihost.telemetry import status_server

one = status_server.Server(
    '127.0.0.1', 0, {'/page': lambda: status_server.line(200, 'It')})
one.start()
silent = [socket.create_connection(('127.0.0.1', one.port))
          for _ in range(2 * status_server.READERS)]
turns = 0


def turn():
    global turns
    while True:
        turns += 1
        eventlet.sleep(0)


eventlet.spawn(turn)
for _ in range(3):
    before = turns
    with urllib.request.urlopen(f'http://127.0.0.1:{one.port}/page') as page:
        assert page.read() == b'It\\n'
    assert turns > before
one.stop()
eventlet.sleep(0)
assert one.port is None
print('done')
"""


def get(one, path='/page', host='127.0.0.1'):
    """Return (status, content type, body)."""
    try:
        with urllib.request.urlopen(
                f'http://{host}:{one.port}{path}', timeout=30) as answer:
            return answer.status, answer.headers['Content-Type'], (
                answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.headers['Content-Type'], exc.read()


class ServerTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.page = status_server.line(200, 'Hello.')
        self.one = self.begin()

    def begin(self, address='127.0.0.1', port=0):
        one = status_server.Server(
            address, port, {'/page': lambda: self.page,
                            '/broken': lambda: self.page.nothing})
        one.start()
        self.addCleanup(one.stop)
        return one

    def test_page(self):
        self.assertEqual(
            (200, 'text/plain; charset=utf-8', b'Hello.\n'), get(self.one))
        self.page = status_server.line(503, 'It hangs.')
        self.assertEqual(
            (503, 'text/plain; charset=utf-8', b'It hangs.\n'),
            get(self.one, '/page?verbose'))

    def test_other_pages_and_methods(self):
        for path in '/else', '/page/', '/', '/PAGE':
            status, _, body = get(self.one, path)
            self.assertEqual(404, status)
            # Nobody learns what others ask for.
            self.assertNotIn(b'page/', body.lower())
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', self.one.port), timeout=30)) as reader:
            reader.sendall(b'DELETE /page HTTP/1.0\r\n\r\n')
            self.assertIn(b' 501 ', reader.makefile('rb').readline())

    def test_head_is_the_page_without_its_body(self):
        """Some probes want no more than the status."""
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', self.one.port), timeout=30)) as reader:
            reader.sendall(b'HEAD /page HTTP/1.0\r\n\r\n')
            answer = reader.makefile('rb').read()
        self.assertIn(b' 200 ', answer.splitlines()[0])
        self.assertIn(b'Content-Length: 7\r\n', answer)
        self.assertTrue(answer.endswith(b'\r\n\r\n'))

    def test_page_that_cannot_be_made(self):
        with self.assertLogs(status_server.__name__, 'ERROR'):
            self.assertEqual(500, get(self.one, '/broken')[0])
        self.assertEqual(200, get(self.one)[0])

    def test_versions_of_python_are_nobodys_business(self):
        with urllib.request.urlopen(
                f'http://127.0.0.1:{self.one.port}/page',
                timeout=30) as answer:
            self.assertEqual('nova-ironic-multihost',
                             answer.headers['Server'].strip())

    def test_port_in_use(self):
        other = status_server.Server('127.0.0.1', self.one.port, {})
        error = self.assertRaises(OSError, other.start)
        self.assertIn('in use', error.strerror)
        self.assertIsNone(other.port)
        other.stop()
        self.assertEqual(200, get(self.one)[0])

    def test_address_that_is_not_there(self):
        for address in '192.0.2.1', 'no such host', 'x' * 99:
            other = status_server.Server(address, 0, {})
            self.assertRaises(OSError, other.start)
            self.assertIsNone(other.port)

    def test_threads_that_are_used_up(self):
        port = self.one.port
        self.one.stop()
        start = threading.Thread.start

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        other = status_server.Server('127.0.0.1', port, {})
        threading.Thread.start = refuse
        try:
            self.assertRaises(OSError, other.start)
        finally:
            threading.Thread.start = start
        self.assertIsNone(other.port)
        # Nor has it the port.
        self.assertEqual(port, self.begin(port=port).port)

    def test_port_is_free_when_it_has_ended(self):
        port = self.one.port
        self.assertEqual(200, get(self.one)[0])
        self.one.stop()
        self.one.stop()
        self.assertIsNone(self.one.port)
        self.assertRaises(OSError, socket.create_connection,
                          ('127.0.0.1', port), 30)
        self.assertEqual(port, self.begin(port=port).port)

    def test_starting_twice_is_starting_once(self):
        port = self.one.port
        self.one.start()
        self.assertEqual(port, self.one.port)

    def test_thread_ends_with_it(self):
        def threads():
            return [thread for thread in threading.enumerate()
                    if thread.name == 'ironic-multihost-metrics']

        [thread] = threads()
        self.assertTrue(thread.daemon)
        self.one.stop()
        thread.join(30)
        self.assertEqual([], threads())

    def test_reader_that_says_nothing_holds_up_no_other(self):
        silent = [socket.create_connection(
            ('127.0.0.1', self.one.port), timeout=30) for _ in range(3)]
        for reader in silent:
            self.addCleanup(reader.close)
        self.assertEqual(200, get(self.one)[0])

    def test_reader_that_says_nothing_is_left(self):
        self.patch_patience(0.01)
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', self.one.port), timeout=30)) as reader:
            self.assertEqual(b'', reader.recv(1))

    def patch_patience(self, seconds):
        before = status_server._Handler.timeout
        self.assertEqual(status_server.PATIENCE, before)
        status_server._Handler.timeout = seconds
        self.addCleanup(setattr, status_server._Handler, 'timeout', before)

    def connect(self, number):
        """Return so many connections, in the order in which they are made.

        They are kept: one of eventlet is closed with its last reference, and
        a method of it is none.
        """
        self.connections = [
            socket.create_connection(('127.0.0.1', self.one.port), timeout=30)
            for _ in range(number)]
        for one in self.connections:
            self.addCleanup(one.close)
        return self.connections

    def slow(self, path):
        """Make a page that does not come to its end until goes_on is set.

        :returns: semaphore that is released by each who waits for it
        """
        come, self.goes_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(self.goes_on.set)

        def page():
            come.release()
            return self.goes_on.wait(60) and self.page

        self.one.pages[path] = page
        return come

    def test_only_so_many_readers_at_a_time(self):
        """Who has been there for longest has to go."""
        self.patch_patience(600)
        silent = self.connect(status_server.READERS + 1)
        self.assertEqual(b'', silent[0].recv(1))
        silent[1].setblocking(False)
        self.assertRaises(BlockingIOError, silent[1].recv, 1)

    def test_readers_that_stay_keep_nobody_away(self):
        """Whether they say nothing or do not come to an end."""
        self.patch_patience(600)
        readers = self.connect(2 * status_server.READERS)
        for number, reader in enumerate(readers):
            # It may have been sent away.
            with contextlib.suppress(OSError):
                reader.sendall(b'GET /pa' if number % 2 else b'')
        for _ in range(3):
            self.assertEqual(200, get(self.one)[0])

    def test_one_that_cannot_be_sent_away_keeps_nobody_away(self):
        self.patch_patience(600)
        come = self.slow('/slow')
        first, *_ = self.connect(status_server.READERS)
        first.sendall(b'GET /slow HTTP/1.0\r\n\r\n')
        self.assertTrue(come.acquire(timeout=60))
        self.assertRaises(OSError, get, self.one)
        self.assertEqual(200, get(self.one)[0])

    def test_readers_that_cannot_be_sent_away(self):
        """Nobody is waited for."""
        come = self.slow('/page')
        busy = self.connect(status_server.READERS)
        for reader in busy:
            reader.sendall(b'GET /page HTTP/1.0\r\n\r\n')
        for _ in busy:
            self.assertTrue(come.acquire(timeout=60))
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', self.one.port), timeout=30)) as reader:
            self.assertEqual(b'', reader.recv(1))
        self.goes_on.set()
        self.assertIn(b' 200 ', busy[-1].makefile('rb').readline())

    @testtools.skipUnless(
        importlib.util.find_spec('eventlet'), 'no nova has it any more')
    def test_threads_of_eventlet(self):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', EVENTLET],
            capture_output=True, text=True, timeout=120)
        self.assertEqual((0, 'done\n'), (done.returncode, done.stdout),
                         done.stderr)

    def test_any_number_of_readers_one_after_the_other(self):
        for _ in range(2 * status_server.READERS):
            self.assertEqual(200, get(self.one)[0])

    def test_ipv6(self):
        if not socket.has_ipv6:
            self.skipTest('no IPv6')
        try:
            with contextlib.closing(
                    socket.socket(socket.AF_INET6)) as trial:
                trial.bind(('::1', 0))
        except OSError as exc:
            self.skipTest(str(exc))
        self.assertEqual(200, get(self.begin('::1'), host='[::1]')[0])
