# SPDX-License-Identifier: Apache-2.0

"""nova-ironic-multihost-exporter: results of the check for Prometheus.

The number of samples grows with compute services and kinds of findings, not
with nodes or servers.
"""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import logging
import pathlib
import signal
import sys
import time
import typing

import prometheus_client
from prometheus_client import core
from prometheus_client import parser as exposition

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.telemetry import http_server

PROGRAM = 'nova-ironic-multihost-exporter'

DONE, FAILED = 0, 2

#: Default seconds between the end of a survey and the next survey.
INTERVAL = 60

_DESCRIPTION = """\
Ask nova, placement and Ironic, through their APIs, what
"nova-ironic-multihost check" asks them, and tell Prometheus: which compute
services are up, fenced and enabled, how many nodes each of them has, and how
many things of each kind are not in their place. One of these for a cloud is
enough. Nothing is changed.

When the cloud cannot be asked the figures stay as they were, and
nova_ironic_multihost_cloud_survey_success is 0.
"""

_EPILOG = """\
examples:
  nova-ironic-multihost-exporter --os-cloud admin \\
      --os-baremetal-cloud system --port 9798
        asks again and again, and answers http://127.0.0.1:9798/metrics from
        what it heard last; --address 0.0.0.0 lets others than this host in,
        and there is neither a password nor TLS
  nova-ironic-multihost-exporter --os-cloud admin \\
      --os-baremetal-cloud system \\
      --textfile /var/lib/prometheus/node-exporter/nova.prom
        asks once, from cron or a timer of systemd, for the textfile collector
        of node_exporter, which reads files that end in .prom

The kinds compute-missing and compute-not-up are 0 without --host; those of
allocations are 0 without --allocations. The documentation has alerts, a
dashboard, and what to do about each finding.

exit status: 0 the file is written, or --port was ended by SIGTERM or Ctrl-C;
2 it cannot be done (no credentials, the port or the file cannot be had; with
--textfile also: the cloud cannot be asked, and the file says so; standard
error says what to do).
"""


class Exporter:
    """Collector of prometheus_client with the metrics of a cloud.

    Any thread may call :meth:`collect` during :meth:`refresh`.

    :param ask: returns (CloudState, findings), or raises CloudError
    :param kept: metrics of the last successful survey
    """

    def __init__(self, ask, kept=()):
        self._ask = ask
        self._kept = tuple(kept)
        # Replaced in one step, as another thread may read it.
        self._metrics = self._kept + of_survey(False, 0)

    def collect(self):
        """Return all metrics of the last survey."""
        return self._metrics

    def refresh(self):
        """Survey the cloud.

        :returns: '', or the text of the error
        """
        problem = ''
        began = time.monotonic()
        try:
            self._kept = of_cloud(*self._ask())
        except cloud_state.CloudError as error:
            problem = str(error)
        self._metrics = self._kept + of_survey(
            not problem, time.monotonic() - began)
        return problem


def main(argv=None):
    """Run the command.

    :param argv: arguments; default: those of this process
    :returns: exit status
    """
    args = parser().parse_args(argv)
    # The error that follows such a warning says more.
    logging.getLogger('keystoneauth').setLevel(logging.ERROR)
    try:
        cloud = cloud_client.connect(args.os_cloud, args.os_baremetal_cloud)
    except cloud_state.CloudError as error:
        return _failed(error)

    def ask():
        seen = services.with_heartbeats(cloud, cloud.read(args.allocations))
        return seen, (findings.inconsistencies(seen, seen.at, args.host)
                      + findings.notes(seen, seen.at))

    if args.textfile is None:
        return _serve(ask, args)
    try:
        return _write(ask, args.textfile)
    except KeyboardInterrupt:
        return _failed('interrupted')


def parser():
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog=PROGRAM, description=_DESCRIPTION, epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    how = top.add_mutually_exclusive_group(required=True)
    how.add_argument(
        '--textfile', type=pathlib.Path, metavar='FILE',
        help='ask once and write the answer to this file, as a whole')
    how.add_argument(
        '--port', type=port_number, metavar='N',
        help='answer Prometheus at this port of --address; 0 takes a free '
        'one')
    top.add_argument(
        '--address', default='127.0.0.1', metavar='ADDRESS',
        help='with --port: where to listen (default: %(default)s)')
    top.add_argument(
        '--interval', type=seconds_of_rest, default=INTERVAL,
        metavar='SECONDS',
        help='with --port: rest between the end of a survey and the next one '
        '(default: %(default)s)')
    arguments.add_clouds(top)
    arguments.add_extent(top)
    return top


def port_number(text):
    """Parse a port of the command line."""
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError('a port is a number up to 65535')
    return port


def seconds_of_rest(text):
    """Parse the value of --interval."""
    seconds = float(text)
    if not 1 <= seconds <= 86400:
        raise argparse.ArgumentTypeError('give 1 to 86400 seconds')
    return seconds


def _write(ask, path):
    """Write the metrics to a file; return the exit status."""
    try:
        exporter = Exporter(ask, _read(path))
        problem = exporter.refresh()
        prometheus_client.write_to_textfile(str(path), _registry(exporter))
    except OSError as error:
        return _failed(
            f'{path} cannot be written: {error.strerror}. Name a file in a '
            'directory that this user may write to.')
    return _failed(problem) if problem else DONE


def _read(path):
    """Return the metrics of an earlier file, without those of the survey."""
    if not path.exists():
        return ()
    ours = {series.name for series in of_survey(False, 0)}
    try:
        return tuple(
            metric for metric in exposition.text_string_to_metric_families(
                path.read_text())
            if metric.name.startswith(PREFIX) and metric.name not in ours)
    except ValueError:
        # Not our file, or truncated: it will be overwritten.
        return ()


def _serve(ask, args):
    """Answer scrapes until a signal arrives; return the exit status."""
    exporter = Exporter(ask)
    registry = _registry(exporter)
    server = http_server.Server(args.address, args.port, {
        '/metrics': lambda: http_server.HttpPage(
            200, prometheus_client.CONTENT_TYPE_LATEST,
            prometheus_client.generate_latest(registry))})
    try:
        server.start()
    except OSError as error:
        return _failed(
            f'{args.address} port {args.port} cannot be had: '
            f'{error.strerror or error}. Choose another one with --port or '
            '--address, or end who has it.')
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logged = ''
    try:
        _say(f'answering at port {server.port} of {args.address}')
        while True:
            problem = exporter.refresh()
            if problem != logged:
                logged = problem
                _say(problem or 'the cloud answers again')
            time.sleep(args.interval)
    except KeyboardInterrupt:
        return DONE
    finally:
        server.stop()


def _registry(exporter):
    """Return a registry without metrics of this process."""
    registry = prometheus_client.CollectorRegistry()
    registry.register(exporter)
    return registry


def _say(text):
    print(f'{PROGRAM}: {text}', file=sys.stderr, flush=True)


def _failed(text):
    _say(text)
    return FAILED

#: Prefix of all names.
PREFIX = 'nova_ironic_multihost_cloud_'

#: States of a node, as a label.
STATES = FREE, USED, LEAKED = 'free', 'used', 'leaked'

#: States of an operation: whether a compute service that is up has it.
PROGRESS = WAITING, RUNNING = 'waiting', 'running'


#: A gauge with its values.
Series: typing.TypeAlias = core.GaugeMetricFamily


def of_cloud(seen: cloud_state.CloudState,
             found: Sequence[findings.Finding]) -> tuple[Series, ...]:
    """Return the metrics of a cloud.

    :param found: its findings and notes
    """
    return (
        _one('survey_timestamp_seconds', 'When the cloud was asked with '
             'success last, in seconds since the epoch.', seen.at),
        _findings(found),
        *_computes(seen),
        _nodes_of_computes(seen, found),
        _one('nodes', 'Nodes that Ironic shows.', len(seen.nodes)),
        _one('servers_busy', 'Servers that are in the middle of something.',
             findings.busy(seen)),
        _oldest(seen))


def of_survey(success: bool, seconds: float) -> tuple[Series, ...]:
    """Return the metrics of the last attempt to read a cloud.

    :param seconds: its duration, with or without success
    """
    return (
        _one('survey_success', 'Whether the cloud answered when it was asked '
             'last; if not, the other figures are older.', success),
        _one('survey_seconds', 'How long it took to ask the cloud last.',
             seconds))


def _findings(found: Sequence[findings.Finding]) -> Series:
    counts = collections.Counter(finding.kind for finding in found)
    return _series(
        'findings', 'What is not in its place, by the kinds that '
        'nova-ironic-multihost check has.', ('kind',),
        {(kind,): counts[kind] for kind in findings.KINDS})


def _computes(seen: cloud_state.CloudState) -> tuple[Series, ...]:
    def of_services(
            name: str, text: str,
            read: Callable[[cloud_state.Service], float | None]) -> Series:
        return _series(f'compute_{name}', text, ('host',), {
            (service.host,): value for service in seen.services
            if (value := read(service)) is not None})

    return (
        of_services('up', 'Whether nova calls the compute service up.',
                    lambda service: service.up),
        of_services('fenced', 'Whether the compute service is forced down.',
                    lambda service: service.forced_down),
        of_services('enabled', 'Whether the compute service is enabled.',
                    lambda service: not service.disabled),
        of_services('silence_seconds', 'Seconds between the last heartbeat '
                    'of the compute service, or that it was fenced, disabled '
                    'or enabled, and the moment of asking.',
                    lambda service: None if service.seen is None
                    else seen.at - service.seen))


def _nodes_of_computes(seen: cloud_state.CloudState,
                       found: Sequence[findings.Finding]) -> Series:
    leaked = {finding.subject for finding in found
              if finding.kind == findings.LEAKED}

    def state(node: str) -> str:
        if node in leaked:
            return LEAKED
        return USED if node in seen.server_of else FREE

    counts = collections.Counter(
        (record.key, state(record.node)) for record in seen.records
        if record.node in seen.node_of)
    return _series(
        'compute_nodes', 'Nodes that are recorded on the host: free; used by '
        'a server, or about to be; leaked, held for no server.',
        ('host', 'state'),
        {(name, state): counts[key, state]
         for key, name in seen.names.items() for state in STATES})


def _oldest(seen: cloud_state.CloudState) -> Series:
    waits = {(wait, state): [0.0] for wait in Wait for state in PROGRESS}
    for server in seen.instances:
        service = seen.service_of.get(server.key) if server.key else None
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


def _one(name: str, text: str, value: float) -> Series:
    return _series(name, text, (), {(): value})


def _series(name: str, text: str, labels: tuple[str, ...],
            values: Mapping[tuple[str, ...], float]) -> Series:
    series = Series(PREFIX + name, text, labels=labels)
    for one, value in values.items():
        series.add_metric(one, float(value))
    return series


if __name__ == '__main__':
    sys.exit(main())
