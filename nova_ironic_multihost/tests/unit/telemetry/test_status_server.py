# SPDX-License-Identifier: Apache-2.0

"""The window of a compute service: a scrape of it, over HTTP."""

from oslotest import base

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.telemetry import http_server
from nova_ironic_multihost.telemetry import status_server
from nova_ironic_multihost.tests.unit.telemetry import pictures
from nova_ironic_multihost.tests.unit.telemetry import test_exposition
from nova_ironic_multihost.tests.unit.telemetry import test_http_server


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
        status, kind, body = test_http_server.get(one.server, '/metrics')
        self.assertEqual(200, status)
        self.assertTrue(kind.startswith('text/plain; version='), kind)
        found = test_exposition.parsed(body.decode())
        self.assertEqual(2, found['members',])
        self.assertEqual(1, found['info', status_server.version()])

    def test_health(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(
            (200, b'This compute service is well.\n'),
            test_http_server.get(one.server, '/healthz/me-1')[::2])
        self.verdict = health.HealthState(False, 'It hangs.')
        self.assertEqual(
            (503, b'It hangs.\n'),
            test_http_server.get(one.server, '/healthz/me-1')[::2])

    def test_lease(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(
            200, test_http_server.get(one.server, '/leasez/me-1')[0])
        self.lease = health.HealthState(False, 'The lease has run out.')
        self.assertEqual(
            (503, b'The lease has run out.\n'),
            test_http_server.get(one.server, '/leasez/me-1')[::2])
        self.assertEqual(
            200, test_http_server.get(one.server, '/healthz/me-1')[0])

    def test_another_answers_no_probe_of_this_one(self):
        """As when both of a machine were given one port."""
        one = self.window(('127.0.0.1', 0))
        for host in '', '/', '/me', '/me-2', '/ME-1', '/me-1/', '/me-1/x':
            for page in '/leasez', '/healthz':
                self.assertEqual(
                    404, test_http_server.get(one.server, page + host)[0], host
                )

    def test_host_with_letters_that_are_special_in_a_url(self):
        one = self.window(('127.0.0.1', 0), 'a b/c?d')
        self.assertEqual(200, test_http_server.get(
            one.server, '/leasez/a%20b%2Fc%3Fd')[0])

    def test_host_that_is_an_address(self):
        # The kubelet asks as it is told, and encodes nothing.
        one = self.window(('127.0.0.1', 0), host='2001:db8::1')
        for path in '/leasez/2001:db8::1', '/leasez/2001%3Adb8%3A%3A1':
            self.assertEqual(200, test_http_server.get(one.server, path)[0])

    def port_in_use(self):
        """Return a window whose port another one has."""
        port = self.window(('127.0.0.1', 0), 'me-2').server.port
        return status_server.StatusServer(
            'me-1', None, None, None, ('127.0.0.1', port))

    def test_port_in_use_is_said_and_nothing_else(self):
        one = self.port_in_use()
        with self.assertLogs(status_server.__name__, 'WARNING') as logs:
            self.assertEqual([], one.open())
        self.assertIn('metrics_port', logs.output[0])
        self.assertIn(str(one._where[1]), logs.output[0])
        self.assertIsNone(one.server.port)
        one.close()

    def test_port_in_use_where_only_a_probe_ends_it(self):
        one = self.port_in_use()
        with self.assertNoLogs(status_server.__name__):
            [sentence] = one.open(required=True)
        for words in ('metrics_port', 'metrics_address', 'in use',
                      'forced_down', str(one._where[1])):
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
            with self.assertLogs(http_server.__name__, 'ERROR'):
                found, _, body = test_http_server.get(one.server, path)
            self.assertEqual(status, found)
            self.assertIn(b'cannot be said', body)

    def test_closed_it_answers_no_more(self):
        one = self.window(('127.0.0.1', 0))
        one.close()
        self.assertIsNone(one.server.port)

    def test_nothing_listens_by_default(self):
        one = self.window(None)
        self.assertIsNone(one.server)
        self.assertIn('Compute service: Me', one.report())

    def test_version(self):
        self.assertTrue(status_server.version())
        self.addCleanup(
            setattr, status_server, 'DISTRIBUTION', status_server.DISTRIBUTION)
        status_server.DISTRIBUTION = 'no-such-distribution'
        self.assertEqual('', status_server.version())
