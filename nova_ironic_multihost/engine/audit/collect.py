# SPDX-License-Identifier: Apache-2.0

"""Collecting facts: each is read once, in the order in which it is needed."""

from collections import abc
import dataclasses
import random
from typing import Any

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit.lister import Lister
from nova_ironic_multihost.engine.audit.peer_services import Peers
from nova_ironic_multihost.engine.audit.peer_services import with_services_of
from nova_ironic_multihost.engine.base.ports import Cloud
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules import mirror as mirrors
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Records that are read to learn the partition of a member, about so many.
SAMPLE = 8


@dataclasses.dataclass(frozen=True)
class Collected:
    """The facts that an audit has read.

    :param facts: input of the decision, for the nodes to decide.
    :param state: of the audits, with what was read now.
    :param unlisted: uuid -> row of the absent nodes that are not deleted.
    """

    facts: Facts
    mirror: Mirror
    state: AuditState
    unlisted: abc.Mapping[str, NodeRow] = dataclasses.field(
        default_factory=dict)


class Collector:
    """Reads the facts for one audit of all nodes, or of some.

    :param reader: has listed Ironic's nodes.
    :param now: in monotonic seconds.
    """

    def __init__(self, cloud: Cloud, reader: Lister, settings: Settings,
                 seen_peers: Peers, state: AuditState, last: Audit | None,
                 now: float) -> None:
        self._cloud = cloud
        self._reader = reader
        self._settings = settings
        self._peers = seen_peers
        self._last = last
        self._now = now
        # The listing is oldest: later reads show new claims and dead hosts.
        self._mirror = reader.mirror
        self._zones = peers.host_zones(seen_peers.host_aggregates.aggregates)
        self._services = seen_peers.services
        self._state = dataclasses.replace(
            state, host_aggregates=seen_peers.host_aggregates)

    def all_nodes(self, settled: bool, doubted: float | None) -> Collected:
        """Collect the facts for an audit of all nodes."""
        mirror = self._mirror
        basis = incremental.Inputs(
            self._peers.view, self._peers.preferences, self._zones,
            self._settings.partition)
        self._read_my_records(basis, doubted)
        my_nodes = frozenset(self._state.records)
        my_instances = frozenset(self._cloud.instances(self._my_names()))
        due = incremental.due(
            self._state.standing, basis, mirror, my_nodes, my_instances)
        unlisted = self._read_absent(my_nodes)
        facts = self._with_foreign_instances(self._facts(
            mirror.nodes if due == mirror.nodes.keys() else
            {node: mirror.nodes[node] for node in due},
            my_nodes, my_instances))
        facts = dataclasses.replace(
            facts, records=self._records_of_others(facts))
        return self._collected(facts, settled, unlisted)

    def nodes_of_hosts(self, hosts: abc.Iterable[str],
                       only: abc.Set[str] | None = None) -> Collected:
        """Collect the facts about the nodes, or ``only`` some, of hosts."""
        names = [name for host in hosts
                 for name in peers.spellings(self._peers.services, host)]
        owners = {host_key(name) for name in names}
        wanted = self._may_inherit(owners, only)
        records = {
            record.node: record for record in (
                without_second(self._cloud.records_of(names))[0]
                if wanted and only is None
                else self._cloud.records(list(wanted)))
            if record.owner in owners and record.node in wanted}
        facts = self._with_foreign_instances(self._facts(
            {node: self._mirror.nodes[node] for node in records}))
        return self._collected(dataclasses.replace(facts, records=records))

    def changed_nodes(self, nodes: abc.Iterable[str]) -> Collected:
        """Collect the facts about those nodes that no other host owns."""
        host = self._peers.view.host
        wanted = [node for node in nodes if node in self._mirror.nodes]
        owners = {record.node: record
                  for record in self._cloud.records(wanted)}
        mine = {node for node, record in owners.items()
                if record.owner == host}
        free = {node: self._mirror.nodes[node] for node in wanted
                if node in mine or node not in owners}
        facts = self._with_states(
            self._facts(free, frozenset(mine)),
            [instance for instance in free.values() if instance is not None])
        return self._collected(dataclasses.replace(
            facts, records={node: owners[node] for node in mine},
            my_instances=frozenset(
                instance for instance, state in facts.instance_states.items()
                if state.host_key == host and not state.deleted)))

    def _note(self, **read: Any) -> None:
        self._state = dataclasses.replace(self._state, **read)

    def _my_names(self) -> tuple[str, ...]:
        return peers.spellings(self._peers.services, self._settings.host)

    def _read_my_records(self, basis: incremental.Inputs,
                         doubted: float | None) -> None:
        """Read the records that may have changed."""
        state, last = self._state, self._last
        doubtful = incremental.in_doubt(state.records_read_at, doubted)
        uncertain = incremental.uncertain(
            state.standing, basis, self._mirror, state.records.keys(),
            last.nodes.keys() if last else ())
        # A host that was no member may have lost nodes to a peer.
        if (uncertain is None or state.records_read_at is None
                or state.audits == 0 or state.barred or doubtful
                or self._peers.outages.overdue(
                    self._now, self._settings.heartbeats)):
            records, barred = without_second(
                self._cloud.records_of(self._my_names()))
            self._note(records_read_at=self._now, barred=barred)
        else:
            read = (self._cloud.records(sorted(uncertain)) if uncertain
                    else [])
            records = (*(record for node, record in state.records.items()
                         if node not in uncertain),
                       *(record for record in read
                         if record.owner == self._peers.view.host))
        self._note(records={record.node: record for record in records})

    def _may_inherit(self, owners: abc.Set[HostKey], only: abc.Set[str] | None
                     ) -> dict[str, None]:
        """Return the nodes that this host may get from owners, as keys."""
        # An instance outside its node owner's zone waits for a full audit.
        theirs = {self._zones.get(owner) for owner in owners}
        nodes = self._mirror.nodes
        return {node: None for node in (nodes if only is None else only)
                if node in nodes and self._peers.preferences.may_inherit(
                    self._peers.view.host, node, theirs)}

    def _facts(self, nodes: abc.Mapping[str, str | None],
               my_nodes: abc.Set[str] = frozenset(),
               my_instances: abc.Set[str] = frozenset()) -> Facts:
        return Facts(
            nodes=nodes, my_instances=my_instances, my_nodes=my_nodes,
            view=self._peers.view, preferences=self._peers.preferences,
            partition=self._settings.partition, zones=self._zones,
            barred=self._state.barred.keys())

    def _with_foreign_instances(self, facts: Facts) -> Facts:
        return self._with_states(facts, ownership.foreign_instances(facts))

    def _with_states(self, facts: Facts, instances: list[str]) -> Facts:
        """Add the states of instances, and the services of their hosts."""
        states = (self._cloud.instance_states(instances) if instances
                  else {})
        return dataclasses.replace(
            facts, instance_states=states,
            view=self._view_with(
                state.host for state in states.values() if state.host))

    def _view_with(self, hosts: abc.Iterable[str]) -> peers.View:
        """Return the view of all services read so far, and of some hosts."""
        self._services = self._peers.outages.judged(
            with_services_of(self._cloud, self._services, hosts),
            self._peers.view.host)
        return dataclasses.replace(
            self._peers.view, services=peers.by_host(self._services))

    def _collected(self, facts: Facts, settled: bool = True,
                   unlisted: abc.Mapping[str, NodeRow] | None = None
                   ) -> Collected:
        """Read the services of owners, and what this host may do."""
        facts = dataclasses.replace(facts, view=self._view_with(
            record.host for record in facts.records.values()))
        state, settings = self._state, self._settings
        mapped = state.mapped or self._cloud.mapped(settings.host)
        audits = 0 if ownership.lost_nodes_to_peers(
            facts, state.standing.my_nodes) else state.audits
        self._note(mapped=mapped, audits=audits)
        facts = dataclasses.replace(
            facts, eligible=takeover.eligible(
                settings.policy, facts.view, self._peers.outages.lengths(
                    self._now, settings.heartbeats),
                {state.host_key for state in facts.instance_states.values()
                 if state.host_key is not None and not state.deleted}),
            settled=settled, mapped=mapped is not False,
            member_long_enough=audits >= settings.pull_delay_audits)
        return Collected(facts, self._mirror, self._state, unlisted or {})

    def _records_of_others(self, facts: Facts) -> dict[str, Record]:
        """Read the owners of candidate nodes and of sample nodes."""
        unknown = {member for member in self._peers.preferences.members
                   if member != self._peers.view.host
                   and member not in self._state.partition_labels}
        wanted = ownership.candidates(facts)
        # A member of another partition would leave its share unowned.
        nodes = list(self._mirror.nodes) if unknown else []
        some = min(
            len(nodes), SAMPLE * len(self._peers.preferences.members))
        wanted += [node for node in random.sample(nodes, some)
                   if self._peers.preferences.host_for(node) in unknown]
        records = self._cloud.records(
            list(dict.fromkeys(wanted))) if wanted else []
        if self._state.standing.turn % incremental.TURNS == 0:
            # Without a sample a member can hardly have many records: nova's
            # conductor returns them in one reply.
            for member in sorted(unknown.difference(
                    record.owner for record in records)):
                records += without_second(self._cloud.records_of(
                    peers.spellings(self._services, member)))[0][:1]
        return {record.node: record for record in records
                if record.node not in facts.my_nodes}

    def _used(self, nodes: abc.Set[str]) -> set[str]:
        """Return nodes with allocations: nobody can delete their provider."""
        consumers = self._cloud.consumers_of(sorted(nodes)) if nodes else {}
        every = frozenset[str]().union(*filter(None, consumers.values()))
        states = self._cloud.instance_states(sorted(every)) if every else {}
        return {node for node, some in consumers.items()
                if some is None or any(
                    uuid not in states or not states[uuid].deleted
                    for uuid in some)}

    def _read_absent(self, mine: abc.Set[str]) -> dict[str, NodeRow]:
        """Ask Ironic for absent nodes; return {uuid: row} if not deleted."""
        before = self._state.absences
        absences = mirrors.note_absences(
            before, mine, self._mirror.nodes.keys(),
            self._settings.max_vanished_percent)
        nodes = {node: row for node, row in (
                     self._last.nodes if self._last else {}).items()
                 if node in absences.counts}
        asked = mirrors.absence_questions(absences)
        answers = dict(self._reader.each(asked))
        gone = {node for node, row in answers.items() if row is None}
        nodes.update((node, row) for node, row in answers.items() if row)
        absences = mirrors.absences_answered(
            absences, mine, gone, set(asked) - gone)
        absences = dataclasses.replace(
            absences, confirmed=absences.confirmed - self._used(
                absences.confirmed))
        # Before the next audit counts them as absent. A node that Ironic has
        # may be in another partition: one listing is enough for it.
        if absences != before or absences.braked or any(
                absences.counts.values()):
            self._reader.seek()
        self._note(absences=absences)
        return {node: row for node, row in nodes.items()
                if node not in absences.confirmed}


def without_second(records: abc.Iterable[Record]
                   ) -> tuple[tuple[Record, ...], abc.Mapping[str, str]]:
    """Return the records, and {node: uuid of its second row}."""
    records = tuple(records)
    return (tuple(record for record in records if not record.second),
            {record.node: record.second for record in records
             if record.second})
