# SPDX-License-Identifier: Apache-2.0

"""When nova's tracker audits a node: at a change, and once in an interval."""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import zlib

from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.ownership import Reason

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
    """The inputs of a node's audit; ``era`` is one for all nodes."""

    node: NodeRow
    reason: Reason
    era: int


@dataclasses.dataclass(frozen=True)
class NodeAudit:
    """A successful audit of a node."""

    basis: NodeInputs
    #: Monotonic time when placement last sent all that it has of the node.
    at: float


def due(basis: NodeInputs, last: NodeAudit | None, now: float, interval: float
        ) -> bool:
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


def order(nodes: Iterable[str], audited: Iterable[str],
          used: Iterable[str]) -> list[str]:
    """Return nodes in the order of their audits: new ones, then free ones."""
    audited, used = frozenset(audited), frozenset(used)
    return sorted(nodes, key=lambda node: (
        node in audited, node in used, node))


def drifted(before: Mapping[str, int | None], now: Mapping[str, int]
            ) -> set[str]:
    """Return the nodes with a changed provider generation."""
    # Placement raises it for changes of inventory, traits, allocations and
    # (microversion 1.19) aggregates (placement.objects.resource_provider).
    return {node for node, generation in before.items()
            if generation is None or now.get(node) != generation}
