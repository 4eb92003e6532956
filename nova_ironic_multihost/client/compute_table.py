# SPDX-License-Identifier: Apache-2.0

"""The compute services in a table: who is there, and who owns how much."""

import collections
import dataclasses

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import usage
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


@dataclasses.dataclass(frozen=True)
class Compute:
    """One row.

    :param state: up, down, fenced (forced down), gone: it owns something and
        nova has no such service, or unknown: nova does not reach its cell.
    :param status: enabled, disabled; ending or ended if it was told to end;
        '' of one that is gone or unknown.
    :param mapped: whether its host is mapped to a cell, None if not known.
    :param partition: whom it shares nodes with, '' if not known.
    :param zone: its explicit availability zone, '' without one.
    :param nodes: how many it owns; free, used and leaked add up to them.
    :param share: percent of all nodes that it owns.
    :param balance: its free nodes, as a multiple of what each member of the
        ring would have of those of its partition if all had as many; None if
        it is on no ring, or nothing is free.
    :param taking: servers that it takes over at this moment.
    """

    host: str
    state: str
    status: str
    mapped: bool | None
    partition: str
    zone: str
    nodes: int
    free: int
    used: int
    leaked: int
    share: float
    balance: float | None
    taking: int


def state(service: cloud_state.Service | None) -> str:
    """Return what :class:`Compute` has as state."""
    if service is None:
        return 'gone'
    if not service.reached:
        return 'unknown'
    if service.forced_down:
        return 'fenced'
    return 'up' if service.up else 'down'


def status(service: cloud_state.Service | None) -> str:
    """Return what :class:`Compute` has as status."""
    if service is None or not service.reached:
        return ''
    if service.stop_marker:
        return 'ending' if service.up else 'ended'
    return 'disabled' if service.disabled else 'enabled'


def rows(judged: ownership_report.OwnershipReport) -> list[Compute]:
    """Return a row for each service and for each other owner, by name."""
    seen = judged.seen
    names = {record.key: record.host for record in seen.records}
    names.update((service.key, service.host) for service in seen.services)
    counts: dict[HostKey, collections.Counter[usage.Usage]] = {
        host: collections.Counter() for host in names}
    for node in seen.nodes:
        owner = seen.owner_of.get(node.uuid)
        if owner is not None:
            counts[owner][usage.of(node, seen)] += 1
    even = _even(judged)
    return [_row(judged, host, names[host], counts[host], even.get(host))
            for host in sorted(names)]


def _row(judged: ownership_report.OwnershipReport, host: HostKey, name: str,
         counts: collections.Counter[usage.Usage], even: float | None
         ) -> Compute:
    service = judged.seen.service_of.get(host)
    part = judged.partitions.of_host(host)
    nodes = counts.total()
    free = counts[usage.Usage.FREE]
    used = counts[usage.Usage.USED]
    return Compute(
        name, state(service), status(service),
        service.mapped if service is not None else None,
        part.label if part is not None else '',
        judged.zones.get(host, ''), nodes, free, used, nodes - free - used,
        100 * nodes / len(judged.seen.nodes) if nodes else 0,
        free / even if even else None, _taking(judged.seen, host))


def _even(judged: ownership_report.OwnershipReport) -> dict[HostKey, float]:
    """Return what each member would have if all had as much: {member: n}."""
    found: dict[HostKey, float] = {}
    for part in judged.partitions.found:
        members = judged.preferences(part).members
        free = sum(usage.of(node, judged.seen) is usage.Usage.FREE
                   for node in judged.nodes(part))
        found.update((host, free / len(members)) for host in members)
    return found


def _taking(seen: cloud_state.CloudState, host: HostKey) -> int:
    """Count the servers that carry a mark of a host."""
    return sum(takeover.is_mark(one.task_state)
               and not takeover.is_anothers(one.task_state, host)
               for one in seen.instances if not one.deleted)
