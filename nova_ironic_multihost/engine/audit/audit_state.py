# SPDX-License-Identifier: Apache-2.0

"""Values of the audits; immutable, replaced whole."""

from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules import absence
from nova_ironic_multihost.rules import aggregates
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.liveness import Heartbeats
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

#: Audits for which a node that came from another owner counts as recent.
RECENT = 2


#: Audits in a row through which a compute service must have been up, enabled
#: and undisturbed before it takes free nodes from live ones: one that comes
#: and goes does not shuffle nodes to and fro.
PULL_DELAY_AUDITS = 2

#: The most instances that are taken over at a time. Before the next ones it is
#: read again which compute services are dead.
TAKEOVERS_PER_AUDIT = 50


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options that audits follow, see :mod:`nova_ironic_multihost.conf`.

    :param points: points per member on the hash ring,
        ``[ironic_multihost]ring_partitions``.
    :param audit_interval: seconds in which every node of Ironic is visited,
        and in which nova's tracker audits each node.
    """

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

    :param view: the compute services, as this host saw them.
    :param reasons: node uuid -> :class:`.ownership.Reason`, of all nodes that
        Ironic lists or that are recorded here.
    :param nodes: uuid -> node, of my nodes.
    :param owners: uuid -> owner or None, of my nodes, at the decision.
    :param records: this host's records for nova: of my nodes and of nodes that
        are deleted.
    :param deleted: uuids of the nodes that Ironic has no more.
    :param host_aggregates: nova's host aggregates, as far as they are known.
    :param recent: uuids of the nodes that came from another owner in one of
        the last :data:`RECENT` audits before.
    :param taken_over: instance uuid -> earlier host, of those that this audit
        took over.
    :param at_rest: uuids of those of them without an interrupted operation.
    """

    view: peers.View
    preferences: ring.Preferences
    reasons: Mapping[str, Reason]
    nodes: Mapping[str, NodeRow]
    owners: Mapping[str, HostKey | None]
    records: tuple[Record, ...] = ()
    deleted: frozenset[str] = frozenset()
    host_aggregates: aggregates.KnownAggregates = aggregates.KnownAggregates()
    recent: frozenset[str] = frozenset()
    taken_over: Mapping[str, str | None] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    at_rest: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class AuditState:
    """The state from audit to audit.

    :param preferences: the preferred member of each node, None before the
        services were read.
    :param audits: audits in a row, up to the last one, in which this host was
        a member that no peer took for dead.
    :param begun: begin of the last audit, by the clock of the audits; None
        before the first one.
    :param rounds: audits in a row in which the partition of some member was
        not known; then others are sampled.
    :param records: node uuid -> record, of the nodes that were recorded on
        this host.
    :param barred: uuid of a node with a record that cannot become this host's
        -> uuid of the row of this host that is in its way, or ''.
    :param recorded: when all of those were read, by the clock of the audits,
        or None.
    :param standing: the last audit of all nodes, or None.
    :param partition_labels: host -> label of its partition.
    :param busy: result of :func:`.ownership.still_busy`.
    :param refused: result of :func:`.ownership.still_refused`.
    :param absences: nodes that are not listed.
    :param mapped: this host was found to be mapped.
    :param host_aggregates: nova's host aggregates, as far as they are known.
    :param leaving: uuids of nodes with a record and a provider that nova was
        to delete; it may have failed with the provider.
    :param recent: for each of the last :data:`RECENT` audits the uuids of the
        nodes that came from another owner.
    :param over: see :class:`.peers.View`; of this moment.
    """

    preferences: ring.Preferences | None = None
    audits: int = 0
    begun: float | None = None
    rounds: int = 0
    records: Mapping[str, Record] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    barred: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    recorded: float | None = None
    standing: incremental.LastAudit | None = None
    partition_labels: Mapping[HostKey, str] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    busy: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    absences: absence.Absences = absence.Absences()
    mapped: bool = False
    host_aggregates: aggregates.KnownAggregates = aggregates.KnownAggregates()
    leaving: frozenset[str] = frozenset()
    recent: tuple[frozenset[str], ...] = ()
    over: frozenset[tuple[HostKey, str]] = frozenset()
