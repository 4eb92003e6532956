# SPDX-License-Identifier: Apache-2.0

"""A nova that answers over HTTP, for programs that are run as such."""

import datetime
import http.server
import json
import pathlib
import threading
import urllib.parse

import fixtures
import yaml

from nova_ironic_multihost.tests import clouds

#: The secret that is to be seen nowhere.
SECRET = 'tell-nobody'


def versions(url):
    """What nova answers at its root."""
    return {'versions': [{
        'id': 'v2.1', 'status': 'CURRENT', 'min_version': '2.1',
        'version': '2.100', 'links': [{'rel': 'self', 'href': url}]}]}


class Nova(fixtures.Fixture):
    """Has the compute services east, which is down, and west.

    :ivar services: what nova has of them
    :ivar changes: bodies of the requests that have changed one
    :ivar failures: so many requests are answered by 503 first
    :ivar away: whether the database of a cell is away, that of host far
    :ivar clouds_file: path of a clouds.yaml with the entry fencing
    """

    def __init__(self):
        super().__init__()
        self.services = [clouds.service('east', state='down'),
                         clouds.service('west')]
        self.changes = []
        self.failures = 0
        self.away = False
        self._lock = threading.Lock()

    def _setUp(self):
        nova = self

        class Handler(http.server.BaseHTTPRequestHandler):

            def log_message(self, *args):
                pass

            def answer(self):
                length = int(self.headers.get('Content-Length', 0))
                body = json.loads(self.rfile.read(length) or 'null')
                path = urllib.parse.urlsplit(self.path).path
                code, answer = nova.answer(path, body)
                content = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = answer

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f'http://127.0.0.1:{server.server_port}'
        self.clouds_file = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'clouds.yaml'
        self.clouds_file.write_text(yaml.safe_dump({'clouds': {'fencing': {
            'auth_type': 'http_basic', 'api_timeout': 10,
            'auth': {'username': 'fencing', 'password': SECRET,
                     'endpoint': self.url}}}}))

    def answer(self, path, body):
        """Answer a request: (status, what is to be JSON)."""
        with self._lock:
            if path.startswith('/os-') and self.failures > 0:
                self.failures -= 1
                return 503, {}
            if path == '/os-services':
                return 200, {'services': self.services + [
                    {'binary': 'nova-compute', 'host': 'far',
                     'status': 'UNKNOWN'}] * self.away}
            if path == '/os-hypervisors/detail':
                return (500, {}) if self.away else (200, {'hypervisors': []})
            if path == '/servers/detail':
                return 200, {'servers': []}
            if path.startswith('/os-services/id-'):
                [found] = [s for s in self.services
                           if s['id'] == path.rpartition('/')[2]]
                return (500, {}) if self.away else self.change(found, body)
            if path.startswith('/os-services/'):
                status = {'enable': 'enabled', 'disable': 'disabled',
                          'disable-log-reason': 'disabled'}.get(
                              path.rpartition('/')[2])
                [found] = [s for s in self.services
                           if s['host'] == body['host']]
                return self.change(found, {
                    name: body[name] for name in body
                    if name not in ('host', 'binary')} | (
                        {'status': status} if status else {}))
            if path.strip('/'):
                return 404, {}
            return 200, versions(self.url)

    def change(self, found, body):
        """Change one of the services, and answer."""
        self.changes.append(body)
        found.update(body, updated_at=datetime.datetime.now(
            datetime.UTC).replace(tzinfo=None).isoformat())
        if found['forced_down']:
            found['state'] = 'down'
        return 200, {'service': found}
