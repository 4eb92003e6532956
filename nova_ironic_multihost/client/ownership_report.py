# SPDX-License-Identifier: Apache-2.0

"""Who owns a node, why, and what happens to it next.

The decision of the driver, :func:`.rules.ownership.decide`, made once more
for each compute service from what the APIs say. What only a compute service
knows is not seen from here, and :data:`UNSEEN` says so.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import partitions
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import reasons
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import stop_marker
from nova_ironic_multihost.rules import takeover

#: What a compute service that does not own a node is about to do. In its own
#: log the reason tells of what it has done.
AHEAD = {
    Reason.TAKEN_OVER: 'takes it over with the instance of a compute service '
                       'that is dead',
    Reason.CREATED: 'records it for the first time',
    Reason.ADOPTED: 'adopts it from a compute service that is down',
    Reason.PULLED: 'pulls it from its owner',
    Reason.INSTANCE_HERE: 'has its instance and takes the record',
    Reason.LEAKED: 'takes it and tears the machine down',
    Reason.UNKNOWN: 'takes it and leaves the machine alone',
}

#: What a reason depends on that no API shows.
UNSEEN = {
    Reason.ADOPTED: 'whether a build was sent there',
    Reason.PULLED: 'whether a build is on its way to it, and how many nodes '
                   'are pulled before it',
    Reason.TAKEN_OVER: '[ironic_multihost]instance_takeover, taken for '
                       'forced_down',
    Reason.INSTANCE_OF_DEAD: '[ironic_multihost]instance_takeover, taken for '
                             'forced_down',
}


@dataclasses.dataclass(frozen=True)
class SharedSettings:
    """What the compute services have in nova.conf, all the same.

    :param points: ``[ironic_multihost]ring_partitions``.
    :param cross_zones: ``[ironic_multihost]move_across_zones``.
    :param down_time: ``[DEFAULT]service_down_time`` in seconds.
    """

    points: int
    cross_zones: bool = False
    down_time: float = 60


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """One node.

    :param owner: whose the record is, None if nobody's.
    :param preferred: whom the ring prefers; None for nobody, or if it is not
        known who shares the node.
    :param why: why it is its owner's; None if that is not up.
    :param decider: who else has to say something, or None.
    :param next: what that one decides.
    :param known: whether it is known who shares the node.
    """

    node: cloud_state.Node
    owner: HostKey | None
    preferred: HostKey | None
    why: Reason | None
    decider: HostKey | None = None
    next: Reason | None = None
    known: bool = True

    @property
    def because(self) -> str:
        """Why it is its owner's, in words; '' if that is not up."""
        if self.why is None:
            return ''
        return f'{self.why.value} ({numbers(self.why)})'

    @property
    def rules(self) -> str:
        """The rules that decide, in words; '' for none."""
        reason = self.next if self.moves or self.why is None else self.why
        if reason is None:
            return ''
        return '; '.join(f'{number}: {_said(reasons.RULES[number])}'
                         for number in reason.rules)

    @property
    def moves(self) -> bool:
        """Whether it is about to change its owner."""
        return self.next is not None and self.next.mine

    @property
    def ahead(self) -> str:
        """What happens next, in words; '' for nothing."""
        if self.decider is not None and self.next is not None:
            said = AHEAD.get(self.next, self.next.value)
            return f'{self.decider}: {said} ({numbers(self.next)})'
        if self.why is not None:
            return ''
        return ('nobody can take it' if self.known else
                'not known: nobody owns a node of its group and shard')

    @property
    def unseen(self) -> str:
        """What it also depends on and no API shows; '' for nothing."""
        found = (UNSEEN.get(reason) for reason in (self.why, self.next)
                 if reason is not None)
        return next(filter(None, found), '')


def numbers(reason: Reason) -> str:
    """Return the numbers of the rules that a reason comes from."""
    return 'rule ' + ', '.join(map(str, reason.rules))


def _said(rule: reasons.Rule) -> str:
    """Return a rule as a sentence; "I" is the host that decides."""
    if not rule.owner:
        return f'{rule.instance}: {rule.outcome}'
    plain = rule.outcome.replace('*', '').replace('`', '')
    return (f'instance: {rule.instance}; owner: {rule.owner}; the ring '
            f'prefers me: {rule.preferred}; then {plain}')


def _services(seen: cloud_state.CloudState
              ) -> tuple[peers.ComputeService, ...]:
    """Return the compute services as the driver knows them."""
    return tuple(
        peers.ComputeService(
            service.host, service.up,
            service.disabled and not service.stop_marker, service.forced_down,
            stop_marker=service.stop_marker) for service in seen.services)


def _over(seen: cloud_state.CloudState, settings: SharedSettings
          ) -> frozenset[tuple[HostKey, str]]:
    """Return the hosts whose stop marker is old, each with the marker."""
    found = set()
    for service in seen.services:
        said = stop_marker.said_at(service.stop_marker)
        if service.over or (
                said is not None
                and seen.at - said.timestamp() >= settings.down_time):
            found.add((service.key, service.stop_marker))
    return frozenset(found)


def _by_host(pairs: Iterable[tuple[HostKey, str]]
             ) -> dict[HostKey, frozenset[str]]:
    found: dict[HostKey, set[str]] = {}
    for host, uuid in pairs:
        found.setdefault(host, set()).add(uuid)
    return {host: frozenset(uuids) for host, uuids in found.items()}


class OwnershipReport:
    """What each compute service decides about each node.

    :param seen: with its zones.
    :param settings: of the compute services.
    :param gone: hosts that tell no more who shares which nodes.
    :ivar partitions: who shares which nodes.
    :ivar zones: host -> explicit availability zone.
    """

    def __init__(self, seen: cloud_state.CloudState,
                 settings: SharedSettings,
                 gone: Set[HostKey] = frozenset()) -> None:
        self.seen = seen
        self.settings = settings
        self.partitions = partitions.NodeShares.of(dataclasses.replace(
            seen, services=tuple(
                dataclasses.replace(service, up=False)
                if service.key in gone else service
                for service in seen.services)))
        self.zones = dict(seen.zones or ())
        self._services = _services(seen)
        self._over = _over(seen, settings)
        self._preferences: dict[partitions.NodeShare, ring.Preferences] = {}
        self._nodes: dict[partitions.NodeShare, list[cloud_state.Node]] = {}
        for node in seen.nodes:
            part = self.partitions.of_node(node)
            if part is not None:
                self._nodes.setdefault(part, []).append(node)
        self._owned = _by_host(
            (record.key, record.node) for record in seen.records)
        self._instances = _by_host(
            (one.key, one.uuid) for one in seen.instances
            if one.key is not None and not one.deleted)
        self._states = {one.uuid: model.InstanceState(one.host, one.deleted)
                        for one in seen.instances}
        self._records = {record.node: model.Record(record.node, record.host)
                         for record in seen.records}

    def view(self, host: HostKey, part: partitions.NodeShare
             ) -> peers.View:
        """Return the compute services as one of them sees them."""
        return dataclasses.replace(
            peers.view(self._services, peers.Partition(), host,
                            over=self._over),
            peers=None if part.whole else part.hosts)

    def members(self, part: partitions.NodeShare) -> dict[HostKey, str | None]:
        """Return who is on the ring: host -> its zone or None."""
        view = self.view(host_key(''), part)
        return {host: self.zones.get(host) for host in view.services
                if view.member(host)}

    def is_member(self, host: HostKey) -> bool:
        """Whether a host is on a ring."""
        part = self.partitions.of_host(host)
        return part is not None and host in self.preferences(part).members

    def preferences(self, part: partitions.NodeShare) -> ring.Preferences:
        """Return whom the ring of a partition prefers."""
        if part not in self._preferences:
            self._preferences[part] = ring.Preferences(
                self.members(part), self.settings.points,
                self.settings.cross_zones)
        return self._preferences[part]

    def nodes(self, part: partitions.NodeShare) -> list[cloud_state.Node]:
        """Return the nodes of a partition."""
        return self._nodes.get(part, [])

    def preferred(self, node: cloud_state.Node) -> HostKey | None:
        """Return whom the ring prefers, with the owner that the node has."""
        part = self.partitions.of_node(node)
        if part is None:
            return None
        owner = self.seen.owner_of.get(node.uuid)
        zone = self.zones.get(owner) if owner is not None else None
        return self.preferences(part).host_for(node.uuid, zone)

    def verdict(self, node: cloud_state.Node) -> NodeReport:
        """Judge one node."""
        [verdict] = self.verdicts([node])
        return verdict

    def verdicts(self, nodes: Iterable[cloud_state.Node]) -> list[NodeReport]:
        """Judge nodes, in their order."""
        nodes = list(nodes)
        hosts = [self._hosts(node) for node in nodes]
        asked: dict[HostKey, list[cloud_state.Node]] = {}
        for node, concerned in zip(nodes, hosts):
            for host in concerned:
                asked.setdefault(host, []).append(node)
        said = {host: self._decide(host, its) for host, its in asked.items()}
        return [self._verdict(node, {host: said[host][node.uuid]
                                     for host in concerned})
                for node, concerned in zip(nodes, hosts)]

    def _hosts(self, node: cloud_state.Node) -> list[HostKey]:
        """Return who has to say something: its owner, then the likeliest."""
        part = self.partitions.of_node(node)
        if part is None:
            return []
        found = [self.seen.owner_of.get(node.uuid)]
        instance = self.seen.instance_of.get(node.instance_uuid or '')
        if instance is not None and instance.key is not None:
            found += [instance.key, self.preferences(part).takeover_target(
                node.uuid, self.zones.get(instance.key))]
        found.append(self.preferred(node))
        return [host for host in dict.fromkeys(found)
                if host is not None and host in self.seen.up_hosts]

    def _verdict(self, node: cloud_state.Node,
                 said: Mapping[HostKey, Reason]) -> NodeReport:
        owner = self.seen.owner_of.get(node.uuid)
        why = said.get(owner) if owner is not None else None
        verdict = NodeReport(
            node, owner, self.preferred(node), why,
            known=self.partitions.of_node(node) is not None)
        if why is not None and why.mine and why is not Reason.KEPT:
            return verdict
        # In the order of _hosts, so that who takes it comes first.
        other = next((host for host in said if host != owner), None)
        if other is None:
            return verdict
        return dataclasses.replace(verdict, decider=other, next=said[other])

    def _decide(self, host: HostKey, nodes: Iterable[cloud_state.Node]
                ) -> dict[str, Reason]:
        part = self.partitions.of_host(host)
        if part is None:
            # It owns nothing, but has an instance on a node.
            [part, *_] = self.partitions.found
        view = self.view(host, part)
        return ownership.decide(model.Facts(
            nodes={node.uuid: node.instance_uuid for node in nodes},
            my_instances=self._instances.get(host, frozenset()),
            my_nodes=self._owned.get(host, frozenset()),
            view=view,
            preferences=self.preferences(part),
            permissions=model.Permissions(
                mapped=self.seen.service_of[host].mapped is not False),
            zones=self.zones,
            instance_states=self._states,
            records=self._records,
            eligible=takeover.eligible(
                takeover.Policy(takeover.FORCED_DOWN), view, {},
                self._instances)))
