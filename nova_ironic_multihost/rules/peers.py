# SPDX-License-Identifier: Apache-2.0

"""Compute services that share nodes: peers and members.

A *peer* serves the same nodes: any compute service with an Ironic node or,
with ``[ironic]conductor_group`` or ``[ironic]shard``, those that
``[ironic]peer_list`` names. A *member* is a peer that is up and enabled; the
hash ring consists of the members. A service with a stop marker stays a member
while it may come back (:mod:`.stop_marker`). A host judges itself by nova's
services table as well, so that all hosts agree about it.

DNS and MySQL ignore the case of host names, and a host that was renamed in
case only has services and records under both spellings (nova bug 1866380). A
``str`` is a name as nova spells it; comparisons and keys of maps use
:data:`HostKey`.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import datetime
import types
import typing
import urllib.parse

#: The name by which a host is told from others: in lower case.
HostKey = typing.NewType('HostKey', str)


def host_key(name: str) -> HostKey:
    """Return the key of a host, whose name may be spelled in any case."""
    return HostKey(name.lower())


@dataclasses.dataclass(frozen=True)
class ComputeService:
    """One nova-compute service, as far as it is known.

    :param host: its name, as nova spells it.
    :param up: its heartbeat is fresh, and it is not forced down.
    :param disabled: an operator has disabled it.
    :param forced_down: an operator or a tool has declared it dead.
    :param ironic: it has an Ironic compute node.
    :param stop_marker: the marker that it wrote when it was told to stop, or
        ''; nova then has it disabled, without an operator.
    :param beat: time of its last heartbeat, by the clock of the conductor that
        wrote it; None if there was none, or no database has it.
    """

    host: str
    up: bool
    disabled: bool = False
    forced_down: bool = False
    ironic: bool = True
    stop_marker: str = ''
    # It changes all the time, and nothing follows from it for the nodes.
    beat: datetime.datetime | None = dataclasses.field(
        default=None, compare=False)

    @property
    def key(self) -> HostKey:
        """The host."""
        return host_key(self.host)


@dataclasses.dataclass(frozen=True)
class Partition:
    """The nodes that a group of compute services shares.

    All nodes, or those of one ``[ironic]conductor_group`` and/or ``shard``.

    :param conductor_group: in lower case, as Ironic has it; '' is Ironic's
        default group, None means any.
    :param shard: name of the shard, or None for any.
    :param peer_list: hosts that the operator named.
    """

    conductor_group: str | None = None
    shard: str | None = None
    peer_list: tuple[str, ...] = ()

    @classmethod
    def from_label(cls, label: str) -> 'Partition':
        """Return the partition of a :attr:`label`, without the peers."""
        fields = dict(urllib.parse.parse_qsl(label, keep_blank_values=True))
        group = fields.get('conductor_group')
        return cls(group if group is None else group.lower(),
                   fields.get('shard'))

    @property
    def label(self) -> str:
        """The partition as other hosts know it; '' for all nodes."""
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
        """Whether no node can be in both partitions."""
        return any(
            here is not None and there is not None and here != there
            for here, there in (
                (self.conductor_group, other.conductor_group),
                (self.shard or None, other.shard or None)))


def same_label(label: str) -> str:
    """Return a label as this release writes it."""
    return Partition.from_label(label).label if label else label


@dataclasses.dataclass(frozen=True)
class View:
    """The compute services as one host sees them at one moment.

    :param host: the host.
    :param services: host -> :class:`ComputeService`.
    :param peers: hosts that share the partition; None for every host that is
        not in ``other_partition_hosts``.
    :param other_partition_hosts: hosts that serve another partition.
    :param starting: the host has just started, before its first heartbeat; it
        still counts as a member.
    :param over: (host, stop marker) of hosts that stopped too long ago.
    """

    host: HostKey
    services: Mapping[HostKey, ComputeService] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    peers: Set[HostKey] | None = None
    other_partition_hosts: Set[HostKey] = frozenset()
    starting: bool = False
    over: Set[tuple[HostKey, str]] = frozenset()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that have a service, as nova spells them."""
        return tuple(service.host for service in self.services.values())

    def live(self, host: HostKey | None) -> bool:
        """Whether the host is up; False if nova does not know it."""
        service = self.services.get(host) if host is not None else None
        return service is not None and service.up

    def fenced(self, host: HostKey) -> bool:
        """Whether the host was declared dead."""
        service = self.services.get(host)
        return service is not None and service.forced_down

    def gone(self, host: HostKey) -> bool:
        """Whether the host stopped too long ago; it may still be up."""
        service = self.services.get(host)
        return service is not None and (host, service.stop_marker) in self.over

    def peer(self, host: HostKey) -> bool:
        """Whether the host shares the partition."""
        if host in self.other_partition_hosts:
            return False
        return self.peers is None or host in self.peers

    def member(self, host: HostKey) -> bool:
        """Whether the host is a member."""
        service = self.services.get(host)
        if service is None:
            # I am as new as that, or alone; or somebody has deleted my
            # service, and the others take my nodes.
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


def view(services: Iterable[ComputeService], partition: Partition, host: str,
         other_partition_hosts: Iterable[HostKey] = (),
         starting: bool = False,
         over: Iterable[tuple[HostKey, str]] = ()) -> View:
    """Return the :class:`View` of a host; parameters as there.

    :param services: all compute services that are known.
    """
    return View(host_key(host), by_host(services), partition.peers,
                frozenset(other_partition_hosts), starting, frozenset(over))


def by_host(services: Iterable[ComputeService]
            ) -> Mapping[HostKey, ComputeService]:
    """Return an immutable map: host -> service.

    :param services: of two with one key (a host renamed in case, on a database
        that tells the names apart) the one with the later heartbeat counts;
        without time stamps the one that is up.
    """
    known: dict[HostKey, ComputeService] = {}
    for service in services:
        before = known.get(service.key)
        if before is None or _at_work(service) > _at_work(before):
            known[service.key] = service
    return types.MappingProxyType(known)


def _at_work(service: ComputeService) -> tuple[datetime.datetime, bool]:
    return (service.beat or datetime.datetime.min).replace(
        tzinfo=datetime.UTC), service.up


def spellings(services: Iterable[ComputeService], host: str
              ) -> tuple[str, ...]:
    """Return the spellings of a host's name in nova, ``host`` first."""
    return tuple(dict.fromkeys(
        [host, *sorted(service.host for service in services
                       if service.key == host_key(host))]))
