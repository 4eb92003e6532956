# SPDX-License-Identifier: Apache-2.0

"""The lister: asks Ironic what has changed, and keeps the mirror.

:mod:`.rules.mirror` has the rules. A read that fails changes nothing.
"""

from collections import abc
import contextlib
import dataclasses
import datetime
import math
import random
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

#: Nodes without a body to read one by one, 11 ms each; more wait.
ALONE = 200

#: Listed nodes that cost Ironic as much as one node read alone: 0.5 ms each.
TOGETHER = 20

#: The fewest seconds between two listings in short, while nodes go one by one.
SOON = 30

#: Part of the interval after which a failed listing of all is tried again.
AGAIN = 0.1

#: With more updated nodes than these, listing all nodes costs less.
MANY = 2000

#: Tells by the uuid of a node whether its body is wanted.
Wanted = abc.Callable[[str], bool]

_Ask = abc.Callable[[str | None], ListingPage]


class InconsistentListing(Exception):
    """Ironic's answers contradict each other: list all nodes again."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """The mirror, and what the next read compares with Ironic.

    :param top: the last updated nodes, with all recent updates; empty if
        unknown or many.
    :param others: nodes that Ironic has besides the mirror, or None.
    :param at: when all nodes were listed for their fields.
    :param failed: the last try to list them for their fields has failed.
    :param short_at: when they were listed for their instances alone.
    :param seeks: number of requests for a listing that it has answered.
    """

    partition: peers.Partition
    mirror: Mirror
    top: tuple[NodeRow, ...] = ()
    others: int | None = None
    at: float = 0.0
    failed: bool = False
    short_at: float = -math.inf
    seeks: int = 0


class Lister:
    """Lists all nodes of Ironic now and then, and reads what has changed."""

    def __init__(self, pages: Pages,
                 clock: abc.Callable[[], float] = time.monotonic,
                 recorder: Metrics | None = None) -> None:
        self._pages = pages
        self._clock = clock
        self._recorder = recorder or Metrics(clock)
        # One read at a time; also guards _listing and _counts.
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._counts = True
        #: A node to read -> its last request, by any thread; and the request
        #: that was answered last.
        self._requests: dict[str, object] = {}
        self._answered: dict[str, object] = {}
        #: Nodes that could not be read the last time.
        self._failed: set[str] = set()
        #: Number of requests for a listing of all nodes.
        self._seeks = 0

    def read(self, partition: peers.Partition, seconds: float,
             wanted: Wanted, brief: bool = False) -> Mirror:
        """Ask Ironic what has changed.

        :param seconds: after which all nodes are listed again.
        :param brief: read only the updated nodes. While another thread reads,
            or when all nodes must be listed, return the mirror as it is.
        :raises Exception: Ironic did not answer; the mirror is unchanged.
        """
        if not self._lock.acquire(blocking=not brief):
            return self.mirror
        try:
            before = self._listing
            if not brief:
                with self._recorder.turn(Work.LISTING):
                    self._read_in_full(partition, seconds, wanted)
            elif before is not None and before.partition == partition:
                with contextlib.suppress(MarkerNotFound, InconsistentListing):
                    self._listing = self._with_touched(before, wanted)
            return self.mirror
        finally:
            self._lock.release()

    def _read_in_full(self, partition: peers.Partition, seconds: float,
                      wanted: Wanted) -> None:
        begun = self._clock()
        requests = {node: request for node, request
                    in [*self._requests.items()]
                    if self._answered.get(node) is not request}
        listing = self._refreshed(partition, seconds, wanted)
        nodes, missing = set[str](), set[str]()
        if listing.at < begun:
            # Else all have been listed since.
            nodes = requests.keys() & listing.mirror.nodes.keys()
            missing = _missing(listing.mirror, wanted)
        asked = dict(self.each(self._failed_last(
            {*nodes, *self._failed_last(missing)[:ALONE]})))
        read = {node: row for node, row in asked.items() if row is not None}
        left = nodes - read.keys()
        mirror = listing.mirror.only(listing.mirror.bodies.keys() - left).met(
            row if wanted(node) else row._replace(body=None)
            for node, row in read.items())
        self._listing = dataclasses.replace(listing, mirror=mirror)
        self._answered.update(
            item for item in requests.items() if item[0] not in left)
        if len(read) < len(asked):
            self.seek()

    def _failed_last(self, nodes: abc.Iterable[str]) -> list[str]:
        """Put nodes in any order; those that failed hold up no other."""
        return sorted(nodes, key=lambda node: (
            node in self._failed, random.random()))

    def _refreshed(self, partition: peers.Partition, seconds: float,
                   wanted: Wanted) -> Listing:
        before, now = self._listing, self._clock()
        if before is None or before.partition != partition:
            return self._all(Listing(
                partition, before.mirror if before else Mirror()), wanted)
        try:
            listing = self._gone_on(before, wanted)
        except (MarkerNotFound, InconsistentListing) as exc:
            LOG.info('All nodes of Ironic are listed again: %s.', exc)
            return self._all(before, wanted)
        missing = _missing(listing.mirror, wanted) - self._failed
        if now - listing.at >= seconds or not listing.failed and (
                TOGETHER * len(missing) > len(listing.mirror.nodes)):
            try:
                return self._all(listing, wanted)
            except ListingError as exc:
                # One page that fails must not hide all changes.
                LOG.info('All nodes of Ironic are listed later: %s', exc)
                listing = dataclasses.replace(
                    listing, at=now - (1 - AGAIN) * seconds, failed=True)
        # Nor must it hide which nodes are gone: a short page may succeed.
        return (self._all(listing, None) if listing.seeks != self._seeks
                and now - listing.short_at >= SOON else listing)

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

    def complete(self, nodes: abc.Set[str]) -> Mirror:
        """Keep the bodies of these nodes alone; read missing unused ones.

        The next read gets those that are missing then. nova's driver reads
        those that it needs before.
        """
        if not self._lock.acquire(blocking=False):
            return self.mirror
        try:
            listing = self._listing
            assert listing is not None
            mirror = listing.mirror.only(nodes)
            # A takeover does not wait for Ironic.
            unused = [node for node in nodes - mirror.bodies.keys()
                      if mirror.nodes.get(node, node) is None]
            if len(unused) <= ALONE:
                mirror = mirror.completed([
                    row for _, row in self.each(unused) if row])
            self._listing = dataclasses.replace(listing, mirror=mirror)
            return mirror
        finally:
            self._lock.release()

    def each(self, nodes: abc.Iterable[str]
             ) -> abc.Iterator[tuple[str, NodeRow | None]]:
        """Yield (node, row), None for the row of a node that is not found.

        A node that fails does not stop the others. Callers must not trust
        None: an account that lost its role gets "not found" for each node.
        """
        failed = 0
        for node in nodes:
            try:
                row = self.node(node)
            except ListingError as exc:
                LOG.debug('Node %s is read later: %s', node, exc)
                self._failed.add(node)
                failed += 1
                if failed == FAILURES:
                    return
                continue
            self._failed.discard(node)
            yield node, row

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

    def seek(self) -> None:
        """Have a read list all nodes within :data:`SOON`, in short."""
        self._seeks += 1

    def _all(self, before: Listing, wanted: Wanted | None) -> Listing:
        """List all nodes; None: the listed ones for their instances alone."""
        now, seeks, since = self._clock(), self._seeks, before.mirror.since
        total = self._count(before.partition)
        try:
            # Without their fields, changes are still to be read.
            if wanted:
                newest = self._pages.newest(
                    before.partition, None, mirrors.MARKS, wanted)
                since = mirrors.since(self._first(newest.rows), newest.at)
            rows = [row for page in self._from(before.partition, (), wanted)
                    for row in page.rows]
        except MarkerNotFound as exc:
            raise ListingError(
                f'nodes vanish while it lists them: {exc}') from exc
        mirror = before.mirror.listed(rows, since)
        after = self._count(before.partition)
        if total is not None and after is not None:
            # So the next count is less if a node went meanwhile.
            total = max(total, after)
        return Listing(
            before.partition, mirror, others=_others(total, mirror),
            at=now if wanted else before.at,
            failed=not wanted and before.failed,
            short_at=before.short_at if wanted else now, seeks=seeks)

    def _count(self, partition: peers.Partition) -> int | None:
        """Count the nodes of the partition or of Ironic; None if unknown."""
        try:
            total = self._pages.total(partition)
        except ListingError as exc:
            if self._counts:
                LOG.warning(
                    'Ironic does not count its nodes (GET /v1/shards): '
                    '%(exc)s. Until it does, that a node was deleted shows '
                    'within [ironic_multihost]audit_interval. Check that the '
                    'Ironic API lets nova ask for that.', {'exc': exc})
            self._counts = False
            return None
        self._counts = True
        return total

    def _gone_on(self, listing: Listing, wanted: Wanted) -> Listing:
        """Read updated and new nodes; seek if some are gone."""
        listing = self._with_touched(listing, wanted)
        total = self._count(listing.partition)
        before = listing.others
        if total is None or _others(total, listing.mirror) != before:
            listing = self._with_new(listing, wanted)
        others = _others(total, listing.mirror)
        if others is None:
            return listing  # The next count shows what went.
        if before is not None and others < before:
            self.seek()
        return dataclasses.replace(listing, others=others)

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
            and len(rows) <= PAGE else ())

    def _with_new(self, listing: Listing, wanted: Wanted) -> Listing:
        """Read the last known node, if enrolled again, and newer ones."""
        mirror = listing.mirror
        for page in self._from(listing.partition, mirror.tail[:-1], wanted):
            mirror = mirror.with_tail(page.rows)
        return dataclasses.replace(listing, mirror=mirror)

    def _from(self, partition: peers.Partition, marks: abc.Sequence[str],
              wanted: Wanted | None) -> abc.Iterator[ListingPage]:
        """Yield all pages after the last of these nodes that still exists."""
        def ask(after: str | None) -> ListingPage:
            return self._pages.page(partition, after, PAGE, wanted)

        page = self._after(ask, marks)
        yield page
        while page.more:
            page = self._after(ask, [row.uuid for row in page.rows])
            yield page

    @staticmethod
    def _after(ask: _Ask, marks: abc.Sequence[str]) -> ListingPage:
        """Return the page after the last of these nodes that exists."""
        if not marks:
            return ask(None)
        for mark in reversed(marks[-mirrors.MARKS:]):
            try:
                return ask(mark)
            except MarkerNotFound as exc:
                error = exc
        raise error

    def _first(self, rows: abc.Sequence[NodeRow]) -> datetime.datetime | None:
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

    def _before(self, rows: abc.Sequence[NodeRow],
                since: datetime.datetime | None) -> bool:
        """Whether the last of these nodes that exists was updated before."""
        return since is not None and (
            touched := self._first(rows[::-1])) is not None and touched < since


def _missing(mirror: Mirror, wanted: Wanted) -> set[str]:
    """Return the wanted nodes without a body."""
    return set(filter(wanted, mirror.nodes.keys() - mirror.bodies.keys()))


def _others(total: int | None, mirror: Mirror) -> int | None:
    return None if total is None else total - len(mirror.nodes)
