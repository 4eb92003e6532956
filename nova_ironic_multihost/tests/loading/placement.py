# SPDX-License-Identifier: Apache-2.0

"""The version document of placement, and nothing behind it."""

import http.server
import json
import threading

import fixtures

VERSIONS = {'versions': [{
    'id': 'v1.0',
    'min_version': '1.0',
    'max_version': '1.39',
    'status': 'CURRENT',
    'links': [{'rel': 'self', 'href': ''}],
}]}


class _Handler(http.server.BaseHTTPRequestHandler):

    def do_GET(self):
        body = json.dumps(VERSIONS).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


class VersionDocument(fixtures.Fixture):
    """Serves what nova-compute asks of placement before it loads a driver.

    :ivar url: where it is served, on 127.0.0.1.
    """

    def _setUp(self):
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
        self.addCleanup(server.server_close)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.shutdown)
        self.url = f'http://127.0.0.1:{server.server_port}'
