# SPDX-License-Identifier: Apache-2.0

"""Which placement aggregates the resource provider of a node carries.

The scheduler asks placement for zones and projects by aggregate, but nova's
API writes the aggregates of a host only to its first node. A provider keeps
aggregates that nova does not know (sharing providers, routed networks), and
those without an Ironic compute service. Operators put them on single nodes of
a host with several zones. Members that nova had since this process began still
count. Older changes stay, as removing the aggregates of others would harm.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """One host aggregate of nova, with the zone in its metadata."""

    uuid: str
    hosts: frozenset[HostKey]
    availability_zone: str | None = None

    @classmethod
    def of(cls, uuid: str, hosts: Iterable[str],
           availability_zone: str | None = None) -> 'Aggregate':
        """Return an aggregate, with hosts as nova spells them."""
        return cls(uuid, frozenset(map(host_key, hosts)), availability_zone)


@dataclasses.dataclass(frozen=True)
class KnownAggregates:
    """nova's aggregates; ``members`` has all hosts that are or were in one."""

    aggregates: tuple[Aggregate, ...] = ()
    members: Mapping[str, frozenset[HostKey]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
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
        return KnownAggregates(
            tuple(read), types.MappingProxyType(members), True)


def wanted(host: HostKey, known: KnownAggregates, current: Iterable[str],
           hosts: Iterable[HostKey]) -> frozenset[str]:
    """Return the aggregates that the provider of a node should carry."""
    # The ``hosts`` own or may have owned nodes: only theirs are removed.
    owners = {host, *hosts}
    return frozenset(known.of(host).union(
        uuid for uuid in current
        if owners.isdisjoint(known.members.get(uuid, ()))))


def zones(aggregates: Iterable[Aggregate]) -> dict[HostKey, str]:
    """Return host -> explicit zone, the first if there are several."""
    found: dict[HostKey, str] = {}
    for aggregate in aggregates:
        zone = aggregate.availability_zone
        if zone:
            for host in aggregate.hosts:
                found[host] = min(zone, found.get(host, zone))
    return found
