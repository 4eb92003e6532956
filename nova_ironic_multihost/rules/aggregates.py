# SPDX-License-Identifier: Apache-2.0


"""Which placement aggregates the resource provider of a node carries.

For an availability zone, a project's aggregate or an isolated aggregate the
scheduler asks placement by aggregate uuid. A node is found only if its
provider carries the aggregates of its host. nova's API writes them to the
first node of a host alone, and to none that comes later.

A provider also carries other aggregates, and those stay:

- aggregates that are not nova's: operators use them for providers that share
    something, neutron for the segments of routed networks;
- aggregates of nova without an Ironic compute service: operators put them on
    single nodes, since a host with nodes in several zones cannot express that.
    No move of a node can have brought them.

Aggregates and members that nova had earlier in this process count as if they
were there now. nova deletes an aggregate only when it is empty, so its uuid
stays on a provider for no longer than an audit. Changes while this service was
down are not known, and stay: no request names a deleted aggregate, and a
missing one would do harm.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """A host aggregate of nova.

    :param uuid: also its name in placement.
    :param availability_zone: the zone that its metadata names, or None.
    """

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
    """What a compute service knows of nova's aggregates.

    :param aggregates: all of nova's.
    :param members: uuid -> hosts that are or were in it, of all aggregates
        that nova has or had.
    :param read: they could be read at least once; before that nothing is
        changed.
    """

    aggregates: tuple[Aggregate, ...] = ()
    members: Mapping[str, frozenset[HostKey]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    read: bool = False

    def of(self, host: HostKey) -> frozenset[str]:
        """Return the uuids of the aggregates of a host."""
        return frozenset(aggregate.uuid for aggregate in self.aggregates
                         if host in aggregate.hosts)

    def after(self, read: tuple[Aggregate, ...] | None) -> 'KnownAggregates':
        """Return what is known after one more read.

        :param read: all aggregates, or None if they could not be read.
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

    Those of its host, and of the current ones those that no host can have
    brought.

    :param host: the compute service that owns the node.
    :param current: uuids that the provider carries.
    :param hosts: hosts that own or may have owned nodes.
    """
    owners = {host, *hosts}
    return frozenset(known.of(host).union(
        uuid for uuid in current
        if owners.isdisjoint(known.members.get(uuid, ()))))


def zones(aggregates: Iterable[Aggregate]) -> dict[HostKey, str]:
    """Return host -> availability zone, of hosts in an explicit zone.

    A host in none of the aggregates with a zone is in nova's default zone. Of
    several zones, which nova's API does not allow, it is always the same one.
    """
    found: dict[HostKey, str] = {}
    for aggregate in aggregates:
        zone = aggregate.availability_zone
        if zone:
            for host in aggregate.hosts:
                found[host] = min(zone, found.get(host, zone))
    return found
