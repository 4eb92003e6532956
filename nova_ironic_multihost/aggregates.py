# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""Which placement aggregates the resource provider of a node carries.

Pure. The scheduler asks placement for an availability zone, a tenant's
aggregate or against an isolated one by aggregate uuid, so a node can only be
found there if its provider carries the aggregates of its host. nova's API
writes them to the first node of a host alone, and to none that comes later.

A provider also carries aggregates of others: operators put them there for
sharing providers, neutron for the segments of routed networks. Those stay.
*Of nova* is what nova has now or had at any time since this process started.
nova deletes an aggregate only when it has no hosts, so its uuid may be left on
a provider for no longer than an audit; what a service that was down meanwhile
leaves behind counts as another's and stays: no request ever names the uuid of
a deleted aggregate, while taking away an aggregate of others would harm them.

Host names are compared in lower case, as everywhere in this package.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """One host aggregate of nova.

    :param uuid: its uuid, which is also its name in placement.
    :param hosts: frozenset of its hosts, as nova spells them.
    :param availability_zone: the zone that its metadata names, or None.
    """

    uuid: str
    hosts: frozenset[str]
    availability_zone: str | None = None

    def has(self, host):
        """Whether a host, in any case, is in the aggregate."""
        return host.lower() in {member.lower() for member in self.hosts}


@dataclasses.dataclass(frozen=True)
class Known:
    """What a compute service knows of nova's aggregates.

    ``Known()`` is the start: nothing is known, so nothing is changed.

    :param aggregates: tuple of :class:`Aggregate`, all of nova's.
    :param former: frozenset of the uuids of those that nova had before.
    """

    aggregates: tuple[Aggregate, ...] = ()
    former: frozenset[str] = frozenset()

    @property
    def uuids(self):
        """The uuids of all aggregates that are or were nova's."""
        return self.former.union(
            aggregate.uuid for aggregate in self.aggregates)

    def after(self, read):
        """Return what is known after one more reading.

        :param read: tuple of :class:`Aggregate`, or None when they could
            not be read: what was known then stays.
        """
        if read is None:
            return self
        return Known(aggregates=tuple(read), former=self.uuids.difference(
            aggregate.uuid for aggregate in read))


def wanted(host, known, current):
    """Return the aggregates that a provider should carry.

    :param host: the compute service that owns the node, in any case.
    :param known: :class:`Known`.
    :param current: iterable of the uuids that the provider carries.
    :returns: frozenset of uuids: those of the host's aggregates, and of the
        current ones those that are not nova's.
    """
    hosts = {aggregate.uuid for aggregate in known.aggregates
             if aggregate.has(host)}
    return frozenset(current).difference(known.uuids).union(hosts)


def zones(aggregates):
    """Return the hosts that are explicitly in an availability zone.

    :param aggregates: iterable of :class:`Aggregate`.
    :returns: dict of host in lower case -> name of the zone. A host that is
        in none of the aggregates with a zone is missing: it is in nova's
        default zone. Of several zones, which nova's API does not allow, it
        is always the same one.
    """
    found = {}
    for aggregate in aggregates:
        zone = aggregate.availability_zone
        if zone:
            for host in aggregate.hosts:
                host = host.lower()
                found[host] = min(zone, found.get(host, zone))
    return found
