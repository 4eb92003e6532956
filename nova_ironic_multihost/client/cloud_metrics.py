# SPDX-License-Identifier: Apache-2.0

"""Metrics of a cloud: states of compute services, findings.

Without I/O. The number of samples grows with compute services and kinds of
findings, not with nodes or servers.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import types

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings
from nova_ironic_multihost.rules import takeover

#: Prefix of all names.
PREFIX = 'nova_ironic_multihost_cloud_'

#: States of a node, as a label.
STATES = FREE, USED, LEAKED = 'free', 'used', 'leaked'

#: Values of the label ``operation``.
OPERATIONS = BUILD, DELETE, MOVE, TAKEOVER = (
    'build', 'delete', 'move', 'takeover')


@dataclasses.dataclass(frozen=True)
class Series:
    """A gauge with its values.

    :ivar name: with the prefix
    :ivar text: its help, a sentence
    :ivar labels: names of the labels
    :ivar values: {(value of each label, ...): value}
    """

    name: str
    text: str
    labels: tuple[str, ...]
    values: Mapping[tuple[str, ...], float]


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
    waits = {operation: [0.0] for operation in OPERATIONS}
    for server in seen.instances:
        if takeover.is_mark(server.task_state):
            operation = TAKEOVER
        elif server.task_state in ('deleting', 'soft-deleting'):
            operation = DELETE
        elif server.vm_state == 'building':
            operation = BUILD
        else:
            continue
        waits[operation].append(seen.at - server.updated)
    for service in seen.services:
        # nova hears from it no more, so others should have its free nodes.
        if not service.up and service.seen and seen.free_of(service.host):
            waits[MOVE].append(seen.at - service.seen)
    return _series(
        'oldest_seconds', 'For how long the oldest build, delete or takeover '
        'has been in its state, and the free nodes of a compute service have '
        'been on it since its last heartbeat.', ('operation',),
        {(operation,): max(seconds)
         for operation, seconds in waits.items()})


def _one(name: str, text: str, value: float) -> Series:
    return _series(name, text, (), {(): value})


def _series(name: str, text: str, labels: tuple[str, ...],
            values: Mapping[tuple[str, ...], float]) -> Series:
    return Series(PREFIX + name, text, labels, types.MappingProxyType({
        key: float(value) for key, value in values.items()}))
