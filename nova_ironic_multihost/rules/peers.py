# SPDX-License-Identifier: Apache-2.0

"""Hosts and their names; services, peers and members.

DNS and MySQL ignore case, and a host that was renamed in case only has records
under both names (nova bug 1866380). So a :data:`HostKey` compares hosts, and a
plain ``str`` is a name as nova spells it. A *peer* is a compute service of the
same partition: any with an Ironic compute node, or with
``[ironic]conductor_group`` or ``shard`` those in ``peer_list``. A *member* of
the hash ring is a peer that is up and enabled, or is stopping and may come
back (:mod:`.liveness`). nova judges this host too, so all hosts agree.
"""

from collections import abc
import dataclasses
import datetime
import typing
import urllib.parse

#: The name of a host in lower case, for comparisons and keys.
HostKey = typing.NewType('HostKey', str)


def host_key(name: str) -> HostKey:
    """Return the key of a host."""
    return HostKey(name.lower())


@dataclasses.dataclass(frozen=True)
class ComputeService:
    """A nova-compute service as nova has it."""

    host: str
    up: bool
    disabled: bool = False
    forced_down: bool = False
    #: It is known to have an Ironic compute node.
    ironic: bool = True
    #: Its disabled reason in nova, see :mod:`.liveness`.
    stop_marker: str = ''
    #: Last heartbeat, by a conductor's clock. A new one changes no decision.
    beat: datetime.datetime | None = dataclasses.field(
        default=None, compare=False)

    @property
    def key(self) -> HostKey:
        """The key of the host."""
        return host_key(self.host)


@dataclasses.dataclass(frozen=True)
class Partition:
    """The nodes that a group of compute services shares; None is any."""

    #: In lower case; '' is Ironic's default.
    conductor_group: str | None = None
    shard: str | None = None
    peer_list: tuple[str, ...] = ()

    @classmethod
    def from_label(cls, label: str) -> 'Partition':
        """Return the partition with this :attr:`label`, without its peers."""
        fields = dict(urllib.parse.parse_qsl(label, keep_blank_values=True))
        group = fields.get('conductor_group')
        return cls(group if group is None else group.lower(),
                   fields.get('shard'))

    @property
    def label(self) -> str:
        """The name of the partition for other hosts; '' for all nodes."""
        return urllib.parse.urlencode({
            name: value for name, value in (
                ('conductor_group', self.conductor_group),
                ('shard', self.shard or None)) if value is not None})

    @property
    def peers(self) -> frozenset[HostKey] | None:
        """The other hosts that may be members; None for any."""
        if not self.label:
            return None
        return frozenset(host_key(name) for name in self.peer_list)

    def excludes(self, other: 'Partition') -> bool:
        """Return whether no node can be in both partitions."""
        return any(
            here is not None and there is not None and here != there
            for here, there in (
                (self.conductor_group, other.conductor_group),
                (self.shard or None, other.shard or None)))


def same_label(label: str) -> str:
    """Return a label as this release would write it."""
    return Partition.from_label(label).label if label else label


@dataclasses.dataclass(frozen=True)
class View:
    """The compute services as one host sees them at one moment."""

    host: HostKey
    services: abc.Mapping[HostKey, ComputeService] = dataclasses.field(
        default_factory=dict)
    #: Hosts of the partition; None for all not in another one.
    peers: abc.Set[HostKey] | None = None
    other_partition_hosts: abc.Set[HostKey] = frozenset()
    #: This host is a member even without a heartbeat.
    starting: bool = False
    #: (host, stop marker) of hosts that have not come back in time.
    over: abc.Set[tuple[HostKey, str]] = frozenset()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that have a service, as nova spells them."""
        return tuple(service.host for service in self.services.values())

    def live(self, host: HostKey | None) -> bool:
        """Return whether the host is live; False if nova does not have it."""
        # In a judged view it is up until seen dead (liveness.Outages.judged).
        service = self.services.get(host) if host is not None else None
        return service is not None and service.up

    def fenced(self, host: HostKey) -> bool:
        """Return whether the host is forced down."""
        service = self.services.get(host)
        return service is not None and service.forced_down

    def gone(self, host: HostKey) -> bool:
        """Return whether the host was stopped long ago; it may still be up."""
        service = self.services.get(host)
        return service is not None and (host, service.stop_marker) in self.over

    def peer(self, host: HostKey) -> bool:
        """Return whether the host shares the partition."""
        if host in self.other_partition_hosts:
            return False
        return self.peers is None or host in self.peers

    def member(self, host: HostKey) -> bool:
        """Return whether the host is a member."""
        service = self.services.get(host)
        if service is None:
            # Without a service I am new or alone, or somebody has deleted it.
            return host == self.host and (
                self.starting or not self.services)
        if host == self.host:
            return not (service.disabled or service.forced_down
                        or not (service.up or self.starting))
        return (service.up and service.ironic and not service.disabled
                and self.peer(host) and not self.gone(host))

    @property
    def members(self) -> frozenset[HostKey]:
        """The hosts that are members."""
        return frozenset(
            host for host in {*self.services, self.host}
            if self.member(host))


def view(services: abc.Iterable[ComputeService], partition: Partition,
         host: str, other_partition_hosts: abc.Iterable[HostKey] = (),
         starting: bool = False, over: abc.Iterable[tuple[HostKey, str]] = ()
        ) -> View:
    """Return the :class:`View` of a host; see there for the parameters."""
    return View(host_key(host), by_host(services), partition.peers,
                frozenset(other_partition_hosts), starting, frozenset(over))


def by_host(services: abc.Iterable[ComputeService]
            ) -> abc.Mapping[HostKey, ComputeService]:
    """Return host -> service."""
    # Of two services of a host that was renamed in case the one with the last
    # heartbeat counts, fenced or not; without time stamps the one that is up.
    known: dict[HostKey, ComputeService] = {}
    for service in services:
        before = known.get(service.key)
        if before is None or _recency(service) > _recency(before):
            known[service.key] = service
    return known


def _recency(service: ComputeService) -> tuple[datetime.datetime, bool]:
    return (service.beat or datetime.datetime.min).replace(
        tzinfo=datetime.UTC), service.up


def spellings(services: abc.Iterable[ComputeService], host: str
              ) -> tuple[str, ...]:
    """Return the names of a host in nova, ``host`` first."""
    return tuple(dict.fromkeys(
        [host, *sorted(service.host for service in services
                       if service.key == host_key(host))]))


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """One host aggregate of nova, with the zone in its metadata."""

    uuid: str
    hosts: frozenset[HostKey]
    availability_zone: str | None = None

    @classmethod
    def of(cls, uuid: str, hosts: abc.Iterable[str],
           availability_zone: str | None = None) -> 'Aggregate':
        """Return an aggregate, with hosts as nova spells them."""
        return cls(uuid, frozenset(map(host_key, hosts)), availability_zone)


@dataclasses.dataclass(frozen=True)
class KnownAggregates:
    """nova's aggregates; ``members`` has all hosts that are or were in one."""

    aggregates: tuple[Aggregate, ...] = ()
    members: abc.Mapping[str, frozenset[HostKey]] = dataclasses.field(
        default_factory=dict)
    read: bool = False

    def of(self, host: HostKey) -> frozenset[str]:
        """Return the uuids of the aggregates that a host is in."""
        return frozenset(aggregate.uuid for aggregate in self.aggregates
                         if host in aggregate.hosts)

    def after(self, read: tuple[Aggregate, ...] | None) -> 'KnownAggregates':
        """Return this after another read, None if that has failed."""
        if read is None:
            return self
        members = dict(self.members)
        for aggregate in read:
            members[aggregate.uuid] = aggregate.hosts.union(
                members.get(aggregate.uuid, ()))
        return KnownAggregates(tuple(read), members, True)


def wanted_aggregates(host: HostKey, known: KnownAggregates,
                      current: abc.Iterable[str], hosts: abc.Iterable[HostKey]
                      ) -> frozenset[str]:
    """Return the aggregates that the provider of a node should carry."""
    # The scheduler asks placement for zones and projects by aggregate, but
    # nova's API writes the aggregates of a host only to its first node. A
    # provider keeps aggregates that nova does not know (sharing providers,
    # routed networks), and those without an Ironic compute service. Operators
    # put them on single nodes of a host with several zones. Members that nova
    # had since this process began still count. Older changes stay, as removing
    # the aggregates of others would harm.
    # The ``hosts`` own or may have owned nodes: only theirs are removed.
    owners = {host, *hosts}
    return frozenset(known.of(host).union(
        uuid for uuid in current
        if owners.isdisjoint(known.members.get(uuid, ()))))


def host_zones(aggregates: abc.Iterable[Aggregate]) -> dict[HostKey, str]:
    """Return host -> explicit zone, the first if there are several."""
    found: dict[HostKey, str] = {}
    for aggregate in aggregates:
        zone = aggregate.availability_zone
        if zone:
            for host in aggregate.hosts:
                found[host] = min(zone, found.get(host, zone))
    return found
