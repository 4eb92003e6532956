# SPDX-License-Identifier: Apache-2.0

"""When nova's tracker audits a node.

nova audits each node every time. Here a node is audited when something that
its audit depends on has changed since the last one that succeeded, and else
once in an interval: not every change of its record or resource provider gives
a sign.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import zlib

from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.ownership import Reason

#: The part of the interval after which the first nodes are audited again. All
#: may have been audited at once, so each has its own moment between that and
#: the whole interval.
EARLIEST = 0.5

#: Why a node is this host's that it has offered before, as it still is to be.
READY = frozenset({Reason.KEPT, Reason.INSTANCE_HERE})

#: Why a node is this host's that has to be taken first: by whoever has decided
#: that, until the tracker has its record.
COMING = frozenset({Reason.ADOPTED, Reason.PULLED, Reason.TAKEN_OVER})

#: Why a free node is this host's that another one had.
CAME = frozenset({Reason.ADOPTED, Reason.PULLED})


@dataclasses.dataclass(frozen=True)
class NodeInputs:
    """What the audit of a node depends on, besides signs of changes.

    :param node: Ironic's state of it.
    :param reason: why it is this host's.
    :param era: number that grows when something changes that the audits of all
        nodes depend on.
    """

    node: NodeRow
    reason: Reason
    era: int


@dataclasses.dataclass(frozen=True)
class NodeAudit:
    """An audit of a node that succeeded.

    :param basis: the inputs when it began.
    :param at: when placement was asked for all that it has of the node, for
        this audit or one before, by a monotonic clock.
    """

    basis: NodeInputs
    at: float


def due(basis: NodeInputs, last: NodeAudit | None, now: float, interval: float
        ) -> bool:
    """Whether a node is to be audited.

    :param basis: inputs of this moment.
    :param last: None if it was not audited yet.
    :param now: this moment, in seconds.
    :param interval: seconds in which each node is audited.
    """
    return (last is None or basis.node.body is None
            or not _same(last.basis, basis)
            or is_over(basis.node.uuid, last, now, interval))


def is_over(node: str, last: NodeAudit, now: float, interval: float) -> bool:
    """Whether a node is audited for no reason but the time."""
    return now - last.at >= interval * moment(node)


def _same(before: NodeInputs, now: NodeInputs) -> bool:
    """Whether an audit by the inputs before has told all of those of now.

    An audit of a free node that has come tells the same as of one that is
    kept. Not the other way round: the node was another host's in between.
    """
    if now.reason is Reason.KEPT and before.reason in CAME:
        now = dataclasses.replace(now, reason=before.reason)
    return before == now


def moment(node: str) -> float:
    """Return when in an interval a node is audited again, as part of it."""
    return EARLIEST + (1 - EARLIEST) * (
        zlib.crc32(node.encode()) % 1024 / 1024)


def order(nodes: Iterable[str], audited: Iterable[str],
          used: Iterable[str]) -> list[str]:
    """Return nodes in the order in which they are audited.

    Nodes that no build can use yet come first; of these and of the others
    those without a server.

    :param audited: uuids of nodes that were audited before.
    :param used: uuids of nodes that have a server.
    """
    audited, used = frozenset(audited), frozenset(used)
    return sorted(nodes, key=lambda node: (
        node in audited, node in used, node))


def drifted(before: Mapping[str, int | None], now: Mapping[str, int]
            ) -> set[str]:
    """Return the nodes whose resource providers have changed.

    The generation of a provider grows with each change of its inventory,
    traits, allocations and, from microversion 1.19 on, aggregates
    (placement.objects.resource_provider, placement.handlers).

    :param before: uuid -> generation at the last listing, or None.
    :param now: the same of this moment.
    """
    return {node for node, generation in before.items()
            if generation is None or now.get(node) != generation}
