# SPDX-License-Identifier: Apache-2.0

"""Nodes that are recorded here and that Ironic does not list.

If a driver says that a node is gone, nova deletes its record, provider and
allocations. But an account that lost a role gets an empty list, and 404 for
each node. So a node is gone after a 404 for it in several audits in a row, and
if most nodes vanish at once an operator must confirm it.
"""

import bisect
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import types

#: Audits in a row in which a node must be missing.
AUDITS = 2

#: The same when more than one node and more than this percentage is missing.
AUDITS_OF_MANY = 10
MANY = 10

#: The most nodes to ask Ironic for in one audit; the next asks for more.
QUESTIONS = 100


@dataclasses.dataclass(frozen=True)
class Absences:
    """Unlisted nodes; ``braked``: too many to take any for deleted."""

    #: Node uuid -> number of audits in a row with a 404.
    counts: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    #: The nodes that are taken for deleted.
    confirmed: Set[str] = frozenset()
    braked: bool = False
    asked: str = ''


def too_few(mine: Set[str], listed: Set[str], percent: int) -> bool:
    """Return whether a listing lacks too much to take any node for deleted."""
    # ``percent`` of ``mine`` may vanish at once; 100 trusts an empty listing.
    missing = mine - listed
    return percent < 100 and (
        not listed
        or len(missing) > 1 and 100 * len(missing) > percent * len(mine))


def observe(absences: Absences, mine: Set[str], listed: Set[str],
            percent: int) -> Absences:
    """Compare my nodes with the listed ones; see :func:`too_few`."""
    missing = mine - listed
    if not missing:
        return Absences()
    braked = too_few(mine, listed, percent)
    return Absences(
        types.MappingProxyType({
            node: 0 if braked else absences.counts.get(node, 0)
            for node in sorted(missing)}),
        frozenset(), braked, absences.asked)


def questions(absences: Absences) -> list[str]:
    """Return the nodes to ask for: those with most 404, others in start."""
    if absences.braked:
        return []
    counts = absences.counts
    missing = sorted((node for node in counts if counts[node]),
                     key=lambda node: -counts[node])
    others = sorted(node for node in counts if not counts[node])
    start = bisect.bisect_right(others, absences.asked)
    return [*missing, *others[start:], *others[:start]][:QUESTIONS]


def answered(absences: Absences, mine: Set[str], gone: Set[str],
             found: Set[str]) -> Absences:
    """Return the absences with Ironic's answers; ``gone`` had a 404."""
    many = (len(absences.counts) > 1
            and 100 * len(absences.counts) > MANY * len(mine))
    needed = AUDITS_OF_MANY if many else AUDITS
    counts = {
        node: count + 1 if node in gone else 0 if node in found else count
        for node, count in absences.counts.items()}
    confirmed = frozenset(
        node for node, count in counts.items() if count >= needed)
    return Absences(
        types.MappingProxyType(counts), confirmed, absences.braked,
        next(reversed(questions(absences)), absences.asked))
