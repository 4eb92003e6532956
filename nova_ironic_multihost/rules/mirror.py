# SPDX-License-Identifier: Apache-2.0

"""The mirror: a copy of Ironic's node list, kept without full listings.

It reads recent changes by ``updated_at``, new nodes in the order of ids, and
now and then lists all nodes: a node that is not listed is gone. Every change
by Ironic sets ``updated_at``, to the second, by each conductor's clock. The
API sorts by it without showing it (ironic.api.controllers.v1.node).
"""

from collections import abc
import dataclasses
import datetime
import random
import typing

#: The most by which Ironic's clocks may differ and a write may be late. Only a
#: listing of all nodes finds later changes.
OVERLAP = datetime.timedelta(seconds=30)

#: Last nodes to remember: a listing cannot continue after a deleted one.
MARKS = 8


class NodeRow(typing.NamedTuple):
    """A node in a listing; ``here``: it is in the partition that is read."""

    uuid: str
    instance: str | None
    body: bytes | None = None
    here: bool = True


class ListingPage(typing.NamedTuple):
    """Some nodes of a listing; ``at`` is the time of Ironic's API."""

    rows: tuple[NodeRow, ...]
    more: bool = False
    at: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class Mirror:
    """Ironic's nodes, as known at one moment; immutable."""

    nodes: abc.Mapping[str, str | None] = dataclasses.field(
        default_factory=dict)
    bodies: abc.Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    #: Number of changes, with the first listing; 0 before it.
    serial: int = 0
    #: uuid -> serial of its last change after the first listing.
    changes: abc.Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: uuids of the last nodes in the order of ids.
    tail: tuple[str, ...] = ()
    #: All changes before this time are known, by Ironic's clocks.
    since: datetime.datetime | None = None

    def changed_since(self, serial: int) -> frozenset[str]:
        """Return the listed nodes that are new or changed since a serial."""
        if serial == self.serial:
            return frozenset()
        return frozenset(node for node, last_change in self.changes.items()
                         if last_change > serial)

    def met(self, rows: abc.Iterable[NodeRow]) -> 'Mirror':
        """Return the mirror after a read; of two rows the first counts."""
        found: dict[str, NodeRow] = {}
        for row in rows:
            found.setdefault(row.uuid, row)
        return self._updated(
            [row for row in found.values()
             if row.here and self._is_changed(row)],
            [uuid for uuid, row in found.items()
             if not row.here and uuid in self.nodes])

    def completed(self, rows: abc.Sequence[NodeRow]) -> 'Mirror':
        """Return the mirror with more bodies, which alone are no change."""
        if not rows:
            return self
        same_instance = [row for row in rows if row.uuid in self.nodes
                         and self.nodes[row.uuid] == row.instance]
        found = dataclasses.replace(self, bodies={
            **self.bodies, **{row.uuid: row.body for row in same_instance
                              if row.body is not None}})
        return found.met(rows)

    def without(self, nodes: abc.Iterable[str]) -> 'Mirror':
        """Return the mirror without nodes that are gone."""
        return self._updated(
            gone=[node for node in nodes if node in self.nodes])

    def only(self, wanted: abc.Set[str]) -> 'Mirror':
        """Return the mirror without the bodies of other nodes."""
        if self.bodies.keys() <= wanted:
            return self
        return dataclasses.replace(self, bodies={
            node: body for node, body in self.bodies.items()
            if node in wanted})

    def listed(self, rows: abc.Sequence[NodeRow],
               since: datetime.datetime | None) -> 'Mirror':
        """Return the mirror after a full listing, in the order of ids."""
        found = self.without(
            self.nodes.keys() - {row.uuid for row in rows}).met(rows)
        return dataclasses.replace(
            found, serial=max(1, found.serial), since=since,
            tail=_last((), rows))

    def with_tail(self, rows: abc.Sequence[NodeRow]) -> 'Mirror':
        """Return the mirror after the nodes that came after :attr:`tail`."""
        return dataclasses.replace(
            self.met(rows), tail=_last(self.tail, rows))

    def _is_changed(self, row: NodeRow) -> bool:
        if row.uuid not in self.nodes:
            return True
        if row.body is not None:
            return self.bodies.get(row.uuid) != row.body
        return self.nodes[row.uuid] != row.instance

    def _updated(self, changed: abc.Sequence[NodeRow] = (),
                 gone: abc.Sequence[str] = ()
              ) -> 'Mirror':
        if not changed and not gone:
            return self
        serial = self.serial + 1
        nodes, bodies = dict(self.nodes), dict(self.bodies)
        changes = dict(self.changes)
        for row in changed:
            nodes[row.uuid] = row.instance
            bodies.pop(row.uuid, None)
            if row.body is not None:
                bodies[row.uuid] = row.body
            if self.serial:
                changes[row.uuid] = serial
        for node in gone:
            del nodes[node]
            bodies.pop(node, None)
            changes.pop(node, None)
        return dataclasses.replace(
            self, nodes=nodes, bodies=bodies, serial=serial, changes=changes)


def _last(marks: tuple[str, ...], rows: abc.Sequence[NodeRow]
         ) -> tuple[str, ...]:
    last = [row.uuid for row in rows[-MARKS:]]
    return (*(mark for mark in marks if mark not in last), *last)[-MARKS:]


def since(first: datetime.datetime | None, at: datetime.datetime | None
          ) -> datetime.datetime | None:
    """Return the time from which to ask for changes next; None for all."""
    # The API's clock counts too: a fast conductor's would hide other changes.
    if first is None:
        return None
    return min(first, at or first) - OVERLAP


# If a driver says that a node is gone, nova deletes its record, provider and
# allocations. But an account that lost a role gets an empty list, and 404 for
# each node. So a node is gone after a 404 for it in several audits in a row,
# and if most nodes vanish at once an operator must confirm it.

#: Audits in a row in which a node must be missing.
AUDITS_MISSING = 2

#: The same when more than one node and more than this percentage is missing.
AUDITS_MANY_MISSING = 10
MANY_MISSING = 10

#: The most nodes to ask Ironic for in one audit; the next asks for more.
ABSENCE_QUESTIONS = 100


@dataclasses.dataclass(frozen=True)
class Absences:
    """Unlisted nodes; ``braked``: too many to take any for deleted."""

    #: Node uuid -> number of audits in a row with a 404.
    counts: abc.Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: The nodes that are taken for deleted.
    confirmed: abc.Set[str] = frozenset()
    braked: bool = False


def too_few(mine: abc.Set[str], listed: abc.Set[str], percent: int) -> bool:
    """Return whether a listing lacks too much to take any node for deleted."""
    # ``percent`` of ``mine`` may vanish at once; 100 trusts an empty listing.
    missing = mine - listed
    return percent < 100 and (
        not listed
        or len(missing) > 1 and 100 * len(missing) > percent * len(mine))


def note_absences(absences: Absences, mine: abc.Set[str], listed: abc.Set[str],
            percent: int) -> Absences:
    """Compare my nodes with the listed ones; see :func:`too_few`."""
    missing = mine - listed
    if not missing:
        return Absences()
    braked = too_few(mine, listed, percent)
    return Absences(
        {node: 0 if braked else absences.counts.get(node, 0)
         for node in sorted(missing)},
        frozenset(), braked)


def absence_questions(absences: Absences) -> list[str]:
    """Return the nodes to ask for: those with most 404, others by chance."""
    if absences.braked:
        return []
    counts = absences.counts
    return sorted(random.sample(sorted(counts), len(counts)),
                  key=lambda node: -counts[node])[:ABSENCE_QUESTIONS]


def absences_answered(absences: Absences, mine: abc.Set[str],
                      gone: abc.Set[str], found: abc.Set[str]) -> Absences:
    """Return the absences with Ironic's answers; ``gone`` had a 404."""
    many = (len(absences.counts) > 1
            and 100 * len(absences.counts) > MANY_MISSING * len(mine))
    needed = AUDITS_MANY_MISSING if many else AUDITS_MISSING
    counts = {
        node: count + 1 if node in gone else 0 if node in found else count
        for node, count in absences.counts.items()}
    confirmed = frozenset(
        node for node, count in counts.items() if count >= needed)
    return Absences(counts, confirmed, absences.braked)
