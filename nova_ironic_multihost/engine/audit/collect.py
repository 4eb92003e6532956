# SPDX-License-Identifier: Apache-2.0

"""Collecting facts: each is read once, in the order in which it is needed.

:func:`all_nodes`, :func:`nodes_of_hosts` and :func:`changed_nodes` begin with
different nodes. Shared parameters: ``reader`` has listed Ironic's nodes;
``now`` is in monotonic seconds.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
from collections.abc import Sized
import dataclasses
import types

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit.lister import FAILURES
from nova_ironic_multihost.engine.audit.lister import Lister
from nova_ironic_multihost.engine.audit.peer_services import Peers
from nova_ironic_multihost.engine.audit.peer_services import Services
from nova_ironic_multihost.engine.audit.peer_services import with_hosts
from nova_ironic_multihost.engine.base.ports import Sources
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules import mirror as mirrors
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Inventory
from nova_ironic_multihost.rules.model import Permissions
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Records that are read to learn the partition of a member.
SAMPLE = 8

#: Audits with samples until all records of a member are read: by then it can
#: hardly have many, and nova returns them in one reply.
SAMPLES = 8


@dataclasses.dataclass(frozen=True)
class Collected:
    """The facts that an audit has read.

    :param facts: input of the decision, for the nodes to decide.
    :param mapped: whether this host is mapped, None if unknown.
    :param records: of this host; all were last read at ``records_read_at``.
    :param basis: input that the reasons of all nodes depend on.
    :param unlisted: uuid -> row of the absent nodes that are not deleted.
    """

    facts: Facts
    mirror: Mirror
    audits: int
    host_aggregates: peers.KnownAggregates
    mapped: bool | None
    records: tuple[Record, ...] = ()
    records_read_at: float | None = None
    barred: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    basis: incremental.Inputs | None = None
    absences: mirrors.Absences = mirrors.Absences()
    unlisted: Mapping[str, NodeRow] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))


def all_nodes(sources: Sources, memory: AuditState, settings: Settings,
              seen_peers: Peers, reader: Lister, settled: bool,
              last: Audit | None, now: float,
              doubted: float | None = None) -> Collected:
    """Collect the facts for an audit of all nodes."""
    # The listing is oldest: later reads show new claims and dead hosts.
    mirror = reader.mirror
    hosts = peers.spellings(seen_peers.services, settings.host)
    basis = _basis(settings, seen_peers, seen_peers.view)
    records, barred = _my_records(
        sources, memory, settings, seen_peers, basis, mirror, last, now,
        doubted)
    records_read_at = memory.records_read_at if barred is None else now
    if barred is not None:
        memory = dataclasses.replace(memory, barred=barred)
    if memory.standing and memory.standing.turn % incremental.TURNS == 0:
        # An operator may have deleted the mapping.
        memory = dataclasses.replace(
            memory, mapped=_mapped(sources, memory, settings))
    my_nodes = frozenset(record.node for record in records)
    my_instances = frozenset(sources.instances(hosts))
    due = incremental.due(
        memory.standing, basis, mirror, my_nodes, my_instances)
    inventory = Inventory(
        nodes=(mirror.nodes if due == mirror.nodes.keys() else
               {node: mirror.nodes[node] for node in due}),
        my_instances=my_instances, my_nodes=my_nodes,
        view=seen_peers.view, preferences=seen_peers.preferences)
    absences, unlisted = _absences(
        sources, reader, memory, settings, mirror, my_nodes, last)
    states, known = _instance_states(sources, seen_peers, inventory)
    others = _records_of_others(
        sources, memory, mirror, inventory, states, known)
    facts, mapped, audits = _facts(
        sources, memory, settings, seen_peers, inventory, states, others,
        known, settled, now)
    return Collected(facts, mirror, audits, seen_peers.host_aggregates, mapped,
                     records, records_read_at, memory.barred,
                     _basis(settings, seen_peers, facts.view),
                     absences, unlisted)


def _mapped(sources: Sources, memory: AuditState, settings: Settings) -> bool:
    try:
        return memory.mapped and sources.mapped(settings.host) is not False
    except Exception as exc:  # noqa: BLE001
        LOG.debug('nova did not say whether this host is still mapped: %s',
                  exc)
        return memory.mapped


def without_second(records: Iterable[Record]
                   ) -> tuple[tuple[Record, ...], Mapping[str, str]]:
    """Return the records, and {node: uuid of its second row}."""
    records = tuple(records)
    return (tuple(record for record in records if not record.second),
            types.MappingProxyType({
                record.node: record.second for record in records
                if record.second}))


def _my_records(sources: Sources, memory: AuditState, settings: Settings,
                seen_peers: Peers, basis: incremental.Inputs, mirror: Mirror,
                last: Audit | None, now: float, doubted: float | None
                ) -> tuple[tuple[Record, ...], Mapping[str, str] | None]:
    """Read changed records; return (all, second rows if all were read)."""
    doubtful = incremental.in_doubt(memory.records_read_at, doubted)
    if last is None and memory.records_read_at is not None and not doubtful:
        # The first audit read them before the listing.
        return tuple(memory.records.values()), None
    uncertain = incremental.uncertain(
        memory.standing, basis, mirror, memory.records.keys(),
        last.nodes.keys() if last else ())
    # A host that was no member may have lost nodes to a peer.
    if (uncertain is None or memory.records_read_at is None
            or memory.audits == 0 or memory.barred or doubtful
            or seen_peers.outages.overdue(now, settings.heartbeats)):
        return without_second(sources.records_of(peers.spellings(
            seen_peers.services, settings.host)))
    read = sources.records(sorted(uncertain)) if uncertain else []
    return (*(record for node, record in memory.records.items()
              if node not in uncertain),
            *(record for record in read
              if record.owner == seen_peers.view.host)), None


def _basis(settings: Settings, seen_peers: Peers, view: peers.View
           ) -> incremental.Inputs:
    return incremental.Inputs(
        view, seen_peers.preferences,
        peers.host_zones(seen_peers.host_aggregates.aggregates),
        settings.partition)


def nodes_of_hosts(sources: Sources, memory: AuditState, settings: Settings,
                   seen_peers: Peers, hosts: Iterable[str], reader: Lister,
                   now: float, only: Set[str] | None = None) -> Collected:
    """Collect the facts about the nodes, or ``only`` some, of other hosts."""
    mirror = reader.mirror
    names = [name for host in hosts
             for name in peers.spellings(seen_peers.services, host)]
    owners = {host_key(name) for name in names}
    wanted = _may_inherit(seen_peers, owners, mirror, only)
    records = {
        record.node: record for record in (
            without_second(sources.records_of(names))[0]
            if _too_many(wanted, seen_peers, owners, mirror)
            else sources.records(list(wanted)))
        if record.owner in owners and record.node in wanted}
    inventory = Inventory(
        nodes={node: mirror.nodes[node] for node in records},
        my_instances=frozenset(), my_nodes=frozenset(),
        view=seen_peers.view, preferences=seen_peers.preferences)
    states, known = _instance_states(sources, seen_peers, inventory)
    facts, mapped, audits = _facts(
        sources, memory, settings, seen_peers, inventory, states, records,
        known, True, now)
    return Collected(facts, mirror, audits, seen_peers.host_aggregates, mapped)


def _may_inherit(seen_peers: Peers, owners: Set[HostKey], mirror: Mirror,
                 only: Set[str] | None) -> dict[str, None]:
    """Return the nodes that this host may get from owners, as keys.

    Assumed: an instance is in its node owner's zone. Full audits find others.
    """
    zones = peers.host_zones(seen_peers.host_aggregates.aggregates)
    theirs = {zones.get(owner) for owner in owners}
    return {node: None for node in (mirror.nodes if only is None else only)
            if node in mirror.nodes and seen_peers.preferences.may_inherit(
                seen_peers.view.host, node, theirs)}


def _too_many(wanted: Sized, seen_peers: Peers, owners: Set[HostKey],
              mirror: Mirror) -> bool:
    """Whether reading all records of the owners costs less.

    nova's conductor returns all records of an owner in one reply, of any size.
    So the owners must most likely have far fewer nodes than are wanted.
    """
    hosts = seen_peers.preferences.members.keys() | owners
    return len(wanted) * len(hosts) > 2 * len(owners) * len(mirror.nodes)


def changed_nodes(sources: Sources, memory: AuditState, settings: Settings,
                  seen_peers: Peers, nodes: Iterable[str], reader: Lister,
                  now: float) -> Collected:
    """Collect the facts about those nodes that no other host owns."""
    mirror = reader.mirror
    host = seen_peers.view.host
    wanted = [node for node in nodes if node in mirror.nodes]
    owners = {record.node: record for record in sources.records(wanted)}
    mine = {node for node, record in owners.items() if record.owner == host}
    free = {node: mirror.nodes[node] for node in wanted
            if node in mine or node not in owners}
    instances = [instance for instance in free.values()
                 if instance is not None]
    states = sources.instance_states(instances) if instances else {}
    inventory = Inventory(
        nodes=free, my_instances=frozenset(
            instance for instance, state in states.items()
            if state.host_key == host and not state.deleted),
        my_nodes=frozenset(mine), view=seen_peers.view,
        preferences=seen_peers.preferences)
    facts, mapped, audits = _facts(
        sources, memory, settings, seen_peers, inventory, states, {},
        with_hosts(sources, seen_peers, seen_peers.services, [
            state.host for state in states.values() if state.host]),
        True, now)
    return Collected(
        facts, mirror, audits, seen_peers.host_aggregates, mapped,
        tuple(owners[node] for node in free if node in mine))


def _facts(sources: Sources, memory: AuditState, settings: Settings,
           seen_peers: Peers, inventory: Inventory,
           states: Mapping[str, InstanceState],
           records: Mapping[str, Record], known: Services, settled: bool,
           now: float) -> tuple[Facts, bool | None, int]:
    """Read services of owners; return these fields of :class:`Collected`."""
    known = with_hosts(sources, seen_peers, known,
                       [record.host for record in records.values()])
    inventory = dataclasses.replace(
        inventory, view=dataclasses.replace(
            seen_peers.view, services=peers.by_host(known)))
    zones = peers.host_zones(seen_peers.host_aggregates.aggregates)
    mapped = memory.mapped or sources.mapped(settings.host)
    owned = memory.standing.my_nodes if memory.standing else frozenset[str]()
    audits = 0 if ownership.lost_nodes_to_peers(
        inventory, states, records, zones, owned) else memory.audits
    facts = Facts(
        nodes=inventory.nodes, my_instances=inventory.my_instances,
        my_nodes=inventory.my_nodes, view=inventory.view,
        preferences=inventory.preferences, partition=settings.partition,
        zones=zones, instance_states=states, records=records,
        eligible=takeover.eligible(
            settings.policy, inventory.view,
            seen_peers.outages.lengths(now, settings.heartbeats),
            {state.host_key for state in states.values()
             if state.host_key is not None and not state.deleted}),
        permissions=Permissions(
            settled=settled, mapped=mapped is not False,
            member_long_enough=audits >= settings.pull_delay_audits),
        barred=memory.barred.keys())
    return facts, mapped, audits


def _instance_states(sources: Sources, seen_peers: Peers, inventory: Inventory
                     ) -> tuple[Mapping[str, InstanceState], Services]:
    """Return {uuid: state} of instances elsewhere, and known services."""
    wanted = ownership.foreign_instances(inventory)
    states = sources.instance_states(wanted) if wanted else {}
    return types.MappingProxyType(states), with_hosts(
        sources, seen_peers, seen_peers.services,
        [state.host for state in states.values() if state.host])


def _records_of_others(sources: Sources, memory: AuditState, mirror: Mirror,
                       inventory: Inventory,
                       states: Mapping[str, InstanceState], known: Services
                       ) -> dict[str, Record]:
    """Read the owners of candidate nodes and of sample nodes."""
    view = dataclasses.replace(
        inventory.view, services=peers.by_host(known))
    wanted = dict.fromkeys(ownership.candidates(inventory, states, view))
    wanted.update(dict.fromkeys(_samples(memory, mirror, inventory)))
    records = sources.records(list(wanted)) if wanted else []
    if memory.rounds >= SAMPLES:
        for member in sorted(_unknown(memory, inventory)):
            records += without_second(sources.records_of(
                peers.spellings(known, member)))[0][:1]
    return {record.node: record for record in records
            if record.node not in inventory.my_nodes}


def _unknown(memory: AuditState, inventory: Inventory) -> set[HostKey]:
    """Return the members of which the partition is unknown."""
    return {member for member in inventory.preferences.members
            if member != inventory.host
            and member not in memory.partition_labels}


def _samples(memory: AuditState, mirror: Mirror, inventory: Inventory
             ) -> Iterator[str]:
    """Yield nodes with records that tell the partition of members.

    A member of another partition would leave nodes of its share unowned.
    """
    preferences = inventory.preferences
    members = _unknown(memory, inventory)
    seen: collections.Counter[str] = collections.Counter()
    first = memory.rounds * SAMPLE
    for node in mirror.nodes:
        if not members:
            return
        host = preferences.host_for(node)
        if host in members:
            if first <= seen[host]:
                yield node
            seen[host] += 1
            if seen[host] == first + SAMPLE:
                members.discard(host)


def _used(sources: Sources, nodes: Set[str]) -> set[str]:
    """Return nodes with allocations: their providers cannot be deleted."""
    consumers = sources.consumers_of(sorted(nodes)) if nodes else {}
    every = frozenset[str]().union(*filter(None, consumers.values()))
    states = sources.instance_states(sorted(every)) if every else {}
    return {node for node, some in consumers.items() if some is None or any(
        uuid not in states or not states[uuid].deleted for uuid in some)}


def _absences(sources: Sources, reader: Lister, memory: AuditState,
              settings: Settings, mirror: Mirror, mine: Set[str],
              last: Audit | None
              ) -> tuple[mirrors.Absences, dict[str, NodeRow]]:
    """Return the absences, and {uuid: row} of absent nodes not deleted."""
    absences = mirrors.note_absences(
        memory.absences, mine, mirror.nodes.keys(),
        settings.max_vanished_percent)
    gone, found, seen = set(), set(), set()
    before = last.nodes if last else {}
    nodes = {node: before[node] for node in absences.counts
             if node in before}
    failed = 0
    for node in mirrors.absence_questions(absences):
        if failed == FAILURES:
            # Each may wait for a timeout.
            break
        try:
            answer = reader.node(node)
        except Exception as exc:  # noqa: BLE001
            # Only MarkerNotFound means that the node is gone.
            LOG.debug('Ironic does not say whether it has node %(node)s: '
                      '%(exc)s', {'node': node, 'exc': exc})
            failed += 1
            found.add(node)
            continue
        if answer is None:
            gone.add(node)
        else:
            found.add(node)
            seen.add(node)
            nodes[node] = answer
    absences = mirrors.absences_answered(absences, mine, gone, found)
    absences = dataclasses.replace(
        absences, confirmed=absences.confirmed - _used(
            sources, absences.confirmed))
    # Each audit lists again before it counts them as absent.
    reader.seek(seen, absences.braked or any(absences.counts.values()))
    return absences, {node: known for node, known in nodes.items()
                      if node not in absences.confirmed}
