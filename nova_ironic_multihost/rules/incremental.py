# SPDX-License-Identifier: Apache-2.0

"""Which nodes an audit decides again, and which nova's tracker audits again.

The tracker audits a node at a change, and once in an interval.
"""

from collections import abc
import dataclasses
import zlib

from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

#: A change of such a node concerns no other host, so it is audited at once.
AT_ONCE = frozenset({
    Reason.KEPT, Reason.CREATED, Reason.INSTANCE_HERE, Reason.BUILDING,
    Reason.LEAKED, Reason.UNKNOWN})

#: Each node is decided again at least once in so many audits.
TURNS = 10


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the reasons of all nodes depend on."""

    view: peers.View
    preferences: ring.Preferences
    zones: abc.Mapping[HostKey, str]
    partition: peers.Partition


@dataclasses.dataclass(frozen=True)
class LastAudit:
    """The state at an audit; ``unsettled`` nodes are decided again."""

    #: None before the first audit.
    basis: Inputs | None = None
    serial: int = 0
    my_nodes: frozenset[str] = frozenset()
    my_instances: frozenset[str] = frozenset()
    unsettled: frozenset[str] = frozenset()
    turn: int = -1


def due(before: LastAudit, basis: Inputs, mirror: Mirror,
        my_nodes: abc.Set[str], my_instances: abc.Set[str]) -> abc.Set[str]:
    """Return the nodes that an audit decides: all if ``basis`` has changed."""
    # Else nodes that changed or may change without notice, and some in turn.
    if before.basis != basis:
        return mirror.nodes.keys()
    moved = my_instances ^ before.my_instances
    turn = before.turn % TURNS
    return mirror.nodes.keys() & {
        *mirror.changed_since(before.serial), *before.unsettled,
        *(my_nodes ^ before.my_nodes),
        *(node for node, instance in mirror.nodes.items()
          if instance in moved or zlib.crc32(node.encode()) % TURNS == turn)}


def uncertain(before: LastAudit, basis: Inputs, mirror: Mirror,
              recorded: abc.Set[str], mine: abc.Iterable[str]
             ) -> set[str] | None:
    """Return the nodes to read records of; None for all records."""
    # nova's conductor sends 1.6 kB for each record. A live host loses nodes
    # only to preferred members, and gets nodes only through this package. One
    # audit in TURNS reads all, to find manual changes in the database.
    if before.basis != basis or before.turn % TURNS == 0:
        return None
    host, members = basis.view.host, basis.preferences.members
    changed = mirror.changed_since(before.serial) | before.unsettled
    return {*(node for node in recorded
              if node in changed or node not in mirror.nodes
              or mirror.nodes[node] not in before.my_instances
              and not basis.preferences.prefers(
                  host, node, members.get(host))),
            *(node for node in mine if node not in recorded)}


def in_doubt(recorded: float | None, doubted: float | None) -> bool:
    """Return whether others may have taken nodes since the last full read."""
    # ``doubted``: when any host last saw this host as no member.
    return doubted is not None and (recorded is None or doubted >= recorded)


def reason_lasts(node: str, reason: Reason, facts: Facts) -> bool:
    """Return whether a reason stands until a change that is noticed."""
    instance = facts.nodes[node]
    if node in facts.my_nodes:
        return reason is Reason.KEPT or (
            reason is Reason.INSTANCE_HERE and instance in facts.my_instances)
    if reason is Reason.INSTANCE_ELSEWHERE:
        state = (facts.instance_states.get(instance)
                 if instance is not None else None)
        return (state is not None and not state.deleted
                and facts.view.live(state.host_key)
                or not facts.concerns_me(node))
    if reason is Reason.OTHER_PREFERRED:
        record = facts.records.get(node)
        return (record is not None and facts.view.live(record.owner)
                or not facts.concerns_me(node))
    return False


#: Each node is audited again at its own moment after this part of an interval.
EARLIEST = 0.5

#: The node was offered before and still is.
READY = frozenset({Reason.KEPT, Reason.INSTANCE_HERE})

#: The node moves to this host before the tracker can audit it.
COMING = frozenset({Reason.ADOPTED, Reason.PULLED, Reason.TAKEN_OVER})

#: The free node comes from another host.
CAME = frozenset({Reason.ADOPTED, Reason.PULLED})


@dataclasses.dataclass(frozen=True)
class NodeInputs:
    """The inputs of a node's audit; ``common`` are those of all nodes."""

    node: NodeRow
    reason: Reason
    common: object


@dataclasses.dataclass(frozen=True)
class NodeAudit:
    """A successful audit of a node."""

    basis: NodeInputs
    #: Monotonic time when placement last sent all that it has of the node.
    at: float


def audit_is_due(basis: NodeInputs, last: NodeAudit | None, now: float,
                 interval: float) -> bool:
    """Return whether a node is to be audited; ``interval`` is in seconds."""
    # nova itself audits all each time. The interval finds unannounced changes.
    return (last is None or basis.node.body is None
            or not _same(last.basis, basis)
            or interval_has_passed(basis.node.uuid, last, now, interval))


def interval_has_passed(node: str, last: NodeAudit, now: float,
                        interval: float) -> bool:
    """Return whether a node is audited only because its time has come."""
    return now - last.at >= interval * moment(node)


def _same(before: NodeInputs, now: NodeInputs) -> bool:
    """Return whether an earlier audit covers the inputs of now."""
    if now.reason is Reason.KEPT and before.reason in CAME:
        now = dataclasses.replace(now, reason=before.reason)
    return before == now


def moment(node: str) -> float:
    """Return when in an interval a node is audited, as a fraction."""
    return EARLIEST + (1 - EARLIEST) * (
        zlib.crc32(node.encode()) % 1024 / 1024)


def audit_order(nodes: abc.Iterable[str], changed: abc.Set[str],
                audited: abc.Set[str], used: abc.Set[str]) -> list[str]:
    """Return nodes in the order of their audits: changed ones first."""
    return sorted(nodes, key=lambda node: (
        node not in changed, node in audited, node in used, node))


def drifted(before: abc.Mapping[str, int | None], now: abc.Mapping[str, int]
            ) -> set[str]:
    """Return the nodes with a changed provider generation."""
    # Placement raises it for changes of inventory, traits, allocations and
    # (microversion 1.19) aggregates (placement.objects.resource_provider).
    return {node for node, generation in before.items()
            if generation is None or now.get(node) != generation}
