# SPDX-License-Identifier: Apache-2.0

"""The metrics, health and report of a compute service.

The metrics for Prometheus (reference/metrics.rst) are made of one snapshot for
each reader; none is of a single node. A Guru Meditation Report (SIGUSR2) has
the report.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from importlib import metadata
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
from nova_ironic_multihost.telemetry import http_server

LOG = logging.getLogger(__name__)

#: This package, for its version.
DISTRIBUTION = 'nova-ironic-multihost'

PREFIX = 'nova_ironic_multihost'

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST

#: Values of the label ``result``.
MOVES = {'adopted': Event.ADOPTED, 'pulled': Event.PULLED,
         'failed': Event.MOVE_FAILED}

TAKEOVERS = {'done': Event.TAKEN_OVER, 'failed': Event.TAKEOVER_FAILED}

TITLE = 'Ironic multi-host'

#: The most uuids that are shown of each kind of pending work.
SHOWN = 20

Report = guru_meditation_report.TextGuruMeditation


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
        self._exposition = Exposition(picture, version())
        self._where = where
        health, leases = f'/healthz/{host}', f'/leasez/{host}'
        self.server = http_server.Server(*where, {
            '/metrics': self._metrics, health: _page(verdict),
            leases: _page(lease),
        }, {health}) if where is not None else None

    def open(self, required: bool = False) -> list[str]:
        """Start the server; return sentences on why nova must not start.

        :param required: only a probe can end this service before a takeover.
        """
        if self.server is None or self._where is None:
            return []
        try:
            self.server.start()
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
                'as nothing can listen on %(address)s, port %(port)d: '
                '%(exc)s. Set [ironic_multihost]metrics_address and '
                'metrics_port to what is free on this machine, for each '
                'nova-compute another one, and restart nova-compute. All '
                'else goes on.',
                {'address': address, 'port': port, 'exc': exc})
        return []

    def close(self) -> None:
        """Answer no more."""
        if self.server:
            self.server.stop()

    def report(self) -> str:
        """Return the section of a report."""
        return report_text(self._picture())

    def _metrics(self) -> http_server.HttpPage:
        return http_server.HttpPage(
            200, CONTENT_TYPE, self._exposition.text())


def _page(
    judge: Callable[[], HealthState],
) -> Callable[[], http_server.HttpPage]:
    def make() -> http_server.HttpPage:
        verdict = judge()
        return http_server.line(200 if verdict.well else 503, verdict.why)

    return make


def version() -> str:
    """Return the version of this package, '' if it is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return ''


class Exposition:
    """Writes a snapshot as metrics, in a registry of its own."""

    def __init__(
        self, picture: Callable[[], StatusSnapshot], version: str
    ) -> None:
        self._picture = picture
        self._version = version
        self._registry = prometheus_client.CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return the metrics of this moment."""
        return bytes(prometheus_client.generate_latest(self._registry))

    def describe(self) -> list[families.Metric]:
        """Return nothing, so that registering takes no snapshot."""
        return []

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


def report_text(picture: StatusSnapshot) -> str:
    """Return the text of the section."""
    return '\n'.join(_lines(picture))


def _lines(picture: StatusSnapshot) -> Iterator[str]:
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
    yield from _or_nothing(
        f'  {reason.value}: for example {node}'
        for reason, node in picture.moving().items())
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


def _or_nothing(lines: Iterable[str]) -> list[str]:
    return list(lines) or ['  nothing']


class ReportSection:
    """A section of the report, from :meth:`begin` to :meth:`end`.

    :param text: bound method, held weakly. A signal handler calls it, so it
        must take no lock.
    """

    def __init__(self, title: str, text: Callable[[], str]) -> None:
        self._title = title
        self._text = weakref.WeakMethod(text)
        self._begun = False

    def begin(self) -> None:
        """Add the section, once."""
        if not self._begun:
            self._begun = True
            Report.register_section(self._title, self._generate)

    def end(self) -> None:
        """Remove the section."""
        if self._begun:
            self._begun = False
            sections = Report.persistent_sections
            sections[:] = [pair for pair in sections
                           if pair[1] != self._generate]

    def _generate(self) -> str:
        text = self._text()
        try:
            return text() if text is not None else 'It has ended.'
        except Exception as exc:  # noqa: BLE001
            return f'This section has failed: {exc!r}'
