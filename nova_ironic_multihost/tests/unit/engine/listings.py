# SPDX-License-Identifier: Apache-2.0

"""A model of Ironic's listings, with what is surprising about them.

As seen with Ironic 39 on MariaDB: times have seconds, and are those of the
conductor that writes; a node that was never touched has none, sorts last, and
is lost from the second page on; a marker that is deleted is an error; nothing
says that a node has been deleted, or has left the partition, but the number
of all.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import datetime
import itertools

from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.peers import Partition

START = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


class SilentError(ListingError):
    """Ironic does not answer."""


@dataclasses.dataclass
class Node:
    """A row of Ironic's table.

    ``content`` stands for all that nova works with.
    """

    id: int
    uuid: str
    shard: str
    instance: str | None = None
    content: int = 0
    touched: datetime.datetime | None = None

    def is_in(self, partition: Partition) -> bool:
        return not partition.shard or self.shard == partition.shard

    def row(self, wanted, partition: Partition = Partition()) -> NodeRow:
        if not self.is_in(partition):
            return NodeRow(self.uuid, self.instance, here=False)
        body = f'{self.uuid} {self.instance or "-"} {self.content}'
        return NodeRow(self.uuid, self.instance, body.encode() if wanted and
                       wanted(self.uuid) else None)


class Ironic:
    """Implements the port :class:`.engine.base.ports.Pages`.

    :param limit: the most nodes that it lists at once.
    :ivar meanwhile: called before each answer; what it changes others have
        changed between two requests.
    :ivar asked: names of what it was asked for.
    :ivar broken: nodes that it lists and cannot show.
    :ivar broken_pages: it cannot list all nodes.
    :ivar blind: it shows none of its nodes, as to an account without a role.
    """

    def __init__(self, limit: int = 1000, counts: bool = True) -> None:
        self._limit = limit
        self._counts = counts
        self._ids = itertools.count(1)
        self._table: dict[str, Node] = {}
        self.now = START
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[str] = []
        self.broken: set[str] = set()
        self.broken_pages = False
        self.blind = False

    # What others do.

    def create(self, uuid: str, shard: str = '') -> None:
        if uuid not in self._table:
            self._table[uuid] = Node(next(self._ids), uuid, shard)

    def delete(self, uuid: str) -> None:
        self._table.pop(uuid, None)

    def change(self, uuid: str, ahead: float = 0.0, **changes: object) -> None:
        """Change a node; the clock of its conductor is ahead by seconds."""
        node = self._table.get(uuid)
        if node is not None:
            for name, value in changes.items():
                setattr(node, name, value)
            node.touched = (self.now + datetime.timedelta(
                seconds=ahead)).replace(microsecond=0)

    def work(self, uuid: str, ahead: float = 0.0) -> None:
        """Change what nova works with."""
        if uuid in self._table:
            self.change(uuid, ahead, content=self._table[uuid].content + 1)

    def edit(self, uuid: str) -> None:
        """Change it in the database, so that nobody is told."""
        if uuid in self._table:
            self._table[uuid].content += 1

    def wait(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)

    def truth(self, partition: Partition = Partition(), wanted=None
              ) -> dict[str, NodeRow]:
        return {node.uuid: node.row(wanted)
                for node in self._visible(partition)}

    # The port.

    def page(self, partition, after, limit, wanted) -> ListingPage:
        self._answer('page')
        if self.broken_pages:
            raise SilentError()
        mark = self._mark(after)
        return self._page(limit, wanted, (
            node for node in sorted(
                self._visible(partition), key=lambda node: node.id)
            if mark is None or node.id > mark.id))

    def newest(self, partition, after, limit, wanted) -> ListingPage:
        def key(node: Node) -> tuple[datetime.datetime, int]:
            return node.touched or datetime.datetime.min.replace(
                tzinfo=datetime.UTC), node.id

        self._answer('newest')
        mark = self._mark(after)
        return self._page(limit, wanted, (
            node for node in sorted(
                self._visible(), key=key, reverse=True)
            if mark is None or (mark.touched and node.touched
                                and key(node) < key(mark))), partition)

    def node(self, node) -> NodeRow:
        self._answer('node')
        found = self._shown(node)
        return found.row(lambda uuid: True)

    def touched(self, node) -> datetime.datetime | None:
        self._answer('touched')
        return self._shown(node).touched

    def total(self, partition: Partition = Partition()) -> int | None:
        self._answer('total')
        return sum(node.is_in(partition) for node in list(
            self._table.values())) if self._counts else None

    def _answer(self, question: str) -> None:
        self.asked.append(question)
        self.meanwhile()

    def _shown(self, uuid: str) -> Node:
        if uuid in self.broken:
            raise SilentError(f'500 for {uuid}')
        if self.blind or uuid not in self._table:
            raise MarkerNotFound(f'no node {uuid}')
        return self._table[uuid]

    def _mark(self, uuid: str | None) -> Node | None:
        if uuid is None:
            return None
        if uuid not in self._table:
            raise MarkerNotFound(f'no node {uuid}')
        return self._table[uuid]

    def _visible(self, partition: Partition = Partition()) -> Iterator[Node]:
        return (node for node in list(self._table.values())
                if not self.blind and node.is_in(partition))

    def _page(
        self, limit, wanted, nodes, partition=Partition()
    ) -> ListingPage:
        limit = min(limit, self._limit)
        rows = [node.row(wanted, partition)
                for node in itertools.islice(nodes, limit)]
        return ListingPage(tuple(rows), len(rows) == limit, self.now)
