# SPDX-License-Identifier: Apache-2.0

"""What stands between nova and Ironic: an HTTP proxy that a test operates.

It passes every request on to the real Ironic and the answer back, counts
them, and does what the test says: answers itself, waits, or does something
first. So a test shows nova an Ironic that refuses, lies or is slow.
"""

import contextlib
import dataclasses
import http.client
from http import server
import json
import re
import socket
import threading
from urllib import parse

import fixtures

from nova_ironic_multihost.tests.functional import hold

#: Headers that belong to one connection and are not passed on.
_OF_CONNECTION = frozenset({
    'connection', 'content-length', 'keep-alive', 'transfer-encoding',
    'date', 'server'})


@dataclasses.dataclass(frozen=True)
class _Rule:
    """What happens to the requests that match.

    :ivar method: HTTP method.
    :ivar path: pattern that the whole path matches, without the query.
    :ivar body: pattern found somewhere in the body.
    :ivar act: called with no argument before the request is passed on;
        returns None, or (status, JSON) to be answered instead.
    """

    method: str
    path: re.Pattern
    body: re.Pattern
    act: object

    def matches(self, method, path, body):
        return (method == self.method and self.path.fullmatch(path)
                and self.body.search(body))


class Proxy(fixtures.Fixture):
    """An HTTP proxy in front of an API.

    :ivar endpoint: URL to use instead of the API's.
    :ivar requests: (method, path) of all that came, in their order.
    """

    def __init__(self, endpoint):
        """Stand in front of this endpoint, a URL without path."""
        self._behind = parse.urlsplit(endpoint).netloc
        self._rules = []
        self.requests = []

    def _setUp(self):
        proxy = self

        class Handler(_Handler):
            def answer(self, method, path, body):
                return proxy._answer(method, path, body)

            behind = self._behind

        http_server = server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.endpoint = f'http://127.0.0.1:{http_server.server_port}'

        def serve():
            # Not serve_forever: it polls, and eventlet's other threads stand
            # still if socketserver was imported first, as with nova 32.
            with contextlib.suppress(OSError):
                while True:
                    http_server.process_request(*http_server.get_request())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self.addCleanup(http_server.server_close)
        self.addCleanup(thread.join)
        self.addCleanup(http_server.socket.shutdown, socket.SHUT_RDWR)

    def _answer(self, method, path, body):
        self.requests.append((method, path))
        for rule in list(self._rules):
            if rule.matches(method, path, body):
                return rule.act()
        return None

    def answer(self, method, path, status, document):
        """Answer these requests here instead of in Ironic.

        :param path: pattern of the whole path.
        :param document: what to answer, as JSON.
        """
        self._add(method, path, lambda: (status, document))

    def hold(self, method, path, body=''):
        """Let these requests wait; return the :class:`.hold.Hold`."""
        held = hold.Hold()
        self._add(method, path, held.wait_here, body)
        self.addCleanup(held.release)
        return held

    def before(self, method, path, act, body=''):
        """Do something before the first of these requests passes."""
        first = threading.Lock()

        def once():
            if first.acquire(blocking=False):
                act()

        self._add(method, path, once, body)

    def _add(self, method, path, act, body=''):
        # The latest word counts.
        self._rules.insert(
            0, _Rule(method, re.compile(path), re.compile(body), act))

    def open(self):
        """Pass everything on from now on."""
        self._rules.clear()


class _Handler(server.BaseHTTPRequestHandler):
    """One connection; asks :class:`Gate` about each request."""

    protocol_version = 'HTTP/1.1'

    def log_message(self, *args):
        """Say nothing on stderr."""

    def _handle(self):
        length = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(length)
        path = parse.urlsplit(self.path).path
        answer = self.answer(self.command, path, body.decode())
        if answer is None:
            status, headers, body = self._pass_on(body)
        else:
            status, document = answer
            headers = [('Content-Type', 'application/json')]
            body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, body):
        # The name that was asked for stays, so that Ironic's links lead here.
        headers = {name: value for name, value in self.headers.items()
                   if name.lower() not in _OF_CONNECTION}
        connection = http.client.HTTPConnection(self.behind)
        try:
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            return response.status, [
                (name, value) for name, value in response.getheaders()
                if name.lower() not in _OF_CONNECTION], response.read()
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _handle
