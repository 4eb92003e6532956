# SPDX-License-Identifier: Apache-2.0

"""Values that audits read and replace; immutable."""

from collections import abc
import dataclasses

from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.liveness import Heartbeats
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

#: Audits for which a node from another owner counts as recent.
RECENT = 2

#: Audits in a row in which a compute service must be up, enabled and without
#: a pause before it rebalances, so that a flapping one moves no nodes.
PULL_DELAY_AUDITS = 2

#: The most instances taken over in one audit; the next finds the dead anew.
TAKEOVERS_PER_AUDIT = 50


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of audits; ``audit_interval`` is seconds for each node."""

    host: str
    partition: peers.Partition = peers.Partition()
    points: int = 1024
    pulls_per_audit: int = 200
    pull_delay_audits: int = PULL_DELAY_AUDITS
    move_across_zones: bool = False
    max_vanished_percent: int = 50
    policy: takeover.Policy = takeover.Policy()
    takeovers_per_audit: int = TAKEOVERS_PER_AUDIT
    audit_interval: float = 3600
    heartbeats: Heartbeats = Heartbeats()


@dataclasses.dataclass(frozen=True)
class Audit:
    """The result of an audit.

    :param reasons: of all nodes that Ironic lists or that are recorded here.
    :param nodes: uuid -> row, of the nodes that this host owns.
    :param owners: node -> owner before the decision or None, of those nodes.
    :param records: for nova, of nodes that this host owns and of deleted ones.
    :param deleted: nodes that Ironic has deleted.
    :param recent: nodes from other owners in the last :data:`RECENT` audits.
    :param taken_over: instance -> the host from which this audit took it over.
    :param at_rest: those of them that need no recovery.
    """

    view: peers.View
    preferences: ring.Preferences
    reasons: abc.Mapping[str, Reason]
    nodes: abc.Mapping[str, NodeRow]
    owners: abc.Mapping[str, HostKey | None]
    records: tuple[Record, ...] = ()
    deleted: frozenset[str] = frozenset()
    host_aggregates: peers.KnownAggregates = peers.KnownAggregates()
    recent: frozenset[str] = frozenset()
    taken_over: abc.Mapping[str, str | None] = dataclasses.field(
        default_factory=dict)
    at_rest: frozenset[str] = frozenset()

    def merged(self, reasons: abc.Mapping[str, Reason],
               records: abc.Mapping[str, Record],
               mine: abc.Mapping[str, NodeRow],
               taken_over: abc.Mapping[str, str | None],
               at_rest: frozenset[str]) -> 'Audit':
        """Return this with newer results of some nodes."""
        others = {node: known for node, known in self.nodes.items()
                  if node not in reasons}
        return dataclasses.replace(
            self,
            reasons={**self.reasons, **reasons}, nodes={**others, **mine},
            owners={**{node: self.owners[node] for node in others},
                    **{node: records[node].owner if node in records else None
                       for node in mine}},
            records=(*(record for record in self.records
                       if record.node not in reasons),
                     *(records[node] for node in mine if node in records)),
            # A deleted node may have been enrolled again.
            deleted=self.deleted.difference(reasons),
            recent=self.recent.union(
                node for node in mine if node in records
                and records[node].owner != self.view.host),
            taken_over=taken_over, at_rest=at_rest)


@dataclasses.dataclass(frozen=True)
class AuditState:
    """What one audit leaves for the next.

    :param audits: audits in a row in which this host was a member and no peer
        called it dead.
    :param begun: start of the last audit, monotonic seconds.
    :param records: of the nodes recorded on this host.
    :param barred: node for which the database refuses this host -> uuid of
        this host's second row, or ''.
    :param records_read_at: when all records were read, monotonic seconds.
    :param standing: inputs of the last audit.
    :param providers_to_delete: nodes with a provider that nova may have left.
    :param recent: nodes from other owners, a set per audit, the newest first.
    :param mapped: whether this host is mapped to a cell, None if unknown.
    :param over: (host, stop marker) of hosts that did not come back in time.
    """

    audits: int = 0
    begun: float | None = None
    records: abc.Mapping[str, Record] = dataclasses.field(default_factory=dict)
    barred: abc.Mapping[str, str] = dataclasses.field(default_factory=dict)
    records_read_at: float | None = None
    standing: incremental.LastAudit = incremental.LastAudit()
    partition_labels: abc.Mapping[HostKey, str] = dataclasses.field(
        default_factory=dict)
    absences: mirror.Absences = mirror.Absences()
    mapped: bool | None = None
    host_aggregates: peers.KnownAggregates = peers.KnownAggregates()
    providers_to_delete: frozenset[str] = frozenset()
    recent: tuple[frozenset[str], ...] = ()
    over: frozenset[tuple[HostKey, str]] = frozenset()

    def with_taken(self, has: abc.Callable[[str], bool]) -> 'AuditState':
        """Return this plus nodes taken since that the tracker holds."""
        return dataclasses.replace(self, standing=dataclasses.replace(
            self.standing, my_nodes=self.standing.my_nodes.union(
                *(filter(has, taken) for taken in self.recent[:1]))))

    def with_unsettled(self, nodes: abc.Iterable[str]) -> 'AuditState':
        """Return this so that the next audit decides these nodes."""
        return dataclasses.replace(self, standing=dataclasses.replace(
            self.standing, unsettled=self.standing.unsettled.union(nodes)))
