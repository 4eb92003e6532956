# SPDX-License-Identifier: Apache-2.0

"""The metrics, health and report of a compute service."""

import contextlib
from importlib import metadata
import importlib.util
import pathlib
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import fixtures
from oslotest import base
import prometheus_client
from prometheus_client import parser
import testtools

from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.telemetry import status_server
from nova_ironic_multihost.tests.unit.telemetry import pictures

PAGE = (pathlib.Path(__file__).resolve().parents[4]
        / 'doc/source/reference/metrics.rst')


#: A process with eventlet's threads: while the server waits for the next
#: reader, and for some that say nothing, another thread goes on.
EVENTLET = """
import eventlet
eventlet.monkey_patch()
import socket
import urllib.request

from nova_ironic_multihost.telemetry import status_server

one = status_server.Server(('127.0.0.1', 0), {'/page': lambda: (200, 'It')})
port = one.server_address[1]
silent = [socket.create_connection(('127.0.0.1', port))
          for _ in range(20)]
turns = 0


def turn():
    global turns
    while True:
        turns += 1
        eventlet.sleep(0)


eventlet.spawn(turn)
for _ in range(3):
    before = turns
    with urllib.request.urlopen(f'http://127.0.0.1:{port}/page') as page:
        assert page.read() == b'It'
    assert turns > before
one.stop()
eventlet.sleep(0)
print('done')
"""


def get(one, path='/page', host='127.0.0.1'):
    """Return (status, content type, body)."""
    try:
        with urllib.request.urlopen(
                f'http://{host}:{port(one)}{path}', timeout=30) as answer:
            return answer.status, answer.headers['Content-Type'], (
                answer.read())
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.headers['Content-Type'], exc.read()


def port(one):
    """Return the port of a server."""
    return one.server_address[1]


def parsed(text):
    """Return {(name, labels without their names...): value} of a scrape."""
    return {(sample.name.removeprefix('nova_ironic_multihost_'),
             *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples}


class ExpositionTestCase(base.BaseTestCase):

    def text(self, *args, **fields):
        return status_server.Exposition(
            lambda: pictures.of(*args, **fields), '1.2.3').text()

    def read(self, *args, **fields):
        return parsed(self.text(*args, **fields))

    def test_nothing_is_said_of_what_is_not_known_yet(self):
        found = self.read()
        waits = {key for key in found if key[0].startswith('wait_seconds')}
        self.assertEqual({0}, {found.pop(key) for key in waits})
        self.assertEqual({
            ('info', '1.2.3'): 1,
            ('moves_total', 'adopted'): 0, ('moves_total', 'pulled'): 0,
            ('moves_total', 'failed'): 0, ('takeovers_total', 'done'): 0,
            ('takeovers_total', 'failed'): 0, ('peer_polls_failed_total',): 0,
            ('operations_refused_total',): 0,
            ('takeover_oldest_pending_seconds',): 0,
            ('listing_age_seconds',): 60, ('audit_age_seconds',): 60},
            found)

    def test_members_are_those_that_share_the_nodes(self):
        self.assertEqual(2, self.read(view=pictures.VIEW)['members',])

    def test_other_members_have_another_checksum(self):
        def read(*hosts):
            return self.read(view=peers.view(
                [peers.ComputeService(host, up=True) for host in hosts],
                peers.Partition(), 'a'))

        found, again, others = read('a', 'b'), read('b', 'a'), read('a', 'c')
        self.assertEqual(found, again)
        self.assertEqual(found['members',], others['members',])
        self.assertNotEqual(found['members_checksum',],
                            others['members_checksum',])

    def test_nodes_of_each_reason(self):
        found = self.read(reasons={
            'n1': Reason.KEPT, 'n2': Reason.KEPT, 'n3': Reason.OTHER_ZONE})
        self.assertEqual(
            {reason.name.lower() for reason in Reason},
            {labels[0] for name, *labels in found if name == 'nodes'})
        self.assertEqual(2, found['nodes', 'kept'])
        self.assertEqual(1, found['nodes', 'other_zone'])
        self.assertEqual(0, found['nodes', 'pulled'])

    def test_brake(self):
        self.assertEqual(0, self.read(reasons={})['brake_engaged',])
        self.assertEqual(
            1, self.read(reasons={}, braked=True)['brake_engaged',])

    def test_events_are_counted_each_for_itself(self):
        found = self.read(counts={
            event: number for number, event in enumerate(Event, 1)})
        self.assertEqual(
            {('moves_total', 'adopted'): Event.ADOPTED,
             ('moves_total', 'pulled'): Event.PULLED,
             ('moves_total', 'failed'): Event.MOVE_FAILED,
             ('takeovers_total', 'done'): Event.TAKEN_OVER,
             ('takeovers_total', 'failed'): Event.TAKEOVER_FAILED,
             ('peer_polls_failed_total',): Event.PEER_POLL_FAILED,
             ('operations_refused_total',): Event.REFUSED},
            {key: list(Event)[int(value) - 1] for key, value in found.items()
             if key[0].endswith('_total')})

    def test_take_overs_that_are_pending(self):
        self.assertEqual(30, self.read(pending={Pending.REST: {'i1': 70}})[
            'takeover_oldest_pending_seconds',])

    def test_waits_are_a_histogram(self):
        one = status_server.Exposition(pictures.of, '1')
        for seconds in 0.5, 45, 1e6:
            one.waits.labels(Wait.TAKEOVER.value).observe(seconds)
        found = parsed(one.text())
        self.assertEqual(
            {'1.0': 1, '30.0': 1, '60.0': 2, '14400.0': 2, '+Inf': 3},
            {bound: found['wait_seconds_bucket', bound, 'takeover']
             for bound in ('1.0', '30.0', '60.0', '14400.0', '+Inf')})
        self.assertEqual((3, 1000045.5), (
            found['wait_seconds_count', 'takeover'],
            found['wait_seconds_sum', 'takeover']))
        self.assertEqual(
            {'build', 'delete', 'move', 'takeover'},
            {labels[0] for name, *labels in found
             if name == 'wait_seconds_count'})

    def test_work_by_how_long_it_took_and_when(self):
        found = self.read({Work.LISTING: RunStats(90, 90, 90, 2),
                           Work.AUDIT: RunStats(95, 95, 80, 7)})
        self.assertEqual(
            (2, 10, 7, 20),
            tuple(found[name,] for name in (
                'listing_seconds', 'listing_age_seconds', 'audit_seconds',
                'audit_age_seconds')))

    def test_what_grows_old_is_not_said_at_the_end(self):
        """It may take an hour, with nobody to tell that anything is wrong."""
        before = self.read(view=pictures.VIEW, reasons={})
        found = self.read(view=pictures.VIEW, reasons={}, ending=True)
        self.assertEqual(
            {('members',), ('members_checksum',), ('listing_age_seconds',),
             ('audit_age_seconds',)},
            before.keys() - found.keys())

    def test_picture_is_taken_once_for_each_reader(self):
        taken = []
        one = status_server.Exposition(
            lambda: taken.append(1) or pictures.of(), '1')
        self.assertEqual([], taken)
        one.text()
        self.assertEqual([1], taken)

    def test_registry_of_others_is_left_alone(self):
        self.text()
        self.assertNotIn(b'nova_ironic_multihost', (
            prometheus_client.generate_latest(prometheus_client.REGISTRY)))

    def test_each_metric_is_documented_with_its_type(self):
        text = self.text(pictures.TURNS, view=pictures.VIEW, reasons={})
        types = dict(re.findall(
            r'^# TYPE nova_ironic_multihost_(\w+) (\w+)$', text, re.M))
        # The text says that an info is a gauge.
        self.assertEqual(types, dict(re.findall(
            r'^   ``(\w+?)(?:\{\w+\})?``,(\w+),', PAGE.read_text(), re.M)))


class ReportTestCase(base.BaseTestCase):

    def lines(self, *args, verdict=pictures.WELL, **fields):
        return list(status_server.report_lines(
            pictures.of(*args, **fields), verdict))

    def after(self, heading, lines):
        """Return what is indented below a line."""
        found = []
        for line in lines[lines.index(heading) + 1:]:
            if not line.startswith('  '):
                break
            found.append(line.strip())
        return found

    def test_who_it_is_and_how_it_goes(self):
        lines = self.lines(verdict=health.HealthState(False, 'It hangs: why.'))
        self.assertEqual(['Compute service: Me', 'Health: It hangs: why.'],
                         lines[:2])

    def test_what_is_not_known_yet(self):
        lines = self.lines()
        self.assertIn('Members: not known yet', lines)
        self.assertIn('Nodes: not known yet', lines)
        self.assertIn('an audit of all nodes: not done yet',
                      self.after('Work:', lines))

    def test_members(self):
        lines = self.lines(view=pictures.VIEW)
        self.assertEqual(['Me', 'You'], self.after('Members: 2', lines))

    def test_nodes(self):
        lines = self.lines(reasons={
            'n1': Reason.KEPT, 'n2': Reason.QUEUED, 'n3': Reason.QUEUED})
        self.assertEqual(
            [f'1 {Reason.KEPT.value}: for example n1',
             f'2 {Reason.QUEUED.value}: for example n3'],
            self.after('Nodes: 3', lines))

    def test_brake(self):
        self.assertIn('Brake of vanished nodes: not engaged',
                      self.lines(reasons={}))
        self.assertIn('Brake of vanished nodes: engaged, 7 are missing',
                      self.lines(reasons={}, braked=True, missing=7))

    def test_pending_the_oldest_first_and_not_all(self):
        lines = self.lines(pending={
            Pending.REST: {f'i{i:02}': 99 for i in range(30)},
            Pending.TURN: {'n1': 70}})
        self.assertEqual(
            ['n1, for 30 s'], self.after(
                'Nodes with instances that wait to be taken over: 1', lines))
        shown = self.after(
            'Instances with an interrupted operation: 30', lines)
        self.assertEqual(status_server.SHOWN, len(shown))
        self.assertEqual('i00, for 1 s', shown[0])

    def test_work(self):
        lines = self.after('Work:', self.lines(
            {Work.AUDIT: RunStats(95, 80, 80, 7),
             Work.PEER_POLL: RunStats(sign=60)}, asking=88))
        self.assertIn('an audit of all nodes: done 20.0 s ago, took 7.0 s, '
                      'last sign of it 5.0 s ago', lines)
        self.assertIn('a peer poll: not done yet, last sign of it 40.0 s ago',
                      lines)
        self.assertIn('a request to Ironic has been under way for 12.0 s',
                      lines)

    def test_events(self):
        lines = self.lines(counts={Event.PULLED: 3})
        self.assertIn(f'3 times {Event.PULLED.value}',
                      self.after('Since the process began:', lines))


class WindowTestCase(base.BaseTestCase):

    verdict = lease = pictures.WELL

    def window(self, where, host='me-1'):
        one = status_server.StatusServer(
            host, lambda: pictures.of(view=pictures.VIEW),
            lambda: self.verdict, lambda: self.lease, where)
        self.addCleanup(one.close)
        self.assertEqual([], one.open())
        return one

    def test_metrics(self):
        one = self.window(('127.0.0.1', 0))
        status, kind, body = get(one.server, '/metrics')
        self.assertEqual(200, status)
        self.assertTrue(kind.startswith('text/plain; version='), kind)
        found = parsed(body.decode())
        self.assertEqual(2, found['members',])
        self.assertEqual(1, found[
            'info', metadata.version('nova-ironic-multihost')])

    def test_health(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(
            (200, b'This compute service is well.\n'),
            get(one.server, '/healthz/me-1')[::2])
        self.verdict = health.HealthState(False, 'It hangs.')
        self.assertEqual(
            (503, b'It hangs.\n'),
            get(one.server, '/healthz/me-1')[::2])

    def test_lease(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(
            200, get(one.server, '/leasez/me-1')[0])
        self.lease = health.HealthState(False, 'The lease has run out.')
        self.assertEqual(
            (503, b'The lease has run out.\n'),
            get(one.server, '/leasez/me-1')[::2])
        self.assertEqual(
            200, get(one.server, '/healthz/me-1')[0])

    def test_another_answers_no_probe_of_this_one(self):
        """As when both of a machine were given one port."""
        one = self.window(('127.0.0.1', 0))
        for host in '', '/', '/me', '/me-2', '/ME-1', '/me-1/', '/me-1/x':
            for page in '/leasez', '/healthz':
                self.assertEqual(
                    404, get(one.server, page + host)[0], host
                )

    def test_host_with_letters_that_are_special_in_a_url(self):
        one = self.window(('127.0.0.1', 0), 'a b/c?d')
        self.assertEqual(200, get(
            one.server, '/leasez/a%20b%2Fc%3Fd')[0])

    def test_host_that_is_an_address(self):
        # The kubelet asks as it is told, and encodes nothing.
        one = self.window(('127.0.0.1', 0), host='2001:db8::1')
        for path in '/leasez/2001:db8::1', '/leasez/2001%3Adb8%3A%3A1':
            self.assertEqual(200, get(one.server, path)[0])

    def port_in_use(self):
        """Return a window whose port another one has."""
        self.used = port(self.window(('127.0.0.1', 0), 'me-2').server)
        return status_server.StatusServer(
            'me-1', None, None, None, ('127.0.0.1', self.used))

    def test_port_in_use_is_said_and_nothing_else(self):
        one = self.port_in_use()
        with self.assertLogs(status_server.__name__, 'WARNING') as logs:
            self.assertEqual([], one.open())
        self.assertIn('metrics_port', logs.output[0])
        self.assertIn(str(self.used), logs.output[0])
        self.assertIsNone(one.server)
        one.close()

    def test_port_in_use_where_only_a_probe_ends_it(self):
        one = self.port_in_use()
        with self.assertNoLogs(status_server.__name__):
            [sentence] = one.open(required=True)
        for words in ('metrics_port', 'metrics_address', 'in use',
                      'forced_down', str(self.used)):
            self.assertIn(words, sentence)

    def test_nothing_is_required_where_nothing_listens(self):
        """A WARNING says then that nothing ends it, for all it knows."""
        one = status_server.StatusServer('me-1', None, None, None, None)
        self.assertEqual([], one.open(required=True))

    def test_health_that_is_not_known_ends_nobody(self):
        one = status_server.StatusServer(
            'me-1',
            None,
            lambda: self.verdict.nothing,
            lambda: self.lease,
            ('127.0.0.1', 0),
        )
        self.addCleanup(one.close)
        one.open()
        for path, status in (('/healthz/me-1', 200), ('/metrics', 500)):
            with self.assertLogs(status_server.__name__, 'ERROR'):
                found, _, body = get(one.server, path)
            self.assertEqual(status, found)
            self.assertIn(b'cannot be said', body)

    def test_report_that_fails_leaves_the_rest_of_it(self):
        self.assertIn('has failed', status_server.StatusServer(
            'me-1', pictures.of, lambda: self.verdict.nothing, None, None
        ).report())

    def test_nothing_listens_by_default(self):
        one = self.window(None)
        self.assertIsNone(one.server)
        self.assertIn('Compute service: Me', one.report())


class ServerTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.page = 200, 'Hello.\n'
        self.one = self.begin()

    def begin(self, address='127.0.0.1', port=0):
        one = status_server.Server((address, port), {
            '/page': lambda: self.page, '/broken': lambda: self.page.nothing})
        self.addCleanup(one.stop)
        return one

    def test_page(self):
        self.assertEqual(
            (200, prometheus_client.CONTENT_TYPE_LATEST, b'Hello.\n'),
            get(self.one))
        self.page = 503, 'It hangs.\n'
        self.assertEqual(
            (503, b'It hangs.\n'), get(self.one, '/page?verbose')[::2])

    def test_other_pages_and_methods(self):
        for path in '/else', '/page/', '/', '/PAGE':
            status, _, body = get(self.one, path)
            self.assertEqual(404, status)
            # Nobody learns what others ask for.
            self.assertNotIn(b'page/', body.lower())
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', port(self.one)), timeout=30)) as reader:
            reader.sendall(b'DELETE /page HTTP/1.0\r\n\r\n')
            self.assertIn(b' 501 ', reader.makefile('rb').readline())

    def test_head_is_the_page_without_its_body(self):
        """Some probes want no more than the status."""
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', port(self.one)), timeout=30)) as reader:
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
                f'http://127.0.0.1:{port(self.one)}/page',
                timeout=30) as answer:
            self.assertEqual('nova-ironic-multihost',
                             answer.headers['Server'].strip())

    def test_port_in_use(self):
        error = self.assertRaises(
            OSError, status_server.Server, ('127.0.0.1', port(self.one)), {})
        self.assertIn('in use', error.strerror)
        self.assertEqual(200, get(self.one)[0])

    def test_address_that_is_not_there(self):
        for address in '192.0.2.1', 'no such host':
            self.assertRaises(OSError, status_server.Server, (address, 0), {})

    def test_port_is_free_when_it_has_ended(self):
        number = port(self.one)
        self.assertEqual(200, get(self.one)[0])
        self.one.stop()
        self.one.stop()
        self.assertRaises(OSError, socket.create_connection,
                          ('127.0.0.1', number), 30)
        self.assertEqual(number, port(self.begin(port=number)))

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
            ('127.0.0.1', port(self.one)), timeout=30) for _ in range(3)]
        for reader in silent:
            self.addCleanup(reader.close)
        self.assertEqual(200, get(self.one)[0])

    def test_readers_that_send_a_byte_now_and_then(self):
        """nova-compute would run out of files and threads."""
        self.useFixture(fixtures.MockPatchObject(
            status_server._Handler, 'timeout', 60))
        readers = []
        for _ in range(2 * status_server.READERS):
            reader = socket.create_connection(
                ('127.0.0.1', port(self.one)))
            self.addCleanup(reader.close)
            reader.sendall(b'G')
            readers.append(reader)
            # It has its thread.
            self.assertEqual(200, get(self.one)[0])
        with self.assertRaises(TimeoutError):
            readers[-1].settimeout(0.1)
            readers[-1].recv(1)
        for reader in readers[:status_server.READERS]:
            reader.settimeout(10)
            self.assertEqual(b'', reader.recv(1))

    def test_reader_that_says_nothing_is_left(self):
        self.useFixture(fixtures.MockPatchObject(
            status_server._Handler, 'timeout', 0.01))
        with contextlib.closing(socket.create_connection(
                ('127.0.0.1', port(self.one)), timeout=30)) as reader:
            self.assertEqual(b'', reader.recv(1))

    @testtools.skipUnless(
        importlib.util.find_spec('eventlet'), 'no nova has it any more')
    def test_threads_of_eventlet(self):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', EVENTLET],
            capture_output=True, text=True, timeout=120)
        self.assertEqual((0, 'done\n'), (done.returncode, done.stdout),
                         done.stderr)

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
