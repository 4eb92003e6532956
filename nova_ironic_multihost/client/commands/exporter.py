# SPDX-License-Identifier: Apache-2.0

"""exporter: results of the check for Prometheus.

The number of samples grows with compute services and kinds of findings, not
with nodes or servers. prometheus_client is imported when it is used: the
overview of all commands needs none of it.
"""

from __future__ import annotations

import collections
from collections import abc
import signal
import time
import typing

if typing.TYPE_CHECKING:
    from prometheus_client import core

from cliff import command

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules import takeover

#: Prefix of the names of metrics.
PREFIX = 'nova_ironic_multihost_cloud_'

#: Seconds for which a reader may say nothing, or not read.
PATIENCE = 10

#: States of a node, as a label.
STATES = FREE, USED, LEAKED = 'free', 'used', 'leaked'

#: States of an operation: whether a compute service that is up has it.
PROGRESS = WAITING, RUNNING = 'waiting', 'running'


class Exporter(base.CloudCommand, command.Command):
    """Answer Prometheus with what the check finds, and with its figures.

    It asks what "check" asks, again and again. Prometheus gets the result:
    which compute services are up, fenced and enabled, the number of nodes of
    each, and the number of findings of each kind. One exporter for a cloud is
    enough. Nothing is changed.

    When the cloud cannot be asked the figures stay as they were, and
    nova_ironic_multihost_cloud_survey_success is 0.
    """

    _epilog = """\
examples:
  nova-ironic-multihost exporter --os-cloud admin \\
      --os-baremetal-cloud system --port 9798
        answers http://127.0.0.1:9798/metrics; --address 0.0.0.0 lets others
        than this host in, and there is neither a password nor TLS

The kinds compute-missing and compute-not-up are 0 without --host; those of
allocations are 0 without --allocations. The documentation has alerts, a
dashboard, and what to do about each finding.

exit status: 0 it was ended by SIGTERM or Ctrl-C; 2 it cannot be done (no
credentials, or the port cannot be had; standard error says what to do).
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--port', type=int, metavar='N', required=True,
            help='answer Prometheus at this port of --address; 0 takes a '
            'free one')
        parser.add_argument(
            '--address', default='127.0.0.1', metavar='ADDRESS',
            help='where to listen (default: %(default)s)')
        parser.add_argument(
            '--interval', type=arguments.seconds, default=60,
            metavar='SECONDS',
            help='rest between the end of a survey and the next one, at '
            'least 1 (default: %(default)s)')
        arguments.add_extent(parser)

    def collect(self):
        """Return the metrics of the last survey, for prometheus_client."""
        return self._metrics

    def take_action(self, parsed_args):
        """Answer until a signal ends it."""
        cloud = self.cloud
        # Replaced in one step, as other threads read it.
        self._metrics = survey_metrics(False, 0)
        server = _started(parsed_args.port, parsed_args.address, self)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            self.tell(f'answering at port {server.server_port} of '
                      f'{parsed_args.address}')
            self._survey(cloud, parsed_args)
        except KeyboardInterrupt:
            return arguments.DONE

    def _survey(self, cloud, parsed_args):
        """Survey the cloud again and again; print each change of the error."""
        kept, printed = [], ''
        while True:
            began, problem = time.monotonic(), ''
            try:
                seen = services.with_heartbeats(
                    cloud, cloud.read(parsed_args.allocations))
                kept = list(cloud_metrics(seen, findings.inconsistencies(
                    seen, seen.at, parsed_args.host)))
            except cloud_state.CloudError as error:
                problem = str(error)
            self._metrics = kept + survey_metrics(
                not problem, time.monotonic() - began)
            if problem != printed:
                printed = problem
                self.tell(problem or 'the cloud answers again')
            time.sleep(max(1, parsed_args.interval))


def _started(port, address, collector):
    """Return a server that answers with the metrics of a collector."""
    import prometheus_client
    registry = prometheus_client.CollectorRegistry()
    registry.register(collector)
    try:
        server, _ = prometheus_client.start_wsgi_server(
            port, address, registry)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, 'strerror', None) or str(error).rstrip('.')
        raise base.Refused(
            f'{address} port {port} cannot be had: {why}. Choose another one '
            'with --port or --address, or end the program that has it.'
            ) from error
    # A reader that says nothing would keep its thread and file for ever.
    server.RequestHandlerClass.timeout = PATIENCE
    # The last line of the journal is the error of the cloud.
    server.handle_error = lambda request, reader: None
    return server


def survey_metrics(
    success: bool, seconds: float
) -> list[core.GaugeMetricFamily]:
    """Return the metrics of the last attempt to read a cloud."""
    return [
        _one('survey_success', 'Whether the cloud answered when it was asked '
             'last; if not, the other figures are older.', success),
        _one('survey_seconds', 'How long it took to ask the cloud last.',
             seconds)]


def cloud_metrics(
    seen: cloud_state.CloudState, found: abc.Sequence[findings.Finding]
) -> abc.Iterator[core.GaugeMetricFamily]:
    """Yield the metrics of a cloud.

    :param found: its findings
    """
    yield _one('survey_timestamp_seconds', 'When the cloud was asked with '
               'success last, in seconds since the epoch.', seen.at)
    counts = collections.Counter(finding.kind for finding in found)
    yield _series(
        'findings', 'What is not in its place, by the kinds that '
        'nova-ironic-multihost check has.', ('kind',),
        {(kind,): counts[kind] for kind in findings.KINDS})
    for name, text, read in (
            ('up', 'Whether nova calls the compute service up.',
             lambda service: service.up),
            ('fenced', 'Whether the compute service is forced down.',
             lambda service: service.forced_down),
            ('enabled', 'Whether the compute service is enabled.',
             lambda service: not service.disabled),
            ('silence_seconds', 'Seconds between the last heartbeat of the '
             'compute service, or that it was fenced, disabled or enabled, '
             'and the moment of asking.',
             lambda service: service.seen and seen.at - service.seen)):
        yield _series(f'compute_{name}', text, ('host',), {
            (service.host,): value for service in seen.services
            if (value := read(service)) is not None})
    yield _nodes_of_computes(seen)
    yield _one('nodes', 'Nodes that Ironic shows.', len(seen.nodes))
    yield _one('servers_busy', 'Servers that are in the middle of something.',
               findings.busy(seen))
    yield _oldest(seen)


def _nodes_of_computes(seen: cloud_state.CloudState
                       ) -> core.GaugeMetricFamily:
    counts = collections.Counter(
        (record.owner, LEAKED if seen.usage(node).stray
         else USED if record.node in seen.server_of else FREE)
        for record in seen.records
        if (node := seen.node_of.get(record.node)))
    return _series(
        'compute_nodes', 'Nodes that are recorded on the host: free; used by '
        'a server, or about to be; leaked, held for no server.',
        ('host', 'state'),
        {(name, state): counts[key, state]
         for key, name in seen.names.items() for state in STATES})


def _oldest(seen: cloud_state.CloudState) -> core.GaugeMetricFamily:
    waits = {(wait, state): [0.0] for wait in Wait for state in PROGRESS}
    for server in seen.instances:
        service = (seen.service_of.get(server.host_key)
                   if server.host_key else None)
        since = server.updated
        if takeover.is_mark(server.task_state):
            wait = Wait.TAKEOVER
        elif server.task_state in takeover.DELETING:
            wait = Wait.DELETE
        elif server.vm_state == 'building':
            wait = Wait.BUILD
        elif service and service.forced_down and not server.deleted:
            wait, since = Wait.TAKEOVER, service.seen or seen.at
        else:
            continue
        state = RUNNING if service and service.up else WAITING
        waits[wait, state].append(seen.at - since)
    for service in seen.services:
        # nova hears from it no more, so others should have its free nodes.
        if not service.up and service.seen and seen.free_of(service.host):
            waits[Wait.MOVE, WAITING].append(seen.at - service.seen)
    return _series(
        'oldest_seconds', 'For how long the oldest build, delete or takeover '
        'has been in its state, and the free nodes and fenced servers of a '
        'compute service have been on it since its last heartbeat.',
        ('operation', 'state'),
        {(wait.value, state): max(seconds)
         for (wait, state), seconds in waits.items()})


def _one(name: str, text: str, value: float) -> core.GaugeMetricFamily:
    return _series(name, text, (), {(): value})


def _series(name: str, text: str, labels: tuple[str, ...],
            values: abc.Mapping[tuple[str, ...], float]
            ) -> core.GaugeMetricFamily:
    from prometheus_client import core
    series = core.GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for one, value in values.items():
        series.add_metric(one, float(value))
    return series
