# SPDX-License-Identifier: Apache-2.0

import http.server
import os
import pathlib
import sys
import threading

import fixtures
from oslotest import base

from lab import errors
from lab import processes
from lab import services
from lab import settings


class AnswersTestCase(base.BaseTestCase):

    def ready(self, code):
        """Whether a service that answers with this code is ready."""
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(code)
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        port = server.server_port
        return services.Service(
            'api', (), url=f'http://127.0.0.1:{port}/', port=port).ready()

    def test_any_answer_but_a_server_error_will_do(self):
        for code, expected in ((200, True), (300, True), (401, True),
                               (503, False)):
            self.assertEqual(expected, self.ready(code), code)

    def test_nobody_listens(self):
        with http.server.HTTPServer(('127.0.0.1', 0), None) as server:
            port = server.server_port
        self.assertFalse(services.Service('api', (), port=port).ready())

    def test_without_a_port_it_is_ready_at_once(self):
        self.assertTrue(services.Service('nova-conductor', ()).ready())


class WaitTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.processes = processes.Processes(
            self.top / 'run', self.top / 'logs')
        self.addCleanup(self.processes.sweep)

    def spawn(self, script):
        return self.processes.spawn(
            'api', [sys.executable, '-c', script], dict(os.environ))

    def test_service_that_ends_is_named_with_the_end_of_its_log(self):
        self.spawn('raise SystemExit("no database")').wait()
        error = self.assertRaises(
            errors.LabError, services.wait, self.processes,
            [services.Service('api', ())])
        self.assertIn('api ended', str(error))
        self.assertIn('no database', str(error))

    def test_service_that_does_not_listen_in_time(self):
        self.spawn('import time; time.sleep(600)')
        with http.server.HTTPServer(('127.0.0.1', 0), None) as server:
            port = server.server_port
        error = self.assertRaises(
            errors.LabError, services.wait, self.processes,
            [services.Service('api', (), port=port)], patience=0)
        self.assertIn('api is not ready', str(error))

    def test_each_ready_service_is_told(self):
        self.spawn('import time; time.sleep(600)')
        told = []
        services.wait(self.processes, [services.Service('api', ())],
                      done=lambda service, seconds: told.append(service.name))
        self.assertEqual(['api'], told)


class WatchedTestCase(base.BaseTestCase):

    def test_a_compute_under_a_supervisor(self):
        lab = settings.load('/lab', 20000)
        plain = services.compute(lab, 'compute-1')
        found = services.watched(lab, plain, 8)
        self.assertEqual(
            ('-m', 'lab.supervisor', '8', *plain.argv), found.argv[1:])
        self.assertEqual(
            {'PYTHONPATH': str(lab.repository)}, found.environment)
        self.assertEqual(plain.name, found.name)


class EnvironmentTestCase(base.BaseTestCase):

    def test_nothing_of_the_caller_leaks_in(self):
        for name in ('http_proxy', 'OS_PASSWORD', 'PYTHONPATH'):
            self.useFixture(fixtures.EnvironmentVariable(name, 'x'))
        found = services.environment(settings.load('/lab', 20000))
        self.assertNotIn('x', found.values())


class NovaApiTestCase(base.BaseTestCase):

    def test_one_thread_where_it_runs_under_eventlet(self):
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for release in settings.RELEASES:
            argv = services.nova_api(
                settings.load(directory, release=release)).argv
            threads = argv[argv.index('--threads') + 1]
            self.assertEqual(
                release != settings.DEFAULT_RELEASE, threads == '1', release)
