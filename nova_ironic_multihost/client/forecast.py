# SPDX-License-Identifier: Apache-2.0

"""What would move if compute services came or went.

By the ring of the driver: a free node goes to whom that prefers, and a server
whose compute service is gone and forced down to the takeover target of its
node.
"""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import uuid

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.client import partitions
from nova_ironic_multihost.client import usage
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

#: The namespace of uuids of nodes that do not exist.
_IMAGINED = uuid.UUID('6f1f1f0e-1d0c-5a53-9d0e-2f6a0b7c8d9e')


class PlanError(ValueError):
    """Such a change makes no sense; a sentence or two, with the remedy."""


@dataclasses.dataclass(frozen=True)
class Change:
    """Compute services that come, and such as go for good.

    :param add: hosts.
    :param remove: hosts.
    :param zone: availability zone of those that come; None for what the host
        aggregates say.
    :param partition: label of the partition that they serve; None if there
        is but one.
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    zone: str | None = None
    partition: str | None = None

    @property
    def added(self) -> frozenset[HostKey]:
        """Who comes."""
        return frozenset(map(host_key, self.add))

    @property
    def removed(self) -> frozenset[HostKey]:
        """Who goes."""
        return frozenset(map(host_key, self.remove))


@dataclasses.dataclass(frozen=True)
class Move:
    """Nodes that go from one compute service to another.

    :param source: '' for nodes that nobody owns.
    :param target: '' if nobody may have them: they stay.
    :param free: how many are free; these move by themselves.
    :param held: how many have a server or a leaked machine; these move when
        the source is forced down.
    """

    source: str
    target: str
    free: int
    held: int


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a change brings.

    :param moves: by source and target.
    :param nodes: how many nodes were looked at.
    :param anyway: how many of those that move would move without it, too, if
        not to the same one.
    :param before: member of the ring -> free nodes, at rest without it.
    :param after: the same with it.
    """

    moves: tuple[Move, ...]
    nodes: int
    anyway: int
    before: Mapping[str, int]
    after: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a node is, and what Ironic holds it for.

    :param owner: the compute service of its server, or whose its record is.
    :param held: Ironic holds it for a server, one of nova or not.
    :param used: nova has that server.
    """

    uuid: str
    owner: HostKey | None
    held: bool = False
    used: bool = False


@dataclasses.dataclass(frozen=True)
class _Alive:
    """Who keeps what Ironic holds a node for.

    :param up: keep machines that leaked; from others those are taken.
    :param serving: keep their servers: not fenced, and known to nova.
    """

    up: frozenset[HostKey]
    serving: frozenset[HostKey]

    @classmethod
    def of(cls, seen: cloud_state.CloudState) -> '_Alive':
        return cls(seen.up_hosts, frozenset(
            host for host, service in seen.service_of.items()
            if not service.forced_down))

    def after(self, change: Change) -> '_Alive':
        return _Alive((self.up | change.added) - change.removed,
                      (self.serving | change.added) - change.removed)


def plan(judged: ownership_report.OwnershipReport, change: Change,
         imagined: int | None = None) -> Forecast:
    """Say what would move.

    :param judged: the cloud as it is.
    :param change: who comes and who goes.
    :param imagined: a number of free nodes to reckon with instead of those
        that Ironic has.
    :raises PlanError: when the change does not fit the cloud
    """
    _refuse(judged, change)
    # What these own does not tell who serves it.
    judged = ownership_report.OwnershipReport(
        judged.seen, judged.settings, gone=change.removed)
    where = _partition(
        judged, change, needed=bool(change.add) or imagined is not None)
    zones = dict(judged.zones)
    if change.zone:
        zones.update(dict.fromkeys(change.added, change.zone))
    before = _Alive.of(judged.seen)
    sums = _Sums(zones, before, before.after(change))
    for part in judged.partitions.found:
        old = judged.preferences(part)
        added = change.added if part is where else frozenset()
        new = ring.Preferences(
            {host: zones.get(host)
             for host in (old.members.keys() | added) - change.removed},
            old.points, old.cross_zones)
        if imagined is not None:
            if part is where:
                sums.add(_imagined(imagined, old), old, new)
        else:
            sums.add(_places(judged, part), old, new)
    return sums.plan()


def _refuse(judged: ownership_report.OwnershipReport, change: Change) -> None:
    for host in change.remove:
        if host_key(host) not in judged.seen.service_of and (
                judged.partitions.of_host(host_key(host)) is None):
            raise PlanError(
                f'nova has no compute service {host} that could be removed. '
                'Look at "nova-ironic-multihost list".')
    for host in change.add:
        if judged.is_member(host_key(host)):
            raise PlanError(
                f'{host} shares the nodes already. Name one that does not.')
    both = change.added & change.removed
    if both:
        raise PlanError(f'{", ".join(sorted(both))} cannot be added and '
                        'removed at once. Name it once.')


def _partition(
    judged: ownership_report.OwnershipReport, change: Change, needed: bool
) -> partitions.NodeShare:
    """Return the one that added hosts and imagined nodes are in, if any."""
    found = {part.label: part for part in judged.partitions.found}
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
    judged: ownership_report.OwnershipReport, part: partitions.NodeShare
) -> Iterable[_Place]:
    seen = judged.seen
    for node in judged.nodes(part):
        used = usage.of(node, seen) is usage.Usage.USED
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
    """Adds up what becomes of nodes."""

    def __init__(self, zones: Mapping[HostKey, str], old: _Alive,
                 new: _Alive) -> None:
        self._zones = zones
        # Without the change and with it.
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
        """Take nodes of one partition, with its rings before and after."""
        self._before.update(dict.fromkeys(old.members, 0))
        self._after.update(dict.fromkeys(new.members, 0))
        for place in places:
            self._nodes += 1
            before = self._rests(place, old, self._old)
            after = self._rests(place, new, self._new)
            if not place.held:
                self._count(self._before, before, old)
                self._count(self._after, after, new)
            if after == place.owner:
                continue
            self._anyway += before != place.owner
            self._moves.setdefault(
                (place.owner, after), collections.Counter())[place.held] += 1

    def _rests(self, place: _Place, preferences: ring.Preferences,
               alive: _Alive) -> HostKey | None:
        """Return who has the node when all is at rest, None for nobody."""
        owner = place.owner
        if place.held and owner in (
                alive.serving if place.used else alive.up):
            return owner
        zone = self._zone(owner)
        found = (preferences.takeover_target(place.uuid, zone) if place.used
                 else preferences.host_for(place.uuid, zone))
        # Without a taker it stays where it is, if that is still there.
        if found is None and owner in alive.serving:
            return owner
        if found is None or place.held:
            return found
        # Who is in no zone takes those of a zone that has no member left, and
        # whoever is preferred among all takes them then.
        return preferences.host_for(place.uuid, self._zone(found))

    def _zone(self, host: HostKey | None) -> str | None:
        return self._zones.get(host) if host is not None else None

    @staticmethod
    def _count(sums: collections.Counter[HostKey], host: HostKey | None,
               preferences: ring.Preferences) -> None:
        if host is not None and host in preferences.members:
            sums[host] += 1

    def plan(self) -> Forecast:
        """Return what was added up."""
        return Forecast(
            tuple(Move(source or '', target or '', counts[False],
                       counts[True])
                  for (source, target), counts in sorted(
                      self._moves.items(),
                      key=lambda item: tuple(map(str, item[0])))),
            self._nodes, self._anyway,
            {host: self._before[host] for host in sorted(self._before)},
            {host: self._after[host] for host in sorted(self._after)})
