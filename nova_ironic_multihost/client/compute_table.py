# SPDX-License-Identifier: Apache-2.0

"""Table of the compute services: their states, and how many nodes they own."""

import collections
import dataclasses

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import usage
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


@dataclasses.dataclass(frozen=True)
class Compute:
    """A row of the table: one compute service.

    :param state: up, down, fenced (forced down), "fenced, alive", gone (it
        owns nodes without a service in nova), unknown (nova does not reach
        its cell).
    :param status: enabled, disabled, ending or ended (it has a stop marker);
        '' if the state is gone or unknown.
    :param nodes: number of its nodes, the sum of free, used and leaked.
    :param balance: its free nodes divided by the average of the members of
        its ring; None if it is on no ring, or no node is free.
    :param share: percent of all nodes.
    :param taking: number of servers that it takes over now.
    :param mapped: the host is mapped to a cell; None if not known.
    :param partition: its label, '' if not known.
    :param zone: explicit availability zone, '' without one.
    :param seen: time of its last heartbeat; None without a service.
    """

    host: str
    state: str
    status: str
    nodes: int
    free: int
    used: int
    balance: float | None
    leaked: int
    share: float
    taking: int
    mapped: bool | None
    partition: str
    zone: str
    seen: float | None


def state(service: cloud_state.Service | None) -> str:
    """Return the state for :class:`Compute`."""
    if service is None:
        return 'gone'
    if not service.reached:
        return 'unknown'
    if service.forced_down:
        return 'fenced, alive' if service.alive else 'fenced'
    return 'up' if service.up else 'down'


def status(service: cloud_state.Service | None) -> str:
    """Return the status for :class:`Compute`."""
    if service is None or not service.reached:
        return ''
    if service.stop_marker:
        return 'ending' if service.up else 'ended'
    return 'disabled' if service.disabled else 'enabled'


def rows(report: ownership_report.OwnershipReport) -> list[Compute]:
    """Return a row for each compute service and each other owner, by name."""
    seen = report.seen
    names = {record.key: record.host for record in seen.records}
    names.update((service.key, service.host) for service in seen.services)
    counts: dict[HostKey, collections.Counter[usage.Usage]] = {
        host: collections.Counter() for host in names}
    for node in seen.nodes:
        owner = seen.owner_of.get(node.uuid)
        if owner is not None:
            counts[owner][usage.of(node, seen)] += 1
    average = _average_free(report)
    return [_row(report, host, names[host], counts[host], average.get(host))
            for host in sorted(names)]


def _row(report: ownership_report.OwnershipReport, host: HostKey, name: str,
         counts: collections.Counter[usage.Usage], average: float | None
         ) -> Compute:
    service = report.seen.service_of.get(host)
    part = report.partitions.of_host(host)
    nodes = counts.total()
    free = counts[usage.Usage.FREE]
    used = counts[usage.Usage.USED]
    return Compute(
        name, state(service), status(service), nodes, free, used,
        free / average if average else None, nodes - free - used,
        100 * nodes / len(report.seen.nodes) if nodes else 0,
        _taking(report.seen, host),
        service.mapped if service is not None else None,
        part.label if part is not None else '', report.zones.get(host, ''),
        service.seen if service is not None else None)


def _average_free(report: ownership_report.OwnershipReport
                  ) -> dict[HostKey, float]:
    """Return member -> average number of free nodes of its ring's members."""
    found: dict[HostKey, float] = {}
    for part in report.partitions.found:
        members = report.preferences(part).members
        free = sum(usage.of(node, report.seen) is usage.Usage.FREE
                   for node in report.nodes(part))
        found.update((host, free / len(members)) for host in members)
    return found


def _taking(seen: cloud_state.CloudState, host: HostKey) -> int:
    """Count the servers with a takeover mark of a host."""
    return sum(takeover.is_mark(one.task_state)
               and not takeover.is_anothers(one.task_state, host)
               for one in seen.instances if not one.deleted)
