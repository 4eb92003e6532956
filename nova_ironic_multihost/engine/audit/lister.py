# SPDX-License-Identifier: Apache-2.0

"""The lister: asks Ironic what has changed, and keeps the mirror.

:mod:`.rules.mirror` has the rules. A read that fails changes nothing.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import contextlib
import dataclasses
import datetime
import math
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import ListingError
from nova_ironic_multihost.engine.base.ports import MarkerNotFound
from nova_ironic_multihost.engine.base.ports import Pages
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import mirror as mirrors
from nova_ironic_multihost.rules.mirror import ListingPage
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Nodes in a page of all nodes.
PAGE = 1000

#: Nodes in the first page of the last updated ones; the next pages grow.
FIRST = 20

#: Nodes that may fail to read until the others are left for later.
FAILURES = 3

#: Listed nodes that cost Ironic as much as one node read alone: 0.5 ms each
#: in a page, 11 ms alone.
TOGETHER = 20

#: With more updated nodes than these, listing all nodes costs less.
MANY = 2000

#: Seconds between two counts of nodes, a bit less than between two reads with
#: nova's defaults; and between two searches for new nodes at an equal count.
COUNT, SEARCH = 8, 60

#: The most pages of a round in one read, while a node is known to be gone.
HURRY = 10

#: Gets the uuids of a node and of its instance, or None; returns whether the
#: body of the node is wanted.
Wanted = Callable[[str, str | None], bool]

_Ask = Callable[[str | None], ListingPage]


class InconsistentListing(Exception):
    """Ironic's answers contradict each other: list all nodes again."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """The state of the mirror and of the round of pages.

    :param top: the last updated nodes, with all recent updates; empty if
        unknown or many.
    :param others: nodes that Ironic has besides the mirror, or None.
    :param size: nodes that Ironic returns in a page, of :data:`PAGE`.
    :param hurry: rounds to finish at once.
    :param turned: when the last page of the round was due.
    :param searched: when new nodes were last asked for.
    """

    partition: peers.Partition
    mirror: Mirror
    top: tuple[NodeRow, ...] = ()
    others: int | None = None
    size: int = PAGE
    hurry: int = 0
    turned: float = 0.0
    searched: float = 0.0
    counted: float = 0.0


class Lister:
    """Lists all nodes of Ironic once, then reads what has changed."""

    def __init__(self, pages: Pages,
                 clock: Callable[[], float] = time.monotonic,
                 recorder: Metrics | None = None) -> None:
        self._pages = pages
        self._clock = clock
        self._recorder = recorder or Metrics(clock)
        # One read at a time; also guards _listing and _counts.
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._counts = True
        #: A node to read, or None to list all -> its last request, by any
        #: thread; and the request that was answered last.
        self._requests: dict[str | None, object] = {}
        self._answered: dict[str | None, object] = {}
        self._unlisted: frozenset[str] = frozenset()
        #: Nodes that could not be read at least once.
        self._failed: set[str] = set()

    def read(self, partition: peers.Partition, seconds: float,
             wanted: Wanted, brief: bool = False, often: bool = False
             ) -> Mirror:
        """Ask Ironic what has changed.

        :param seconds: in which a round of pages lists every node.
        :param brief: do not wait: while another thread reads, or when all
            nodes must be listed, return the mirror as it is.
        :param often: the caller asks every few seconds, so nodes are counted
            only every :data:`COUNT` seconds.
        :raises Exception: Ironic did not answer; the mirror is unchanged.
        """
        if not self._lock.acquire(blocking=not brief):
            return self.mirror
        try:
            before = self._listing
            if not brief:
                with self._recorder.turn(Work.LISTING):
                    self._read_in_full(partition, seconds, wanted, often)
            elif before is not None and before.partition == partition:
                with contextlib.suppress(MarkerNotFound, InconsistentListing):
                    self._listing = self._gone_on(before, seconds, wanted)
            return self.mirror
        finally:
            self._lock.release()

    def _read_in_full(self, partition: peers.Partition, seconds: float,
                      wanted: Wanted, often: bool) -> None:
        requests = {node: request for node, request
                    in [*self._requests.items()]
                    if self._answered.get(node) is not request}
        changed = {node for node in requests if node is not None}
        self._listing, left, gone = self._with_changed(self._refreshed(
            partition, seconds, wanted, None in requests,
            # A changed node that is not known may be new.
            often and changed <= self.mirror.nodes.keys()), changed, wanted)
        self._answered.update(
            item for item in requests.items() if item[0] not in left)
        if gone:
            self._requests[None] = object()

    def _refreshed(self, partition: peers.Partition, seconds: float,
                   wanted: Wanted, list_again: bool, often: bool) -> Listing:
        before = self._listing or Listing(partition, Mirror())
        if before.partition != partition or not before.mirror.serial:
            return self._all(
                dataclasses.replace(before, partition=partition), wanted)
        if list_again:
            before = _with_round_at_once(before)
        try:
            return self._gone_on(before, seconds, wanted, often)
        except (MarkerNotFound, InconsistentListing) as exc:
            LOG.info('All nodes of Ironic are listed again: %s.', exc)
            return self._all(before, wanted)

    @property
    def mirror(self) -> Mirror:
        """Ironic's nodes as last read; empty before the first read."""
        return self._listing.mirror if self._listing else Mirror()

    def node(self, node: str) -> NodeRow | None:
        """Read a node of any partition from Ironic; None if there is none."""
        try:
            return self._pages.node(node)
        except MarkerNotFound:
            return None

    def complete(self, nodes: Set[str], later: Set[str] = frozenset()
                 ) -> Mirror:
        """Keep the bodies of these nodes, read missing ones but ``later``.

        If Ironic fails or another thread reads, nova's driver reads them.
        """
        if not self._lock.acquire(blocking=False):
            return self.mirror
        try:
            listing = self._listing
            assert listing is not None
            mirror = listing.mirror.only(nodes)
            missing = [node for node in nodes
                       if node in mirror.nodes and node not in mirror.bodies
                       and node not in later]
            try:
                mirror = mirror.completed(self._read(
                    listing.partition, mirror, missing))
            except Exception as exc:  # noqa: BLE001
                LOG.debug('%d nodes are asked for later: %s',
                          len(missing), exc)
            self._listing = dataclasses.replace(listing, mirror=mirror)
            return mirror
        finally:
            self._lock.release()

    def _read(self, partition: peers.Partition, mirror: Mirror,
              nodes: Sequence[str]) -> list[NodeRow]:
        """Read some nodes in the cheaper way: one by one, or listed."""
        unused = {node for node, instance in mirror.nodes.items()
                  if instance is None}
        rows: list[NodeRow] = []
        for listed, some in (
                (unused, [node for node in nodes if node in unused]),
                (mirror.nodes, [node for node in nodes
                                if node not in unused])):
            rows += (self._read_listed(
                partition, frozenset(some), listed is unused)
                if TOGETHER * len(some) > len(listed) else
                [row for _, row in self._read_each(some) if row is not None])
        return rows

    def _read_listed(self, partition: peers.Partition,
                     nodes: frozenset[str], unused: bool) -> list[NodeRow]:
        return [row for page in self._from(
            partition, (), lambda node, instance: node in nodes, unused)
                for row in page.rows if row.uuid in nodes]

    def _read_each(self, nodes: Iterable[str]
                   ) -> Iterator[tuple[str, NodeRow | None]]:
        """Yield (node, row), None for the row of a node that is not found.

        A node that fails does not stop the others. Callers must not trust
        None: an account that lost its role gets "not found" for each node.
        """
        failed = 0
        for node in nodes:
            try:
                yield node, self._pages.node(node)
            except MarkerNotFound:
                yield node, None
            except ListingError as exc:
                LOG.debug('Node %s is read later: %s', node, exc)
                self._failed.add(node)
                failed += 1
                if failed == FAILURES:
                    return

    def forget(self, node: str) -> None:
        """Have the next read get this node, regardless of Ironic's clocks."""
        self._requests[node] = object()

    def newest(self, row: NodeRow) -> NodeRow | None:
        """Return a node as read since :meth:`forget`; None without a body."""
        uuid = row.uuid
        if self._requests.get(uuid) is not self._answered.get(uuid):
            return None
        mirror = self.mirror
        if uuid in mirror.nodes:
            row = NodeRow(uuid, mirror.nodes[uuid], mirror.bodies.get(uuid))
        return None if row.body is None else row

    def seek(self, nodes: Set[str], again: bool = False) -> None:
        """Have the next read list all nodes in one round.

        :param nodes: uuids of nodes that exist and were not listed. Each
            counts once, as it may be in another partition.
        :param again: list in any case.
        """
        if again or not nodes <= self._unlisted:
            self._requests[None] = object()
        self._unlisted = frozenset(nodes)

    def _all(self, before: Listing, wanted: Wanted) -> Listing:
        """List all nodes, and those that are updated meanwhile."""
        total = self._count(before.partition)
        try:
            newest = self._pages.newest(
                before.partition, None, mirrors.MARKS, wanted)
            first = self._first(newest.rows)
            size, rows = PAGE, list[NodeRow]()
            for page in self._from(before.partition, (), wanted):
                rows += page.rows
                size = max(1, len(page.rows)) if page.more else size
        except MarkerNotFound as exc:
            raise ListingError(
                f'nodes vanish while it lists them: {exc}') from exc
        mirror = before.mirror.listed(rows, mirrors.since(first, newest.at))
        after = self._count(before.partition)
        now = self._clock()
        return Listing(
            before.partition, mirror, turned=now, searched=now, counted=now,
            size=size, others=_others(after, mirror),
            hurry=int(total != after))

    def _count(self, partition: peers.Partition) -> int | None:
        """Count the nodes of the partition or of Ironic; None if unknown."""
        try:
            total = self._pages.total(partition)
        except ListingError as exc:
            if self._counts:
                LOG.warning(
                    'Ironic does not count its nodes (GET /v1/shards): '
                    '%(exc)s. Until it does, that a node was deleted shows '
                    'within two [ironic_multihost]audit_interval. Check that '
                    'the Ironic API lets nova ask for that.', {'exc': exc})
            self._counts = False
            return None
        self._counts = True
        return total

    def _gone_on(self, listing: Listing, seconds: float, wanted: Wanted,
                 often: bool = False) -> Listing:
        listing, now = self._with_touched(listing, wanted), self._clock()
        if (often and listing.others is not None
                and now - listing.counted < COUNT):
            return self._with_round(listing, seconds, wanted)
        total = self._count(listing.partition)
        listing = dataclasses.replace(listing, counted=now)
        if (total is None or now - listing.searched >= SEARCH
                or _others(total, listing.mirror) != listing.others):
            listing = dataclasses.replace(
                self._with_new(listing, wanted), searched=now)
            if total is not None:
                total = self._count(listing.partition)
        counted = _others(total, listing.mirror)
        listing = self._with_round(
            _with_count_checked(listing, counted), seconds, wanted)
        if total is None:
            return listing  # The next count notices nodes that went.
        others = _others(total, listing.mirror)
        # New nodes in the round may hide as many that are gone.
        return dataclasses.replace(_with_count_checked(dataclasses.replace(
            listing, others=counted), others), others=others)

    def _with_changed(self, listing: Listing, nodes: Set[str],
                      wanted: Wanted) -> tuple[Listing, Set[str], bool]:
        """Read single nodes; return (listing, nodes left, any not found)."""
        mirror, nodes = listing.mirror, nodes & listing.mirror.nodes.keys()
        asked = dict(self._read_each(sorted(
            nodes, key=lambda node: (node in self._failed, node))))
        read = {node: row for node, row in asked.items() if row is not None}
        left = nodes - read.keys()
        mirror = mirror.only(mirror.bodies.keys() - left).met(
            row if wanted(node, row.instance) else row._replace(body=None)
            for node, row in read.items())
        return (dataclasses.replace(listing, mirror=mirror), left,
                len(read) < len(asked))

    def _with_touched(self, listing: Listing, wanted: Wanted) -> Listing:
        """Read the nodes that were updated since, newest first."""
        def ask(after: str | None) -> ListingPage:
            return self._pages.newest(
                listing.partition, after, limit, wanted)

        first = limit = max(FIRST, len(listing.top))
        newest = page = ask(None)
        if newest.rows == listing.top:
            # Another read may have stored an older state of one of them.
            return dataclasses.replace(
                listing, mirror=listing.mirror.met(newest.rows))
        rows = list(page.rows)
        while page.more and not self._before(
                page.rows, listing.mirror.since):
            if len(rows) > MANY:
                raise InconsistentListing(
                    f'more than {MANY} nodes were updated')
            limit = min(4 * limit, PAGE)
            page = self._after(ask, [row.uuid for row in page.rows])
            rows += page.rows
        return dataclasses.replace(
            listing, mirror=dataclasses.replace(
                listing.mirror.met(rows), since=mirrors.since(
                    self._first(newest.rows), newest.at)
                or listing.mirror.since),
            # After a change the next read starts with FIRST nodes again.
            top=tuple(rows) if first == FIRST
            and len(rows) <= listing.size else ())

    def _with_new(self, listing: Listing, wanted: Wanted) -> Listing:
        """Read the last known node, if enrolled again, and newer ones."""
        mirror = listing.mirror
        for page in self._from(listing.partition, mirror.tail[:-1], wanted):
            mirror = mirror.with_tail(page.rows)
        return dataclasses.replace(listing, mirror=mirror)

    def _with_round(self, listing: Listing, seconds: float, wanted: Wanted
                    ) -> Listing:
        """Read as many pages of the round as are due."""
        count = max(1, math.ceil(len(listing.mirror.nodes) / listing.size))
        pause = seconds / count
        due = math.floor((self._clock() - listing.turned) / pause)
        listing = dataclasses.replace(
            listing, turned=listing.turned + due * pause)
        hurry = HURRY * math.ceil(PAGE / listing.size)
        for _ in range(hurry if listing.hurry else min(due, count)):
            hurried = listing.hurry
            listing = self._with_page(listing, wanted)
            if hurried and not listing.hurry:
                break
        return listing

    def _with_page(self, listing: Listing, wanted: Wanted) -> Listing:
        mirror = listing.mirror
        # The last one is read again: it may have been enrolled again.
        marks = mirror.marks[:-1] if listing.size > 1 else mirror.marks

        def page_with(wanted: Wanted | None) -> ListingPage:
            def ask(after: str | None) -> ListingPage:
                return self._pages.page(
                    listing.partition, after, PAGE, wanted)

            try:
                return self._after(ask, marks)
            except MarkerNotFound:
                return ask(None)

        # A round at once needs only the uuids.
        page = page_with(None if listing.hurry else wanted)
        if listing.hurry and not mirror.nodes.keys() >= {
                row.uuid for row in page.rows}:
            page = page_with(wanted)
        mirror = mirror.gone_on(page.rows)
        if page.more:
            return dataclasses.replace(
                listing, mirror=mirror, size=max(1, len(page.rows)))
        if mirror.missing and not listing.hurry:
            # Before nodes count as gone all are listed at once: the account
            # may have lost its role in the middle of the round.
            return dataclasses.replace(
                listing, mirror=mirror.begun(), hurry=1)
        return dataclasses.replace(
            listing, mirror=mirror.ended().begun(),
            hurry=max(0, listing.hurry - 1))

    def _from(self, partition: peers.Partition, marks: Sequence[str],
              wanted: Wanted, unused: bool = False) -> Iterator[ListingPage]:
        """Yield all pages after the last of these nodes that still exists."""
        def ask(after: str | None) -> ListingPage:
            return self._pages.page(partition, after, PAGE, wanted, unused)

        page = self._after(ask, marks)
        yield page
        while page.more:
            page = self._after(ask, [row.uuid for row in page.rows])
            yield page

    @staticmethod
    def _after(ask: _Ask, marks: Sequence[str]) -> ListingPage:
        """Return the page after the last of these nodes that exists."""
        if not marks:
            return ask(None)
        for mark in reversed(marks[-mirrors.MARKS:]):
            try:
                return ask(mark)
            except MarkerNotFound as exc:
                error = exc
        raise error

    def _first(self, rows: Sequence[NodeRow]) -> datetime.datetime | None:
        """Return when the first of these that exists was updated, or None."""
        failed = 0
        for row in rows[:mirrors.MARKS]:
            try:
                return self._pages.touched(row.uuid)
            except MarkerNotFound:
                continue
            except ListingError as exc:
                LOG.debug('Ironic did not say when node %s was updated: %s',
                          row.uuid, exc)
                failed += 1
                if failed == FAILURES:
                    break
        return None

    def _before(self, rows: Sequence[NodeRow], since: datetime.datetime | None
                ) -> bool:
        """Whether the last of these nodes that exists was updated before."""
        return since is not None and (
            touched := self._first(rows[::-1])) is not None and touched < since


def _others(total: int | None, mirror: Mirror) -> int | None:
    return None if total is None else total - len(mirror.nodes)


def _with_count_checked(listing: Listing, others: int | None) -> Listing:
    """Begin a round if fewer are counted; equal counts may hide changes."""
    before = listing.others
    if others is None or before is None or others >= before:
        return listing
    return _with_round_at_once(listing)


def _with_round_at_once(listing: Listing) -> Listing:
    if listing.hurry:
        # The gone node may be in pages that this round has read.
        return dataclasses.replace(listing, hurry=2)
    return dataclasses.replace(
        listing, mirror=listing.mirror.begun(), hurry=1)
