# SPDX-License-Identifier: Apache-2.0


"""Which placement aggregates the resource provider of a node carries.

Pure. The scheduler asks placement for an availability zone, a project's
aggregate or against an isolated one by aggregate uuid, so a node can only be
found there if its provider carries the aggregates of its host. nova's API
writes them to the first node of a host alone, and to none that comes later.

A provider carries aggregates of others, too, and those stay:

- what is no aggregate of nova: operators put it there for providers that
  share something, neutron for the segments of routed networks;
- aggregates of nova that no Ironic compute service is in: operators put them
  on single nodes by hand, because a host with nodes in several zones cannot
  express that. No move of a node can have brought them.

What nova had, or who was in it, earlier in this process counts as if it were
so now. nova deletes an aggregate only when it has no hosts, so that its uuid
stays on a provider for no longer than an audit. What changed while this
service was down is not known and stays: no request names the uuid of a
deleted aggregate, while taking away what others need would harm them.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """One host aggregate of nova.

    :param uuid: its uuid, which is also its name in placement.
    :param hosts: its hosts.
    :param availability_zone: the zone that its metadata names, or None.
    """

    uuid: str
    hosts: frozenset[HostKey]
    availability_zone: str | None = None

    @classmethod
    def of(cls, uuid: str, hosts: Iterable[str],
           availability_zone: str | None = None) -> 'Aggregate':
        """Return an aggregate whose hosts are spelled as nova does."""
        return cls(uuid, frozenset(map(host_key, hosts)), availability_zone)


@dataclasses.dataclass(frozen=True)
class KnownAggregates:
    """What a compute service knows of nova's aggregates.

    ``Known()`` is the start: nothing is known, so nothing is changed.

    :param aggregates: tuple of :class:`Aggregate`, all of nova's.
    :param members: uuid -> the hosts that are or were in it; of aggregates
        that nova has or had.
    :param read: whether they could ever be read.
    """

    aggregates: tuple[Aggregate, ...] = ()
    members: Mapping[str, frozenset[HostKey]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    read: bool = False

    def of(self, host: HostKey) -> frozenset[str]:
        """Return the uuids of the aggregates that a host is in."""
        return frozenset(aggregate.uuid for aggregate in self.aggregates
                         if host in aggregate.hosts)

    def after(self, read: tuple[Aggregate, ...] | None) -> 'KnownAggregates':
        """Return what is known after one more reading.

        :param read: tuple of :class:`Aggregate`, or None when they could
            not be read: what was known then stays.
        """
        if read is None:
            return self
        members = dict(self.members)
        for aggregate in read:
            members[aggregate.uuid] = aggregate.hosts.union(
                members.get(aggregate.uuid, ()))
        return KnownAggregates(
            tuple(read), types.MappingProxyType(members), True
        )


def wanted(host: HostKey, known: KnownAggregates, current: Iterable[str],
           hosts: Iterable[HostKey]) -> frozenset[str]:
    """Return the aggregates that the provider of a node should carry.

    :param host: the compute service that owns the node.
    :param known: :class:`KnownAggregates`.
    :param current: iterable of the uuids that the provider carries.
    :param hosts: iterable of the hosts that own or may have owned nodes, such
        as ``View.services``; ``host`` need not be there.
    :returns: frozenset of uuids: those of the host's aggregates, and of the
        current ones those that no host can have brought.
    """
    owners = {host, *hosts}
    return frozenset(known.of(host).union(
        uuid for uuid in current
        if owners.isdisjoint(known.members.get(uuid, ()))))


def zones(aggregates: Iterable[Aggregate]) -> dict[HostKey, str]:
    """Return the hosts that are explicitly in an availability zone.

    :param aggregates: iterable of :class:`Aggregate`.
    :returns: dict of host -> name of the zone. A host that is
        in none of the aggregates with a zone is missing: it is in nova's
        default zone. Of several zones, which nova's API does not allow, it
        is always the same one.
    """
    found: dict[HostKey, str] = {}
    for aggregate in aggregates:
        zone = aggregate.availability_zone
        if zone:
            for host in aggregate.hosts:
                found[host] = min(zone, found.get(host, zone))
    return found
