# SPDX-License-Identifier: Apache-2.0

"""The metrics, health and report of a compute service, over HTTP.

The metrics for Prometheus (reference/metrics.rst) are made of one snapshot for
each reader; none is of a single node. A Guru Meditation Report (SIGUSR2) has
the report.
"""

import collections
from collections import abc
import contextlib
from http import server
from importlib import metadata
import socket
import socketserver
import sys
import threading
import typing
from urllib import parse
import zlib

from oslo_log import log as logging
import prometheus_client
from prometheus_client import core as families

from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.health import HealthState
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import ownership

LOG = logging.getLogger(__name__)

#: This package, for its version.
DISTRIBUTION = 'nova-ironic-multihost'

PREFIX = 'nova_ironic_multihost'

#: Readers at a time: each has a file and a thread of nova-compute.
READERS = 16

#: Seconds for which a reader may say nothing.
PATIENCE = 5

#: Seconds after which it listens again, if there is no file for a reader.
PAUSE = 1

#: Seconds to wait until the server's thread ends.
GRACE = 1

#: The path of the health, before the name of the host.
HEALTH = '/healthz/'

#: Upper bounds of the buckets of a wait, in seconds.
BOUNDS = (1, 10, 30, 60, 90, 120, 300, 600, 1800, 3600, 14400)

#: Values of the label ``result``.
MOVES = {'adopted': Event.ADOPTED, 'pulled': Event.PULLED,
         'failed': Event.MOVE_FAILED}

TAKEOVERS = {'done': Event.TAKEN_OVER, 'failed': Event.TAKEOVER_FAILED}

#: The most uuids that are shown of each kind of pending work.
SHOWN = 20


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Answers readers until :meth:`stop`, each in a thread.

    One reader too many replaces the oldest, which may send a byte now and then
    for ever.

    :param where: address or name, and port; 0 for any that is free.
    :param pages: path -> function that returns a status and a text.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, where: tuple[str, int],
                 pages: abc.Mapping[str, abc.Callable[[], tuple[int, str]]]
                ) -> None:
        self.pages = pages
        self._readers: collections.deque[socket.socket] = collections.deque()
        self.address_family, _, _, _, address = socket.getaddrinfo(
            *where, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        super().__init__((str(address[0]), int(address[1])), _Handler)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._answer, daemon=True,
                                        name='ironic-multihost-metrics')
        self._thread.start()

    def stop(self) -> None:
        """Answer no more, and free the port."""
        self._ended.set()
        with contextlib.suppress(OSError):
            # This ends accept() in the server's thread.
            self.socket.shutdown(socket.SHUT_RDWR)
        # A green thread does not learn of it once the socket is closed.
        self._thread.join(GRACE)
        self.server_close()

    def _answer(self) -> None:
        # A loop over a selector, as serve_forever(), may block all threads of
        # eventlet.
        while not self._ended.is_set():
            try:
                self.process_request(*self.get_request())
            except (OSError, RuntimeError) as exc:
                # There is no file or no thread for a reader.
                if not self._ended.wait(PAUSE):
                    LOG.debug('A reader was lost: %s', exc)

    def process_request(self, request: typing.Any, client_address: typing.Any
                        ) -> None:
        """Start the thread of a reader; may raise RuntimeError."""
        self._readers.append(request)
        with contextlib.suppress(OSError, IndexError):
            if len(self._readers) > READERS:
                # This ends recv() in its thread.
                self._readers.popleft().shutdown(socket.SHUT_RDWR)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.shutdown_request(request)
            raise

    def shutdown_request(self, request: typing.Any) -> None:
        """Close the connection of a reader."""
        with contextlib.suppress(ValueError):
            self._readers.remove(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error of a reader for developers only."""
        LOG.debug('A reader got no answer: %s', sys.exc_info()[1])


class _Handler(server.BaseHTTPRequestHandler):
    """Answers one reader."""

    timeout = PATIENCE
    server: Server
    server_version = DISTRIBUTION
    sys_version = ''

    def do_GET(self) -> None:
        path = parse.unquote(self.path.partition('?')[0])
        status, text = self._page(path)
        body = text.encode()
        self.send_response(status)
        self.send_header('Content-Type', prometheus_client.CONTENT_TYPE_LATEST)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    do_HEAD = do_GET

    def _page(self, path: str) -> tuple[int, str]:
        if path not in self.server.pages:
            return 404, 'There is no such page.\n'
        try:
            return self.server.pages[path]()
        except Exception:
            LOG.exception('A page cannot be made.')
            return (200 if path.startswith(HEALTH) else 500,
                    'It cannot be said; see the log.\n')

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: somebody asks every few seconds."""


class StatusServer:
    """Shows metrics, health and a report.

    The paths for probes contain the host's name: another nova-compute that
    has the port answers 404.

    :param where: (address, port) of the server, None for none.
    :ivar server: the :class:`Server` while it runs.
    :ivar waits: of :class:`Exposition`.
    """

    def __init__(self, host: str, picture: abc.Callable[[], StatusSnapshot],
                 verdict: abc.Callable[[], HealthState],
                 lease: abc.Callable[[], HealthState],
                 where: tuple[str, int] | None) -> None:
        self._picture = picture
        self._where = where
        self._verdict = verdict
        exposition = Exposition(
            picture, metadata.version(DISTRIBUTION))
        self.waits = exposition.waits
        self._pages = {
            '/metrics': lambda: (200, exposition.text()),
            f'{HEALTH}{host}': lambda: _page(verdict()),
            f'/leasez/{host}': lambda: _page(lease()),
        }
        self.server: Server | None = None

    def open(self, required: bool = False) -> list[str]:
        """Start the server; return sentences on why nova must not start.

        :param required: only a probe can end this service before a takeover.
        """
        if self._where is None:
            return []
        try:
            self.server = Server(self._where, self._pages)
        except OSError as exc:
            address, port = self._where
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
        """Return the section of a report; a signal handler calls it."""
        try:
            return '\n'.join(
                report_lines(self._picture(), self._verdict()))
        except Exception as exc:  # noqa: BLE001
            return f'This section has failed: {exc!r}'


def _page(verdict: HealthState) -> tuple[int, str]:
    return 200 if verdict.well else 503, f'{verdict.why}\n'


class Exposition:
    """Writes a snapshot as metrics, in the place of a registry.

    :ivar waits: the histogram of the waits that have ended.
    """

    def __init__(
        self, picture: abc.Callable[[], StatusSnapshot], version: str
    ) -> None:
        self._picture = picture
        self._version = version
        self.waits = prometheus_client.Histogram(
            f'{PREFIX}_wait_seconds',
            'How long builds, deletes, moves and takeovers waited.',
            ['operation'], registry=None, buckets=BOUNDS)
        for wait in Wait:
            self.waits.labels(wait.value)

    def text(self) -> str:
        """Return the metrics of this moment."""
        return str(prometheus_client.generate_latest(self), 'utf-8')

    def collect(self) -> abc.Iterator[families.Metric]:
        """Yield the metrics of this moment."""
        picture = self._picture()
        yield families.InfoMetricFamily(
            PREFIX, 'Version of this package.',
            value={'version': self._version})
        yield from _of_nodes(picture)
        yield from _of_events(picture)
        yield from _of_work(picture)
        for family in self.waits.collect():
            # No other metric says when its values began.
            family.samples = [one for one in family.samples
                              if not one.name.endswith('_created')]
            yield family


def _of_nodes(picture: StatusSnapshot) -> abc.Iterator[families.Metric]:
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


def _of_events(picture: StatusSnapshot) -> abc.Iterator[families.Metric]:
    counts = picture.counts
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


def _of_work(picture: StatusSnapshot) -> abc.Iterator[families.Metric]:
    for name, work, what in (
            ('listing', Work.LISTING, 'asking Ironic what has changed'),
            ('audit', Work.AUDIT, 'an audit of all nodes')):
        seconds = picture.turns[work].seconds
        if seconds is not None:
            yield _gauge(f'{name}_seconds',
                         f'How long {what} took the last time.', seconds)
        if not picture.ending:
            yield _gauge(f'{name}_age_seconds',
                         f'Seconds since {what} last came to its end.',
                         picture.age(work))


def _gauge(name: str, text: str, value: float) -> families.Metric:
    return families.GaugeMetricFamily(f'{PREFIX}_{name}', text, value=value)


def report_lines(picture: StatusSnapshot, verdict: HealthState
                ) -> abc.Iterator[str]:
    """Yield the lines of the section."""
    yield f'Compute service: {picture.host}'
    yield f'Health: {verdict.why}'
    yield from _members(picture)
    yield from _nodes(picture)
    yield from _pending(picture)
    yield 'Work:'
    for work in Work:
        yield f'  {work.value}: {_turns(picture, work)}'
    asking = picture.asking
    if asking is not None:
        yield (f'  a request to Ironic has been under way for '
               f'{picture.at - asking:.1f} s')
    yield 'Since the process began:'
    for event, number in picture.counts.items():
        yield f'  {number} times {event.value}'


def _members(picture: StatusSnapshot) -> abc.Iterator[str]:
    if picture.view is None:
        yield 'Members: not known yet'
        return
    members = sorted(
        service.host for key, service in picture.view.services.items()
        if picture.view.member(key))
    yield f'Members: {len(picture.view.members)}'
    yield from (f'  {host}' for host in members)


def _nodes(picture: StatusSnapshot) -> abc.Iterator[str]:
    if picture.reasons is None:
        yield 'Nodes: not known yet'
        return
    yield f'Nodes: {len(picture.reasons)}'
    examples = {reason: node for node, reason in picture.reasons.items()}
    for reason, number in ownership.count_reasons(picture.reasons).items():
        if number:
            yield f'  {number} {reason.value}: for example {examples[reason]}'
    yield (f'Brake of vanished nodes: engaged, {picture.missing} are missing'
           if picture.braked else 'Brake of vanished nodes: not engaged')


def _pending(picture: StatusSnapshot) -> abc.Iterator[str]:
    for kind in Pending:
        waiting = picture.waiting(kind)
        yield f'{kind.value.capitalize()}: {len(waiting)}'
        yield from (f'  {uuid}, for {seconds:.0f} s'
                    for uuid, seconds in waiting[:SHOWN])


def _turns(picture: StatusSnapshot, work: Work) -> str:
    turns = picture.turns[work]
    if turns.succeeded is None:
        return 'not done yet' + (
            '' if turns.sign is None
            else f', last sign of it {picture.at - turns.sign:.1f} s ago')
    return (f'done {picture.age(work):.1f} s ago, took {turns.seconds:.1f} s, '
            f'last sign of it {picture.at - (turns.sign or 0):.1f} s ago')
