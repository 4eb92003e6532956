# SPDX-License-Identifier: Apache-2.0

"""A server for HTTP, with a few pages that anybody may read.

It works with native threads and with eventlet's. A loop over a selector, as in
:meth:`socketserver.BaseServer.serve_forever`, may block all of eventlet's.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
import contextlib
import dataclasses
from http import server
import socket
import socketserver
import sys
import threading
import typing
from urllib import parse

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds for which a reader may keep the server waiting.
PATIENCE = 5

#: Readers at a time. One more displaces the oldest: an answer takes no time.
READERS = 16

#: Seconds after which it listens again, if there is no file for a reader.
PAUSE = 1

#: Seconds to wait until the server's thread ends, or a displaced reader's.
STOP_MARKER = 1


@dataclasses.dataclass(frozen=True)
class HttpPage:
    """An HTTP answer; ``kind`` is its Content-Type."""

    status: int
    kind: str
    body: bytes


def line(status: int, sentence: str) -> HttpPage:
    """Return a page of one line of text."""
    return HttpPage(status, 'text/plain; charset=utf-8',
                    f'{sentence}\n'.encode())


class Server:
    """Answers, from :meth:`start` to :meth:`stop`.

    :param port: 0 for any that is free.
    :param pages: path -> function that makes the page.
    :param benign: paths that answer 200 and not 500 if that fails, as a
        probe would end this process.
    """

    def __init__(self, address: str, port: int,
                 pages: Mapping[str, Callable[[], HttpPage]],
                 benign: Set[str] = frozenset()) -> None:
        self._address = address, port
        self._pages = pages
        self._benign = benign
        self._server: _TCPServer | None = None

    @property
    def port(self) -> int | None:
        """The port on which it listens; None if it does not."""
        own = self._server
        return own.server_address[1] if own is not None else None

    def start(self) -> None:
        """Begin to answer; OSError if nothing can listen there."""
        if self._server is not None:
            return
        try:
            own = _TCPServer(self._address, self._pages, self._benign)
        except UnicodeError as exc:
            # No host has such a name.
            raise OSError(str(exc)) from exc
        try:
            own.begin()
        except RuntimeError as exc:
            own.end()
            raise OSError(str(exc)) from exc
        self._server = own

    def stop(self) -> None:
        """Answer no more, and free the port; again does nothing."""
        own, self._server = self._server, None
        if own is not None:
            own.end()


class _TCPServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens, with a thread for each reader."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = READERS

    def __init__(self, address: tuple[str, int],
                 pages: Mapping[str, Callable[[], HttpPage]],
                 benign: Set[str]) -> None:
        self.pages = pages
        self.benign = benign
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._places = threading.BoundedSemaphore(READERS)
        # Those that have a place and need not go, in the order of coming.
        self._readers: list[socket.socket] = []
        # It may be a name.
        family, _, _, _, where = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__((str(where[0]), int(where[1])), _Handler)

    def begin(self) -> None:
        """Answer from now on; RuntimeError without a free thread."""
        thread = threading.Thread(target=self._answer, daemon=True,
                                  name='ironic-multihost-metrics')
        thread.start()
        self._thread = thread

    def _answer(self) -> None:
        while not self._ended.is_set():
            try:
                request, reader = self.get_request()
            except OSError as exc:
                if not self._ended.wait(PAUSE):
                    LOG.debug('A reader was lost: %s', exc)
                continue
            if not self._has_place():
                self.shutdown_request(request)
                continue
            self._readers.append(request)
            try:
                self.process_request(request, reader)
            except RuntimeError as exc:
                LOG.debug('No thread for a reader: %s', exc)
                self._leave(request)
                self.shutdown_request(request)

    def _has_place(self) -> bool:
        """Take a place for a reader, from another one if need be."""
        if self._places.acquire(blocking=False):
            return True
        # A reader that is slow on purpose keeps nobody away.
        with contextlib.suppress(IndexError, OSError):
            self._readers.pop(0).shutdown(socket.SHUT_RDWR)
        return self._places.acquire(timeout=STOP_MARKER)

    def _leave(self, request: socket.socket) -> None:
        with contextlib.suppress(ValueError):
            self._readers.remove(request)
        self._places.release()

    def process_request_thread(self, request: typing.Any,
                               client_address: typing.Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: object, client_address: object) -> None:
        LOG.debug('A reader got no answer: %s', sys.exc_info()[1])

    def end(self) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            # This ends accept() in the server's thread.
            self.socket.shutdown(socket.SHUT_RDWR)
        # A green thread does not learn of it once the socket is closed.
        if self._thread is not None:
            self._thread.join(STOP_MARKER)
        self.server_close()


class _Handler(server.BaseHTTPRequestHandler):
    """Answers one reader."""

    timeout = PATIENCE
    server: _TCPServer
    server_version = 'nova-ironic-multihost'
    sys_version = ''

    def do_GET(self) -> None:
        path = parse.unquote(self.path.partition('?')[0])
        make = self.server.pages.get(path)
        page = self._made(path, make) if make is not None else line(
            404, 'There is no such page.')
        self.send_response(page.status)
        self.send_header('Content-Type', page.kind)
        self.send_header('Content-Length', str(len(page.body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(page.body)

    do_HEAD = do_GET

    def _made(self, path: str, make: Callable[[], HttpPage]) -> HttpPage:
        try:
            return make()
        except Exception:
            LOG.exception('A page cannot be made.')
            return line(200 if path in self.server.benign else 500,
                        'It cannot be said; see the log.')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: somebody asks every few seconds."""
