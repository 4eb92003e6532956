# SPDX-License-Identifier: Apache-2.0

"""The mirror: all nodes of Ironic, without listing them all each time.

Three ways of reading complete each other; none sees everything:

- the nodes that were touched last (Ironic's ``updated_at``, newest first).
    Each change touches a node, but the time has seconds, each conductor has
    its own clock, and a deleted node is in no order at all;
- the nodes that were created last, in the order of their ids;
- a round: all nodes, one page at a time, in the order of their ids. A node
    that a round does not meet is gone.

Ironic's API shows ``updated_at`` of one node or of whole nodes only, and sorts
by it without showing it (ironic.api.controllers.v1.node).
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import datetime
import types
import typing

#: By how much two clocks of Ironic may differ, and for how long a change may
#: be on its way into the database, until only a round finds it.
OVERLAP = datetime.timedelta(seconds=30)

#: As many nodes are remembered after which others are asked for: one that is
#: deleted meanwhile can no more be asked after.
MARKS = 8


class NodeRow(typing.NamedTuple):
    """A node in a listing.

    :param instance: uuid of the instance that Ironic has on it, or None.
    :param body: the fields that nova uses, comparable; None if not read.
    :param here: it is in the partition that is read.
    """

    uuid: str
    instance: str | None
    body: bytes | None = None
    here: bool = True


class ListingPage(typing.NamedTuple):
    """A page of a listing, in its order.

    :param more: other nodes follow.
    :param at: time of the answer by the clock of Ironic's API, or None.
    """

    rows: tuple[NodeRow, ...]
    more: bool = False
    at: datetime.datetime | None = None


def _nothing() -> typing.Any:
    return dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))


@dataclasses.dataclass(frozen=True)
class Mirror:
    """Ironic's nodes at one moment, as far as they are known.

    :param nodes: uuid -> uuid of its instance, or None.
    :param bodies: uuid -> :attr:`NodeRow.body`, as far as it is known.
    :param serial: number of changes so far, counting the first listing; 0 if
        nothing was read.
    :param changes: uuid -> number of its last change since the first listing.
    :param tail: uuids of the nodes that were created last, the newest last.
    :param since: touches before are known, by Ironic's clocks; None if it is
        not known how these stand.
    :param marks: uuids of the last nodes that the round has met; none at its
        beginning.
    :param missing: uuids of the nodes that were there when the round began and
        that it has not met; none before its first page.
    """

    nodes: Mapping[str, str | None] = _nothing()
    bodies: Mapping[str, bytes] = _nothing()
    serial: int = 0
    changes: Mapping[str, int] = _nothing()
    tail: tuple[str, ...] = ()
    since: datetime.datetime | None = None
    marks: tuple[str, ...] = ()
    missing: frozenset[str] = frozenset()

    def changed_since(self, serial: int) -> frozenset[str]:
        """Return the nodes that came or changed since a :attr:`serial`."""
        if serial == self.serial:
            return frozenset()
        return frozenset(node for node, its in self.changes.items()
                         if its > serial)

    def met(self, rows: Iterable[NodeRow]) -> 'Mirror':
        """Return the mirror after some nodes were read.

        :param rows: of two with one uuid the first counts, which was touched
            last.
        """
        found: dict[str, NodeRow] = {}
        for row in rows:
            found.setdefault(row.uuid, row)
        return self._with(
            [row for row in found.values() if row.here and self._is_news(row)],
            [uuid for uuid, row in found.items()
             if not row.here and uuid in self.nodes])

    def completed(self, rows: Sequence[NodeRow]) -> 'Mirror':
        """Return the mirror with more bodies; that changes no node."""
        if not rows:
            return self
        same = [row for row in rows if row.uuid in self.nodes
                and self.nodes[row.uuid] == row.instance]
        found = dataclasses.replace(self, bodies=types.MappingProxyType({
            **self.bodies, **{row.uuid: row.body for row in same
                              if row.body is not None}}))
        return found.met(rows)

    def without(self, nodes: Iterable[str]) -> 'Mirror':
        """Return the mirror without nodes that are gone."""
        return self._with(gone=[node for node in nodes if node in self.nodes])

    def only(self, wanted: Set[str]) -> 'Mirror':
        """Return the mirror without the bodies of all other nodes."""
        if self.bodies.keys() <= wanted:
            return self
        return dataclasses.replace(self, bodies=types.MappingProxyType({
            node: body for node, body in self.bodies.items()
            if node in wanted}))

    def listed(self, rows: Sequence[NodeRow],
               since: datetime.datetime | None) -> 'Mirror':
        """Return the mirror after all nodes were listed.

        :param rows: the nodes, in the order of their ids.
        :param since: see :func:`since`, right before.
        """
        found = self.without(
            self.nodes.keys() - {row.uuid for row in rows}).with_tail(rows)
        return dataclasses.replace(
            found, serial=max(1, found.serial), since=since).begun()

    def begun(self) -> 'Mirror':
        """Return the mirror at the beginning of a round."""
        return dataclasses.replace(self, marks=(), missing=frozenset())

    def gone_on(self, rows: Sequence[NodeRow]) -> 'Mirror':
        """Return the mirror after the next page of a round."""
        met = {row.uuid for row in rows}
        missing = (self.missing - met if self.marks
                   else frozenset(self.nodes.keys() - met))
        found = dataclasses.replace(self, missing=missing)
        return dataclasses.replace(
            found.met(rows), marks=_last(self.marks, rows))

    def ended(self) -> 'Mirror':
        """Return the mirror at the end of a round; unmet nodes are gone."""
        found = self.without(self.missing)
        return dataclasses.replace(
            found, marks=(), missing=frozenset(), tail=self.marks)

    def with_tail(self, rows: Sequence[NodeRow]) -> 'Mirror':
        """Return the mirror after the nodes that came after :attr:`tail`."""
        return dataclasses.replace(
            self.met(rows), tail=_last(self.tail, rows))

    def _is_news(self, row: NodeRow) -> bool:
        if row.uuid not in self.nodes:
            return True
        if row.body is not None:
            return self.bodies.get(row.uuid) != row.body
        return self.nodes[row.uuid] != row.instance

    def _with(self, news: Sequence[NodeRow] = (), gone: Sequence[str] = ()
              ) -> 'Mirror':
        if not news and not gone:
            return self
        serial = self.serial + 1
        nodes, bodies = dict(self.nodes), dict(self.bodies)
        changes = dict(self.changes)
        for row in news:
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
            # One that has come back may be where the round has been.
            self, missing=self.missing.difference(gone),
            nodes=types.MappingProxyType(nodes),
            bodies=types.MappingProxyType(bodies), serial=serial,
            changes=types.MappingProxyType(changes))


def _last(marks: tuple[str, ...], rows: Sequence[NodeRow]) -> tuple[str, ...]:
    last = [row.uuid for row in rows[-MARKS:]]
    return (*(mark for mark in marks if mark not in last), *last)[-MARKS:]


def since(first: datetime.datetime | None, at: datetime.datetime | None
          ) -> datetime.datetime | None:
    """Return from when on touches are asked for the next time.

    A conductor with a clock that is ahead would hide the touches of others, so
    the clock of the API counts, too, unless that is ahead itself.

    :param first: time of the latest touch.
    :param at: time of the question by the clock of the API, or None.
    :returns: None for all touches.
    """
    if first is None:
        return None
    return min(first, at or first) - OVERLAP
