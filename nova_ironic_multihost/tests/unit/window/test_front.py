# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The window of a compute service: a scrape of it, over HTTP."""

from oslotest import base

from nova_ironic_multihost.core import health
from nova_ironic_multihost.tests.unit.window import pictures
from nova_ironic_multihost.tests.unit.window import test_exposition
from nova_ironic_multihost.tests.unit.window import test_server
from nova_ironic_multihost.window import front
from nova_ironic_multihost.window import server


class WindowTestCase(base.BaseTestCase):

    verdict = lease = pictures.WELL

    def window(self, where):
        one = front.Window(
            lambda: pictures.of(view=pictures.VIEW), lambda: self.verdict,
            lambda: self.lease, where)
        self.addCleanup(one.close)
        one.open()
        return one

    def test_metrics(self):
        one = self.window(('127.0.0.1', 0))
        status, kind, body = test_server.get(one.server, '/metrics')
        self.assertEqual(200, status)
        self.assertTrue(kind.startswith('text/plain; version='), kind)
        found = test_exposition.parsed(body.decode())
        self.assertEqual(2, found['members',])
        self.assertEqual(1, found['info', front.version()])

    def test_health(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(
            (200, b'This compute service is well.\n'),
            test_server.get(one.server, '/healthz')[::2])
        self.verdict = health.Verdict(False, 'It hangs.')
        self.assertEqual(
            (503, b'It hangs.\n'),
            test_server.get(one.server, '/healthz')[::2])

    def test_lease(self):
        one = self.window(('127.0.0.1', 0))
        self.assertEqual(200, test_server.get(one.server, '/leasez')[0])
        self.lease = health.Verdict(False, 'The lease has run out.')
        self.assertEqual(
            (503, b'The lease has run out.\n'),
            test_server.get(one.server, '/leasez')[::2])
        self.assertEqual(200, test_server.get(one.server, '/healthz')[0])

    def test_health_that_is_not_known_ends_nobody(self):
        one = front.Window(None, lambda: self.verdict.nothing,
                           lambda: self.lease, ('127.0.0.1', 0))
        self.addCleanup(one.close)
        one.open()
        for path, status in (('/healthz', 200), ('/metrics', 500)):
            with self.assertLogs(server.__name__, 'ERROR'):
                found, _, body = test_server.get(one.server, path)
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
        self.assertTrue(front.version())
        self.addCleanup(setattr, front, 'DISTRIBUTION', front.DISTRIBUTION)
        front.DISTRIBUTION = 'no-such-distribution'
        self.assertEqual('', front.version())
