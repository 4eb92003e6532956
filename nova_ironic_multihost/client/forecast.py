# SPDX-License-Identifier: Apache-2.0

"""Forecast which nodes move when compute services are added or removed.

It uses the driver's hash ring. A free node moves to the member that the ring
prefers; a server of a host that is forced down moves to the takeover target.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import uuid

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

#: Namespace of the uuids of imagined nodes.
_IMAGINED = uuid.UUID('6f1f1f0e-1d0c-5a53-9d0e-2f6a0b7c8d9e')


class PlanError(ValueError):
    """The change does not fit the cloud; the message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Change:
    """Compute services that are added, and those that are removed for good.

    :param zone: availability zone of the added ones; None for that of the
        host aggregates.
    :param partition: label of their partition; None if there is only one.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    zone: str | None = None
    partition: str | None = None

    @property
    def added(self) -> frozenset[HostKey]:
        """The hosts that are added."""
        return frozenset(map(host_key, self.add))

    @property
    def removed(self) -> frozenset[HostKey]:
        """The hosts that are removed."""
        return frozenset(map(host_key, self.remove))


@dataclasses.dataclass(frozen=True)
class Move:
    """A number of nodes that move from one compute service to another.

    :param source: '' for nodes without an owner.
    :param target: '' if no host may take them; they stay.
    :param free: free nodes; these move by themselves.
    :param held: nodes with a server or a leaked machine; these move when the
        source is forced down.
    """

    source: str
    target: str
    free: int
    held: int


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The effects of a change.

    :param moves: by source and target.
    :param nodes: number of nodes considered.
    :param anyway: number of the moving nodes that would also move without
        the change, maybe to another host.
    :param before: member of the ring -> its free nodes without the change,
        after all moves.
    :param after: member of the ring -> its free nodes with the change.
    """

    moves: tuple[Move, ...]
    nodes: int
    anyway: int
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class _Place:
    """The host of a node, and its use.

    :param owner: host of its server; without a server, of its record.
    :param held: Ironic holds it for a server, known to nova or not.
    :param used: nova has that server.
    """

    uuid: str
    owner: HostKey | None
    held: bool = False
    used: bool = False


@dataclasses.dataclass(frozen=True)
class _Hosts:
    """The hosts that keep their held nodes.

    :param up: these keep their leaked machines.
    :param serving: these keep their servers: in nova, and not forced down.
    """

    up: frozenset[HostKey]
    serving: frozenset[HostKey]

    @classmethod
    def of(cls, seen: cloud_state.CloudState) -> '_Hosts':
        return cls(seen.up_hosts, frozenset(
            host for host, service in seen.service_of.items()
            if not service.forced_down))

    def after(self, change: Change) -> '_Hosts':
        return _Hosts((self.up | change.added) - change.removed,
                      (self.serving | change.added) - change.removed)


def plan(report: ownership_report.OwnershipReport, change: Change,
         imagined: int | None = None) -> Forecast:
    """Return which nodes would move.

    :param report: the present state.
    :param imagined: number of free nodes to use instead of Ironic's nodes.
    :raises PlanError: when the change does not fit the cloud
    """
    _refuse(report, change)
    # The nodes of removed hosts do not define a partition.
    report = ownership_report.OwnershipReport(
        report.seen, report.settings, gone=change.removed)
    changed = _partition_of(
        report, change, needed=bool(change.add) or imagined is not None)
    zones = dict(report.zones)
    if change.zone:
        zones.update(dict.fromkeys(change.added, change.zone))
    before = _Hosts.of(report.seen)
    sums = _Sums(zones, before, before.after(change))
    for part in report.partitions.found:
        old = report.preferences(part)
        added = change.added if part is changed else frozenset()
        new = ring.Preferences(
            {host: zones.get(host)
             for host in (old.members.keys() | added) - change.removed},
            old.points, old.cross_zones)
        if imagined is not None:
            if part is changed:
                sums.add(_imagined(imagined, old), old, new)
        else:
            sums.add(_places(report, part), old, new)
    return sums.plan()


def _refuse(report: ownership_report.OwnershipReport, change: Change) -> None:
    for host in change.remove:
        if host_key(host) not in report.seen.service_of and (
                report.partitions.of_host(host_key(host)) is None):
            raise PlanError(
                f'nova has no compute service {host} that could be removed. '
                'Look at "nova-ironic-multihost list".')
    for host in change.add:
        if report.is_member(host_key(host)):
            raise PlanError(
                f'{host} shares the nodes already. Name one that does not.')
    both = change.added & change.removed
    if both:
        raise PlanError(f'{", ".join(sorted(both))} cannot be added and '
                        'removed at once. Name it once.')


def _partition_of(
    report: ownership_report.OwnershipReport, change: Change, needed: bool
) -> ownership_report.NodeShare:
    """Return the partition of the added hosts and imagined nodes."""
    found = {part.label: part for part in report.partitions.found}
    labels = ', '.join(f'"{label}"' for label in sorted(found))
    if change.partition is None:
        if len(found) == 1 or not needed:
            return next(iter(found.values()))
        raise PlanError(f'The nodes are shared in {len(found)} partitions. '
                        f'Say --partition with one of {labels}.')
    if change.partition not in found:
        raise PlanError(f'There is no partition "{change.partition}". '
                        f'Name one of {labels}.')
    return found[change.partition]


def _places(
    report: ownership_report.OwnershipReport, part: ownership_report.NodeShare
) -> Iterable[_Place]:
    seen = report.seen
    for node in report.nodes(part):
        used = seen.usage(node) is cloud_state.Usage.USED
        owner = seen.owner_of.get(node.uuid)
        if used and node.instance_uuid is not None:
            owner = seen.instance_of[node.instance_uuid].key or owner
        yield _Place(node.uuid, owner, node.instance_uuid is not None, used)


def _imagined(number: int, preferences: ring.Preferences
              ) -> Iterable[_Place]:
    for index in range(number):
        name = str(uuid.uuid5(_IMAGINED, str(index)))
        yield _Place(name, preferences.host_for(name))


class _Sums:
    """Counts the moves of nodes.

    :param old: hosts without the change
    :param new: hosts with the change
    """

    def __init__(self, zones: Mapping[HostKey, str], old: _Hosts,
                 new: _Hosts) -> None:
        self._zones = zones
        self._old = old
        self._new = new
        self._moves: dict[tuple[HostKey | None, HostKey | None],
                          collections.Counter[bool]] = {}
        self._nodes = 0
        self._anyway = 0
        self._before: collections.Counter[HostKey] = collections.Counter()
        self._after: collections.Counter[HostKey] = collections.Counter()

    def add(self, places: Iterable[_Place], old: ring.Preferences,
            new: ring.Preferences) -> None:
        """Count nodes of one partition, by its rings before and after."""
        self._before.update(dict.fromkeys(old.members, 0))
        self._after.update(dict.fromkeys(new.members, 0))
        for place in places:
            self._nodes += 1
            before = self._final_owner(place, old, self._old)
            after = self._final_owner(place, new, self._new)
            if not place.held:
                self._count(self._before, before, old)
                self._count(self._after, after, new)
            if after == place.owner:
                continue
            self._anyway += before != place.owner
            self._moves.setdefault(
                (place.owner, after), collections.Counter())[place.held] += 1

    def _final_owner(self, place: _Place, preferences: ring.Preferences,
                     hosts: _Hosts) -> HostKey | None:
        """Return the owner of a node after all moves, None for none."""
        owner = place.owner
        if place.held and owner in (
                hosts.serving if place.used else hosts.up):
            return owner
        zone = self._zone(owner)
        found = (preferences.takeover_target(place.uuid, zone) if place.used
                 else preferences.host_for(place.uuid, zone))
        # No host may take it: it stays with its owner, if that one lives.
        if found is None and owner in hosts.serving:
            return owner
        if found is None or place.held:
            return found
        # When a zone has no member left, a host without zone takes its free
        # nodes; from there they move on to the member that the ring prefers.
        return preferences.host_for(place.uuid, self._zone(found))

    def _zone(self, host: HostKey | None) -> str | None:
        return self._zones.get(host) if host is not None else None

    @staticmethod
    def _count(sums: collections.Counter[HostKey], host: HostKey | None,
               preferences: ring.Preferences) -> None:
        if host is not None and host in preferences.members:
            sums[host] += 1

    def plan(self) -> Forecast:
        """Return the sums."""
        return Forecast(
            tuple(Move(source or '', target or '', counts[False],
                       counts[True])
                  for (source, target), counts in sorted(
                      self._moves.items(),
                      key=lambda item: tuple(map(str, item[0])))),
            self._nodes, self._anyway,
            {host: self._before[host] for host in sorted(self._before)},
            {host: self._after[host] for host in sorted(self._after)})


def open_for_builds(services: tuple[cloud_state.Service, ...]
                    ) -> list[cloud_state.Service]:
    """Return the compute services that nova sends builds to."""
    return [s for s in services if s.up and not s.disabled]


class Successors:
    """The hosts that share the nodes when one compute service is down.

    :param seen: with its zones
    :param host: counts as down, even if it is up
    :param settings: of nova.conf on the other hosts
    """

    def __init__(self, seen: cloud_state.CloudState, host: str,
                 settings: ownership_report.SharedSettings) -> None:
        self.host = host_key(host)
        report = ownership_report.OwnershipReport(
            dataclasses.replace(seen, services=tuple(
                dataclasses.replace(service, up=False)
                if service.key == self.host else service
                for service in seen.services)), settings)
        self._report = report
        self._zones = report.zones

    def served(self, node: str) -> bool:
        """Return whether others serve the partition of a node."""
        part = self._partition(node)
        return part.whole or bool(self._report.preferences(part).members)

    def of_node(self, node: str) -> HostKey | None:
        """Return the next owner of a free node, None if there is none."""
        return self._report.preferences(self._partition(node)).host_for(
            node, self._zones.get(self.host))

    def of_server(self, node: str) -> HostKey | None:
        """Return the next host of the server on a node, or None."""
        preferences = self._report.preferences(self._partition(node))
        zone = self._zones.get(self.host)
        owner = self._report.seen.owner_of.get(node)
        if owner is not None and preferences.may_keep(owner, zone):
            return owner
        return preferences.takeover_target(node, zone)

    def _partition(self, node: str) -> ownership_report.NodeShare:
        found = self._report.partitions
        its = self._report.seen.node_of.get(node)
        part = found.of_node(its) if its else found.of_host(self.host)
        return part or ownership_report.NodeShare(frozenset(), frozenset())
