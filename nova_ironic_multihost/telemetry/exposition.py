# SPDX-License-Identifier: Apache-2.0

"""The metrics for Prometheus, see doc/source/reference/metrics.rst.

They are made of one snapshot for each reader; none is of a single node.
"""

from collections.abc import Callable
from collections.abc import Iterator
import zlib

import prometheus_client
from prometheus_client import core as families
from prometheus_client import utils

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import ownership

PREFIX = 'nova_ironic_multihost'

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST

#: Values of the label ``result``.
MOVES = {'adopted': Event.ADOPTED, 'pulled': Event.PULLED,
         'failed': Event.MOVE_FAILED}
TAKEOVERS = {'done': Event.TAKEN_OVER, 'failed': Event.TAKEOVER_FAILED}


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
