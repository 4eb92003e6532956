# SPDX-License-Identifier: Apache-2.0

"""Report who owns a node, why, and what happens to it next.

For each compute service it calls :func:`.rules.ownership.decide`, as the
driver does, with data from the APIs.

No API shows ``[ironic]conductor_group`` and ``shard`` of a compute service.
But a host owns nodes of its partition only, so hosts that own nodes of one
group and shard share a partition. Hosts that are down count only for groups
and shards without a live owner, as their nodes may have been regrouped.

When a node of a live host gets another group or shard, two partitions look
like one until the node has moved or its server is deleted.
"""

import collections
import dataclasses
import typing

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

#: Seconds of nova's default for service_down_time.
DOWN_TIME = 60

#: Conductor group and shard of nodes, '' for none.
Kind: typing.TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class NodeShare:
    """A partition: hosts, and the groups and shards that they share.

    :ivar label: the name for people: 'all', or its groups and shards.
    """

    hosts: frozenset[HostKey]
    kinds: frozenset[Kind]
    label: str = 'all'


def _words(kind: Kind) -> str:
    group, shard = kind
    words = ([f'group {group}'] if group else
             [] if shard else ['default group'])
    return ', '.join(words + ([f'shard {shard}'] if shard else []))


def partitions(seen: cloud_state.CloudState) -> tuple[NodeShare, ...]:
    """Derive all partitions from the records."""
    owners = collections.defaultdict[Kind, collections.Counter[HostKey]](
        collections.Counter)
    for record in seen.records:
        if record.node in seen.node_of:
            owners[_kind(seen.node_of[record.node])][record.owner] += 1
    found: list[NodeShare] = []
    for kind, counts in sorted(owners.items()):
        hosts = frozenset(counts)
        hosts = hosts & seen.up_hosts or hosts
        shared = [part for part in found if part.hosts & hosts]
        found = [part for part in found if part not in shared]
        found.append(NodeShare(
            hosts.union(*(part.hosts for part in shared)),
            frozenset({kind}).union(*(part.kinds for part in shared))))
    every = frozenset(seen.service_of).union(*owners.values())
    if len(found) < 2:
        return (NodeShare(every, frozenset(map(_kind, seen.nodes))),)
    # A host that is down goes to the partition of most of its nodes.
    most = {host: max(owners, key=lambda kind: owners[kind][host])
            for host in every.difference(*(part.hosts for part in found))
            if any(counts[host] for counts in owners.values())}
    return tuple(
        NodeShare(
            part.hosts.union(host for host, kind in most.items()
                             if kind in part.kinds),
            part.kinds, ' + '.join(map(_words, sorted(part.kinds))))
        for part in found)


def _kind(node: cloud_state.Node) -> Kind:
    return node.conductor_group, node.shard


@dataclasses.dataclass(frozen=True)
class SharedSettings:
    """Settings of nova.conf that all compute services have in common.

    :param points: ``[ironic_multihost]ring_partitions``.
    :param cross_zones: ``[ironic_multihost]move_across_zones``.
    """

    points: int
    cross_zones: bool = False


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """The owner of one node, and the next decision about it.

    :param owner: host of its record, None without a record.
    :param preferred: host that the ring prefers; None without one, or if the
        partition of the node is not known.
    :param why: decision of the owner; None if the owner is not up.
    :param decider: another host that decides about the node, or None.
    :param next: decision of ``decider``.
    :param ahead: what happens next, in words; '' for nothing.
    """

    node: cloud_state.Node
    owner: HostKey | None
    preferred: HostKey | None
    why: Reason | None
    decider: HostKey | None
    next: Reason | None
    ahead: str

    @property
    def because(self) -> str:
        """The decision of the owner, in words; '' if it is not up."""
        return self.why and f'{self.why.value} {_rule(self.why)}' or ''

    @property
    def moves(self) -> bool:
        """Whether the node is about to change its owner."""
        return self.next is not None and self.next.mine


def _rule(reason: Reason) -> str:
    return f'(rule {", ".join(map(str, reason.rules))})'


class OwnershipReport:
    """Decides about nodes as each compute service would.

    :param shares: the partitions; None for those of ``seen``.
    :ivar partition_of: host -> its partition, if that is known.
    :ivar preferences: partition -> what its ring prefers.
    """

    def __init__(self, seen: cloud_state.CloudState,
                 settings: SharedSettings,
                 shares: tuple[NodeShare, ...] | None = None) -> None:
        self.seen = seen
        self.settings = settings
        self.partitions = shares or partitions(seen)
        self.partition_of = {
            host: part for part in self.partitions for host in part.hosts}
        self._of_kind = {
            kind: part for part in self.partitions for kind in part.kinds}
        # As the driver has them: a stop marker disables nothing.
        self._services = peers.by_host(dataclasses.replace(
            one, disabled=one.disabled and not one.stop_marker)
            for one in seen.services)
        self._over = {
            (one.key, one.stop_marker) for one in seen.services
            if one.over or (said := liveness.stop_marker_time(one.stop_marker))
            and seen.at - said.timestamp() >= DOWN_TIME}
        self.preferences = {
            part: ring.Preferences(
                {host: seen.zones.get(host) for host
                 in self._view(host_key(''), part).members if host},
                settings.points, settings.cross_zones)
            for part in self.partitions}
        self._facts: dict[HostKey, model.Facts] = {}
        self._records = {record.node: record for record in seen.records}

    def partition_of_node(self, node: cloud_state.Node) -> NodeShare | None:
        """Return the partition of a node, None if no host serves it."""
        return self._of_kind.get(_kind(node))

    def _view(self, host: HostKey, part: NodeShare) -> peers.View:
        """Return the compute services as ``host`` sees them."""
        return peers.View(
            host, self._services, peers=part.hosts, over=self._over)

    def taker(self, node: str, host: HostKey | None, used: bool = False
              ) -> HostKey | None:
        """Return the member that a node of a host goes to, None for none.

        :param used: it has a server of this host.
        """
        part = self.partition_of_node(self.seen.node_of[node])
        if part is None:
            return None
        preferences = self.preferences[part]
        zone = self.seen.zones.get(host) if host is not None else None
        if not used:
            return preferences.host_for(node, zone)
        owner = self.seen.owner_of.get(node)
        if owner is not None and preferences.may_keep(owner, zone):
            return owner
        return preferences.takeover_target(node, zone)

    def verdict(self, node: cloud_state.Node) -> NodeReport:
        """Return the report on a node."""
        owner = self.seen.owner_of.get(node.uuid)
        server = self.seen.instance_of.get(node.instance_uuid or '')
        home = server.host_key if server is not None else None
        preferred = self.taker(node.uuid, owner)
        why = self._decide(owner, node)
        decider = following = None
        if why is None or why is Reason.KEPT or not why.mine:
            # The likeliest new owner comes first.
            decider = next((host for host in (
                home, home and self.taker(node.uuid, home, used=True),
                preferred) if host != owner and host in self.seen.up_hosts),
                None)
            following = self._decide(decider, node)
        ahead = ''
        if following is not None:
            does = ('takes it' if following.mine else
                    f'takes it when {home} is fenced' if
                    following is Reason.INSTANCE_OF_DEAD else
                    'does not take it')
            ahead = f'{decider} {does}: {following.value} {_rule(following)}'
        elif why is None:
            ahead = ('nobody can take it: start or enable a compute service '
                     'of its partition and zone'
                     if self.partition_of_node(node) else
                     'not known: nobody owns a node of its group and shard')
        return NodeReport(node, owner, preferred, why, decider, following,
                          ahead)

    def _decide(self, host: HostKey | None, node: cloud_state.Node
                ) -> Reason | None:
        """Return what a host decides about a node, None if it is not up."""
        if host is None or host not in self.seen.up_hosts:
            return None
        if host not in self._facts:
            self._facts[host] = self._facts_of(host)
        return ownership.decide(dataclasses.replace(
            self._facts[host], nodes={node.uuid: node.instance_uuid}))[
                node.uuid]

    def _facts_of(self, host: HostKey) -> model.Facts:
        """Return the facts by which a host decides about any node."""
        # A host that owns no node may have a server on one.
        part = self.partition_of.get(host) or self.partitions[0]
        view = self._view(host, part)
        return model.Facts(
            nodes={},
            my_instances={one.uuid for one in self.seen.servers_of(host)},
            my_nodes=frozenset(self.seen.owned_by(host)),
            view=view,
            preferences=self.preferences[part],
            zones=self.seen.zones,
            instance_states=self.seen.instance_of,
            records=self._records,
            eligible=takeover.eligible(
                takeover.Policy(takeover.FORCED_DOWN), view, {},
                [one.host_key for one in self.seen.instances
                 if one.host_key is not None and not one.deleted]))
