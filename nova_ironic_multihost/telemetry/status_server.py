# SPDX-License-Identifier: Apache-2.0

"""The metrics, health and report of a compute service, over HTTP.

The metrics for Prometheus (reference/metrics.rst) are made of one snapshot for
each reader; none is of a single node. A Guru Meditation Report (SIGUSR2) has
the report.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import contextlib
from http import server
from importlib import metadata
import socket
import socketserver
import sys
import threading
import typing
from urllib import parse
import weakref
import zlib

from oslo_log import log as logging
from oslo_reports import guru_meditation_report
import prometheus_client
from prometheus_client import core as families
from prometheus_client import utils

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.health import HealthState
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import ownership

LOG = logging.getLogger(__name__)

#: This package, for its version.
DISTRIBUTION = 'nova-ironic-multihost'

PREFIX = 'nova_ironic_multihost'

#: Seconds for which a reader may keep the server waiting.
PATIENCE = 5

#: Readers at a time. One more displaces the oldest: an answer takes no time.
READERS = 16

#: Seconds after which it listens again, if there is no file for a reader.
PAUSE = 1

#: Seconds to wait until the server's thread ends, or a displaced reader's.
GRACE = 1

#: Values of the label ``result``.
MOVES = {'adopted': Event.ADOPTED, 'pulled': Event.PULLED,
         'failed': Event.MOVE_FAILED}

TAKEOVERS = {'done': Event.TAKEN_OVER, 'failed': Event.TAKEOVER_FAILED}

TITLE = 'Ironic multi-host'

#: The most uuids that are shown of each kind of pending work.
SHOWN = 20

Report = guru_meditation_report.TextGuruMeditation


class HttpPage(typing.NamedTuple):
    """An HTTP answer; ``kind`` is its Content-Type."""

    status: int
    kind: str
    body: bytes


def line(status: int, sentence: str) -> HttpPage:
    """Return a page of one line of text."""
    return HttpPage(status, 'text/plain; charset=utf-8',
                    f'{sentence}\n'.encode())


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers, from :meth:`start` to :meth:`stop`, each reader in a thread.

    A loop over a selector, as :meth:`socketserver.BaseServer.serve_forever`,
    may block all threads of eventlet.

    :param port: 0 for any that is free.
    :param pages: path -> function that makes the page.
    :param benign: paths that answer 200 if that fails: a probe would end us.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = READERS

    def __init__(self, address: str, port: int,
                 pages: Mapping[str, Callable[[], HttpPage]],
                 benign: Set[str] = frozenset()) -> None:
        # The base class opens the port: start() calls it.
        self.where = address, port
        self.pages = pages
        self.benign = benign
        self._thread: threading.Thread | None = None
        self._places = threading.BoundedSemaphore(READERS)
        # Those that have a place and need not go, in the order of coming.
        self._readers: list[socket.socket] = []

    @property
    def port(self) -> int | None:
        """The port on which it listens; None if it does not."""
        return self.server_address[1] if self._thread is not None else None

    def start(self) -> None:
        """Begin to answer; OSError if nothing can listen there."""
        if self._thread is not None:
            return
        try:
            # It may be a name.
            self.address_family, _, _, _, where = socket.getaddrinfo(
                *self.where, type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE)[0]
            super().__init__((str(where[0]), int(where[1])), _Handler)
        except UnicodeError as exc:
            # No host has such a name.
            raise OSError(str(exc)) from exc
        self._ended = threading.Event()
        thread = threading.Thread(target=self._answer, daemon=True,
                                  name='ironic-multihost-metrics')
        try:
            thread.start()
        except RuntimeError as exc:
            self.server_close()
            raise OSError(str(exc)) from exc
        self._thread = thread

    def stop(self) -> None:
        """Answer no more, and free the port; again does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        with contextlib.suppress(OSError):
            # This ends accept() in the server's thread.
            self.socket.shutdown(socket.SHUT_RDWR)
        # A green thread does not learn of it once the socket is closed.
        thread.join(GRACE)
        self.server_close()

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
        return self._places.acquire(timeout=GRACE)

    def _leave(self, request: socket.socket) -> None:
        with contextlib.suppress(ValueError):
            self._readers.remove(request)
        self._places.release()

    def process_request_thread(self, request: typing.Any,
                               client_address: typing.Any) -> None:
        """Answer a reader, and give its place to others."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error of a reader for developers only."""
        LOG.debug('A reader got no answer: %s', sys.exc_info()[1])


class _Handler(server.BaseHTTPRequestHandler):
    """Answers one reader."""

    timeout = PATIENCE
    server: Server
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


class StatusServer:
    """Shows metrics, health and a report.

    The paths for probes contain the host's name: another nova-compute that
    has the port answers 404.

    :param where: (address, port) of the server, None for none.
    """

    def __init__(self, host: str, picture: Callable[[], StatusSnapshot],
                 verdict: Callable[[], HealthState],
                 lease: Callable[[], HealthState],
                 where: tuple[str, int] | None) -> None:
        self._picture = picture
        exposition = Exposition(picture, version())
        health = f'/healthz/{host}'
        self.server = Server(*where, {
            '/metrics': lambda: HttpPage(
                200, prometheus_client.CONTENT_TYPE_LATEST, exposition.text()),
            health: lambda: _page(verdict()),
            f'/leasez/{host}': lambda: _page(lease()),
        }, {health}) if where is not None else None

    def open(self, required: bool = False) -> list[str]:
        """Start the server; return sentences on why nova must not start.

        :param required: only a probe can end this service before a takeover.
        """
        if self.server is None:
            return []
        try:
            self.server.start()
        except OSError as exc:
            address, port = self.server.where
            if required:
                return [
                    'With [ironic_multihost]instance_takeover = down and no '
                    'watchdog of systemd only a probe of this compute service '
                    'ends it when it is cut off, and nothing can listen for '
                    f'that on {address}, port {port}: {exc}. Set '
                    '[ironic_multihost]metrics_address and metrics_port to '
                    'what is free on this machine, for each nova-compute '
                    'another one (documentation, page "A watchdog instead of '
                    'fencing"); or set instance_takeover to forced_down on '
                    'all hosts, and fence.']
            LOG.warning(
                'Metrics and health of this compute service cannot be read, '
                'as nothing can listen on %s, port %d: %s. Set '
                '[ironic_multihost]metrics_address and metrics_port to what '
                'is free on this machine, for each nova-compute another one, '
                'and restart nova-compute. All else goes on.',
                address, port, exc)
        return []

    def close(self) -> None:
        """Answer no more."""
        if self.server:
            self.server.stop()

    def report(self) -> str:
        """Return the section of a report."""
        return '\n'.join(report_lines(self._picture()))


def _page(verdict: HealthState) -> HttpPage:
    return line(200 if verdict.well else 503, verdict.why)


def version() -> str:
    """Return the version of this package, '' if it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ''


class Exposition:
    """Writes a snapshot as metrics, in the place of a registry."""

    def __init__(
        self, picture: Callable[[], StatusSnapshot], version: str
    ) -> None:
        self._picture = picture
        self._version = version

    def text(self) -> bytes:
        """Return the metrics of this moment."""
        return bytes(prometheus_client.generate_latest(self))

    def collect(self) -> Iterator[families.Metric]:
        """Yield the metrics of this moment."""
        picture = self._picture()
        yield families.InfoMetricFamily(
            PREFIX, 'Version of this package.',
            value={'version': self._version})
        yield from _of_nodes(picture)
        yield from _of_events(picture)
        yield from _of_work(picture)
        yield _of_waits(picture)


def _of_nodes(picture: StatusSnapshot) -> Iterator[families.Metric]:
    if picture.view is not None and not picture.ending:
        members = picture.view.members
        yield _gauge('members', 'Compute services that share the nodes, as '
                     'this one sees them.', len(members))
        yield _gauge('members_checksum', 'CRC-32 of their names, equal on '
                     'hosts that see equal members.',
                     zlib.crc32('\n'.join(sorted(members)).encode()))
    if picture.reasons is not None:
        nodes = families.GaugeMetricFamily(
            f'{PREFIX}_nodes',
            'Nodes, by why this compute service manages them or not.',
            labels=['reason'])
        for reason, number in ownership.count_reasons(picture.reasons).items():
            nodes.add_metric([reason.name.lower()], number)
        yield nodes
        yield _gauge('brake_engaged', 'Whether no node is taken for deleted, '
                     'as too many have vanished.', picture.braked)


def _of_events(picture: StatusSnapshot) -> Iterator[families.Metric]:
    counts = picture.totals.counts
    for name, text, results in (
            ('moves', 'Free nodes that came to this compute service.', MOVES),
            ('takeovers', 'Instances that were taken over.', TAKEOVERS)):
        counter = families.CounterMetricFamily(
            f'{PREFIX}_{name}', text, labels=['result'])
        for result, event in results.items():
            counter.add_metric([result], counts[event])
        yield counter
    yield families.CounterMetricFamily(
        f'{PREFIX}_peer_polls_failed', 'Peer polls that have failed.',
        value=counts[Event.PEER_POLL_FAILED])
    yield families.CounterMetricFamily(
        f'{PREFIX}_operations_refused',
        'Operations that were refused, as their instance had moved.',
        value=counts[Event.REFUSED])
    yield _gauge('takeover_oldest_pending_seconds', 'For how long the oldest '
                 'takeover has been pending; 0 if none is.',
                 picture.pending_seconds)


def _of_work(picture: StatusSnapshot) -> Iterator[families.Metric]:
    for name, work, what in (
            ('listing', Work.LISTING, 'asking Ironic what has changed'),
            ('audit', Work.AUDIT, 'an audit of all nodes')):
        seconds = picture.totals.turns[work].seconds
        if seconds is not None:
            yield _gauge(f'{name}_seconds',
                         f'How long {what} took the last time.', seconds)
        if not picture.ending:
            yield _gauge(f'{name}_age_seconds',
                         f'Seconds since {what} last came to its end.',
                         picture.age(work))


def _of_waits(picture: StatusSnapshot) -> families.Metric:
    family = families.HistogramMetricFamily(
        f'{PREFIX}_wait_seconds',
        'How long builds, deletes, moves and takeovers waited.',
        labels=['operation'])
    for wait, histogram in picture.totals.waits.items():
        family.add_metric(
            [wait.value],
            [(utils.floatToGoString(bound), count) for bound, count
             in zip(counters.BOUNDS, histogram.counts)], histogram.seconds)
    return family


def _gauge(name: str, text: str, value: float) -> families.Metric:
    return families.GaugeMetricFamily(f'{PREFIX}_{name}', text, value=value)


def report_lines(picture: StatusSnapshot) -> Iterator[str]:
    """Yield the lines of the section."""
    yield f'Compute service: {picture.host}'
    yield f'Health: {picture.verdict.why}'
    yield from _members(picture)
    yield from _nodes(picture)
    yield from _pending(picture)
    yield 'Work:'
    for work in Work:
        yield f'  {work.value}: {_turns(picture, work)}'
    asking = picture.totals.oldest_asking
    if asking is not None:
        yield (f'  a request to Ironic has been under way for '
               f'{picture.at - asking:.1f} s')
    yield 'Since the process began:'
    for event, number in picture.totals.counts.items():
        yield f'  {number} times {event.value}'


def _members(picture: StatusSnapshot) -> Iterator[str]:
    if picture.view is None:
        yield 'Members: not known yet'
        return
    members = sorted(
        service.host for key, service in picture.view.services.items()
        if picture.view.member(key))
    yield f'Members: {len(picture.view.members)}'
    yield from (f'  {host}' for host in members)


def _nodes(picture: StatusSnapshot) -> Iterator[str]:
    if picture.reasons is None:
        yield 'Nodes: not known yet'
        return
    yield f'Nodes: {len(picture.reasons)}'
    for reason, number in ownership.count_reasons(picture.reasons).items():
        if number:
            yield f'  {number} {reason.value}'
    yield 'In transition:'
    yield from [f'  {reason.value}: for example {node}' for reason, node
                in picture.moving().items()] or ['  nothing']
    yield (f'Brake of vanished nodes: engaged, {picture.missing} are missing'
           if picture.braked else 'Brake of vanished nodes: not engaged')


def _pending(picture: StatusSnapshot) -> Iterator[str]:
    for kind in Pending:
        waiting = picture.waiting(kind)
        yield f'{kind.value.capitalize()}: {len(waiting)}'
        yield from (f'  {uuid}, for {seconds:.0f} s'
                    for uuid, seconds in waiting[:SHOWN])


def _turns(picture: StatusSnapshot, work: Work) -> str:
    turns = picture.totals.turns[work]
    if turns.succeeded is None:
        return 'not done yet' + (
            '' if turns.sign is None
            else f', last sign of it {picture.at - turns.sign:.1f} s ago')
    return (f'done {picture.age(work):.1f} s ago, took {turns.seconds:.1f} s, '
            f'last sign of it {picture.at - (turns.sign or 0):.1f} s ago')


class ReportSection:
    """A section of the report, from :meth:`begin` to :meth:`end`.

    :param text: bound method, held weakly. A signal handler calls it, so it
        must take no lock.
    """

    def __init__(self, title: str, text: Callable[[], str]) -> None:
        self._title = title
        self._text = weakref.WeakMethod(text)

    def begin(self) -> None:
        """Add the section, once."""
        self.end()
        Report.register_section(self._title, self._generate)

    def end(self) -> None:
        """Remove the section."""
        sections = getattr(Report, 'persistent_sections', [])
        sections[:] = [pair for pair in sections if pair[1] != self._generate]

    def _generate(self) -> str:
        text = self._text()
        try:
            return text() if text is not None else 'It has ended.'
        except Exception as exc:  # noqa: BLE001
            return f'This section has failed: {exc!r}'
