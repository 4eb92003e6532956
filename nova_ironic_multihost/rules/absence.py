# SPDX-License-Identifier: Apache-2.0


"""Nodes that are recorded on this host and that Ironic does not list.

nova deletes the record, the resource provider and all allocations of a node
when its driver says that the node is gone. A listing does not prove that: an
account that lost a role sees an empty list, and 404 for each node. So a node
is gone when Ironic has answered 404 for it in several audits in a row. When
most nodes vanish at once nothing is deleted until an operator allows it.
"""

import bisect
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import types

#: Audits in a row in which a node must be missing.
AUDITS = 2

#: The same when many vanished: more than one and more than this percentage.
AUDITS_OF_MANY = 10
MANY = 10

#: The most nodes that Ironic is asked for in one audit; the next audit asks
#: for those that are left.
QUESTIONS = 100


@dataclasses.dataclass(frozen=True)
class Absences:
    """The nodes that are not listed.

    :param counts: node uuid -> audits in a row in which Ironic answered 404
        for it; 0 for a node that was not asked for.
    :param confirmed: the nodes of these that count as deleted.
    :param braked: too many vanished, and none counts as deleted.
    :param asked: the last node that Ironic was asked for.
    """

    counts: Mapping[str, int] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    confirmed: Set[str] = frozenset()
    braked: bool = False
    asked: str = ''


def observe(absences: Absences, mine: Set[str], listed: Set[str],
            percent: int) -> Absences:
    """Compare the nodes recorded on this host with those that Ironic lists.

    :param absences: after the audit before.
    :param mine: uuids of the nodes that are recorded on this host.
    :param listed: uuids of the nodes that Ironic lists.
    :param percent: share of ``mine`` that may vanish at once and count as
        deleted, 0 to 100; with 100 even an empty list is believed.
    :returns: :class:`Absences` to be completed by :func:`answered`.
    """
    missing = mine - listed
    if not missing:
        return Absences()
    braked = percent < 100 and (
        not listed
        or len(missing) > 1 and 100 * len(missing) > percent * len(mine))
    return Absences(
        types.MappingProxyType({
            node: 0 if braked else absences.counts.get(node, 0)
            for node in sorted(missing)}),
        frozenset(), braked, absences.asked)


def questions(absences: Absences) -> list[str]:
    """Return the nodes to ask Ironic for, at most :data:`QUESTIONS`.

    Nodes that have been missing longest come first, then all others in turn.

    :param absences: result of :func:`observe`.
    """
    if absences.braked:
        return []
    counts = absences.counts
    missing = sorted((node for node in counts if counts[node]),
                     key=lambda node: -counts[node])
    others = sorted(node for node in counts if not counts[node])
    turn = bisect.bisect_right(others, absences.asked)
    return [*missing, *others[turn:], *others[:turn]][:QUESTIONS]


def answered(absences: Absences, mine: Set[str], gone: Set[str],
             found: Set[str]) -> Absences:
    """Return the absences with Ironic's answers.

    :param absences: result of :func:`observe`.
    :param gone: nodes for which Ironic answered 404.
    :param found: nodes for which it answered anything else.
    """
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
