# SPDX-License-Identifier: Apache-2.0

"""Asks Ironic what has changed, and keeps the mirror.

:mod:`.rules.mirror` says what each way of asking finds. A failed read changes
    nothing.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
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

#: Nodes in the first page of those that were touched last; the next ones
#: grow. While nothing happens no more is asked for.
FIRST = 20

#: Nodes that Ironic may not show until no others are asked for.
FAILURES = 3

#: Nodes in a page that cost Ironic as much as one that is asked for alone: it
#: takes half a millisecond for one and eleven for the other.
TOGETHER = 20

#: Of more touched nodes than these a listing of all nodes costs less.
MANY = 2000

#: Seconds between two counts of Ironic's nodes, somewhat less than between two
#: questions with nova's defaults; and until it is asked what was created while
#: it has as many nodes as before: as many may have come as gone.
COUNT, SEARCH = 8, 60

#: The most pages of a round in one reading, while some node is known to be
#: gone.
HURRY = 10

#: Says of the uuids of a node and of its instance, or None, whether all is
#: wanted that nova works with.
Wanted = Callable[[str, str | None], bool]

_Ask = Callable[[str | None], ListingPage]


class InconsistentListing(Exception):
    """Ironic's answers do not fit together: all must be read anew."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """The state of the reads so far.

    :param partition: the partition that is read.
    :param mirror: its nodes, as far as they are known.
    :param top: the nodes that were touched last; none if that is not known, or
        they are many.
    :param others: number of nodes that Ironic has besides those, in any
        partition, or None.
    :param size: number of nodes in a page of Ironic, for a limit of
        :data:`PAGE`.
    :param hurry: number of rounds that are due at once.
    :param turned: when the last page of the round was due, by the clock.
    :param searched: when new nodes were asked for last, by the clock.
    :param counted: when the nodes were counted last, by the clock.
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
    """Reads all of Ironic's nodes at first, then the changes.

    :param pages: asks Ironic.
    :param clock: monotonic clock, in seconds.
    :param recorder: times the reads.
    """

    def __init__(self, pages: Pages,
                 clock: Callable[[], float] = time.monotonic,
                 recorder: Metrics | None = None) -> None:
        self._pages = pages
        self._clock = clock
        self._recorder = recorder or Metrics(clock)
        # One reading at a time; also guards _reading and _counts.
        self._lock = threading.Lock()
        self._reading: Listing | None = None
        self._counts = True
        # Guards what others have said; nothing is asked while it is held.
        self._changed_lock = threading.Lock()
        self._changed: set[str] = set()
        self._sought: frozenset[str] = frozenset()
        self._seeking = False

    def read(self, partition: peers.Partition, seconds: float,
             wanted: Wanted, brief: bool = False, often: bool = False
             ) -> Mirror:
        """Ask Ironic what has changed.

        :param seconds: time in which a round visits every node.
        :param wanted: see :data:`Wanted`.
        :param brief: the caller cannot wait for a listing of all nodes: if one
            is needed, or another thread reads, the mirror of now is enough.
        :param often: the caller asks every few seconds: new and deleted nodes
            may show later, after :data:`COUNT` seconds.
        :raises Exception: Ironic does not answer; the mirror stays.
        """
        if not self._lock.acquire(blocking=not brief):
            return self.mirror
        try:
            if brief:
                self._reading = self._with_news(partition, seconds, wanted)
            else:
                with self._recorder.turn(Work.LISTING):
                    self._read_on(partition, seconds, wanted, often)
            return self.mirror
        finally:
            self._lock.release()

    def _with_news(self, partition: peers.Partition, seconds: float,
                   wanted: Wanted) -> Listing | None:
        before = self._reading
        if before is None or before.partition != partition:
            return before
        try:
            return self._gone_on(before, seconds, wanted)
        except (MarkerNotFound, InconsistentListing):
            return before

    def _read_on(self, partition: peers.Partition, seconds: float,
                 wanted: Wanted, often: bool) -> None:
        with self._changed_lock:
            changed, self._changed = self._changed, set()
            seeking, self._seeking = self._seeking, False
        left: Set[str] = changed
        gone = False
        try:
            self._reading, left, gone = self._with_changed(self._anew(
                partition, seconds, wanted, seeking,
                # One that is said to have changed may be new.
                often and changed <= self.mirror.nodes.keys()),
                changed, wanted)
            seeking = False
        finally:
            with self._changed_lock:
                self._changed |= left
                self._seeking |= seeking or gone

    def _anew(self, partition: peers.Partition, seconds: float,
              wanted: Wanted, seeking: bool, often: bool) -> Listing:
        before = self._reading
        if before is None:
            return self._all(Listing(partition, Mirror()), wanted)
        if before.partition != partition:
            return self._all(
                dataclasses.replace(before, partition=partition), wanted)
        if seeking:
            before = _hurried(before)
        try:
            return self._gone_on(before, seconds, wanted, often)
        except (MarkerNotFound, InconsistentListing) as exc:
            LOG.info('All nodes of Ironic are listed: %s.', exc)
            return self._all(before, wanted)

    @property
    def mirror(self) -> Mirror:
        """The mirror by now; empty before the first read."""
        reading = self._reading
        return reading.mirror if reading is not None else Mirror()

    def node(self, node: str) -> NodeRow | None:
        """Ask Ironic for one node in any partition; None if there is none.

        :raises Exception: Ironic does not answer.
        """
        try:
            return self._pages.node(node)
        except MarkerNotFound:
            return None

    def complete(self, nodes: Set[str], later: Set[str] = frozenset()
                 ) -> Mirror:
        """Keep the full bodies of these nodes, and of no others.

        As far as Ironic answers and no other thread reads: nova's driver asks
        for missing ones.

        :param later: nodes for which Ironic is not asked now.
        """
        if not self._lock.acquire(blocking=False):
            return self.mirror
        try:
            reading = self._reading
            assert reading is not None
            mirror = reading.mirror.only(nodes)
            missing = [node for node in nodes
                       if node in mirror.nodes and node not in mirror.bodies
                       and node not in later]
            try:
                mirror = mirror.completed(self._read(
                    reading.partition, mirror, missing))
            except Exception as exc:  # noqa: BLE001
                LOG.debug('%(count)d nodes are asked for later: %(exc)s',
                          {'count': len(missing), 'exc': exc})
            self._reading = dataclasses.replace(reading, mirror=mirror)
            return mirror
        finally:
            self._lock.release()

    def _read(self, partition: peers.Partition, mirror: Mirror,
              nodes: Sequence[str]) -> list[NodeRow]:
        """Read some nodes in the cheaper of two ways."""
        if not nodes:
            return []
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
                [row for _, row in self._each(some) if row is not None])
        return rows

    def _read_listed(self, partition: peers.Partition,
                     nodes: frozenset[str], unused: bool) -> list[NodeRow]:
        """Read some nodes out of a listing.

        :param unused: they have no instance, as far as is known.
        """
        return [row for page in self._from(
            partition, (), lambda node, instance: node in nodes, unused)
                for row in page.rows if row.uuid in nodes]

    def _each(
        self, nodes: Iterable[str]
    ) -> Iterator[tuple[str, NodeRow | None]]:
        """Yield those of some nodes that Ironic shows, or says it has not.

        A node that it cannot show delays no others. A 404 is not believed
        here: an account that lost a role gets it for each node.
        """
        failed = 0
        for node in nodes:
            try:
                yield node, self._pages.node(node)
            except MarkerNotFound:
                yield node, None
            except ListingError as exc:
                LOG.debug('Node %(node)s is read later: %(exc)s',
                          {'node': node, 'exc': exc})
                failed += 1
                if failed == FAILURES:
                    return

    def forget(self, node: str) -> None:
        """Have a node read anew the next time: it has changed.

        Whatever Ironic's clocks say. This waits for no read.
        """
        with self._changed_lock:
            self._changed.add(node)

    def seek(self, nodes: Set[str], again: bool = False) -> None:
        """Have all nodes listed briefly at the next read.

        :param nodes: uuids of nodes that exist and were not listed; once for
            each, as it may be in another partition by now.
        :param again: in any case.
        """
        with self._changed_lock:
            self._seeking |= again or not nodes <= self._sought
            self._sought = frozenset(nodes)

    def _all(self, before: Listing, wanted: Wanted) -> Listing:
        """List all nodes, with those that were touched meanwhile.

        :raises ListingError: the nodes change all the time.
        """
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
            # One may have gone after it was listed.
            hurry=int(total != after))

    def _count(self, partition: peers.Partition) -> int | None:
        """Count the nodes of a partition or more, if Ironic does that.

        The count is only a sign; no caller waits for it.
        """
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

    def _gone_on(self, reading: Listing, seconds: float, wanted: Wanted,
                 often: bool = False) -> Listing:
        reading, now = self._with_touched(reading, wanted), self._clock()
        if (often and reading.others is not None
                and now - reading.counted < COUNT):
            return self._with_round(reading, seconds, wanted)
        total = self._count(reading.partition)
        reading = dataclasses.replace(reading, counted=now)
        if (total is None or now - reading.searched >= SEARCH
                or _others(total, reading.mirror) != reading.others):
            reading = dataclasses.replace(
                self._with_new(reading, wanted), searched=now)
            if total is not None:
                # One may have come since.
                total = self._count(reading.partition)
        counted = _others(total, reading.mirror)
        reading = self._with_round(
            _alarmed(reading, counted), seconds, wanted)
        if total is None:
            # What has gone meanwhile is missed by the next count.
            return reading
        others = _others(total, reading.mirror)
        # If the round has met new ones, as many may have gone.
        return dataclasses.replace(_alarmed(dataclasses.replace(
            reading, others=counted), others), others=others)

    def _with_changed(self, reading: Listing, nodes: Set[str],
                      wanted: Wanted) -> tuple[Listing, Set[str], bool]:
        """Read some nodes, one by one.

        :returns: (the mirror then, nodes that are left, whether Ironic
            answered 404 for one).
        """
        mirror = reading.mirror
        nodes = nodes & mirror.nodes.keys()
        asked = dict(self._each(sorted(nodes)))
        read = {node: row for node, row in asked.items() if row is not None}
        left = nodes - read.keys()
        mirror = mirror.only(mirror.bodies.keys() - left).met(
            row if wanted(node, row.instance) else row._replace(body=None)
            for node, row in read.items())
        return (dataclasses.replace(reading, mirror=mirror), left,
                len(read) < len(asked))

    def _with_touched(self, reading: Listing, wanted: Wanted) -> Listing:
        """Read the nodes that were touched since, newest first."""
        def ask(after: str | None) -> ListingPage:
            return self._pages.newest(
                reading.partition, after, limit, wanted)

        first = limit = max(FIRST, len(reading.top))
        newest = page = ask(None)
        if newest.rows == reading.top:
            # Somebody may have read one of them when it was something else.
            return dataclasses.replace(
                reading, mirror=reading.mirror.met(newest.rows))
        rows = list(page.rows)
        while page.more and not self._before(
                page.rows, reading.mirror.since):
            if len(rows) > MANY:
                raise InconsistentListing(f'more than {MANY} were touched')
            limit = min(4 * limit, PAGE)
            page = self._after(ask, [row.uuid for row in page.rows])
            rows += page.rows
        return dataclasses.replace(
            reading, mirror=dataclasses.replace(
                reading.mirror.met(rows), since=mirrors.since(
                    self._first(newest.rows), newest.at)
                or reading.mirror.since),
            # After a change it is seen anew how many those are.
            top=tuple(rows) if first == FIRST
            and len(rows) <= reading.size else ())

    def _with_new(self, reading: Listing, wanted: Wanted) -> Listing:
        """Read the nodes that were created since.

        And the last one again: enrolled anew it would come after others.
        """
        mirror = reading.mirror
        for page in self._from(reading.partition, mirror.tail[:-1], wanted):
            mirror = mirror.with_tail(page.rows)
        return dataclasses.replace(reading, mirror=mirror)

    def _with_round(self, reading: Listing, seconds: float, wanted: Wanted
                    ) -> Listing:
        """Read as many pages of the round as are due."""
        count = max(1, math.ceil(len(reading.mirror.nodes) / reading.size))
        pause = seconds / count
        due = math.floor((self._clock() - reading.turned) / pause)
        reading = dataclasses.replace(
            reading, turned=reading.turned + due * pause)
        hurry = HURRY * math.ceil(PAGE / reading.size)
        for _ in range(hurry if reading.hurry else min(due, count)):
            hurried = reading.hurry
            reading = self._with_page(reading, wanted)
            if hurried and not reading.hurry:
                break
        return reading

    def _with_page(self, reading: Listing, wanted: Wanted) -> Listing:
        """Read the next page of the round."""
        mirror = reading.mirror
        # The last one again, as it may have been enrolled anew.
        marks = mirror.marks[:-1] if reading.size > 1 else mirror.marks

        def page_with(wanted: Wanted | None) -> ListingPage:
            def ask(after: str | None) -> ListingPage:
                return self._pages.page(
                    reading.partition, after, PAGE, wanted)

            try:
                return self._after(ask, marks)
            except MarkerNotFound:
                return ask(None)

        # Who hurries wants to know no more than which there are.
        page = page_with(None if reading.hurry else wanted)
        if reading.hurry and not mirror.nodes.keys() >= {
                row.uuid for row in page.rows}:
            page = page_with(wanted)
        mirror = mirror.gone_on(page.rows)
        if page.more:
            return dataclasses.replace(
                reading, mirror=mirror, size=max(1, len(page.rows)))
        if mirror.missing and not reading.hurry:
            # In an hour an account may lose its roles, and be shown the
            # first nodes and no others. So they are all listed at once.
            return dataclasses.replace(
                reading, mirror=mirror.begun(), hurry=1)
        return dataclasses.replace(
            reading, mirror=mirror.ended().begun(),
            hurry=max(0, reading.hurry - 1))

    def _from(self, partition: peers.Partition, marks: Sequence[str],
              wanted: Wanted, unused: bool = False) -> Iterator[ListingPage]:
        """Yield all pages after the last of some nodes that exists."""
        def ask(after: str | None) -> ListingPage:
            return self._pages.page(partition, after, PAGE, wanted, unused)

        page = self._after(ask, marks)
        yield page
        while page.more:
            page = self._after(ask, [row.uuid for row in page.rows])
            yield page

    @staticmethod
    def _after(ask: _Ask, marks: Sequence[str]) -> ListingPage:
        """Return the page after the last of some nodes that exists.

        :param marks: uuids; without any it is the first page.
        :raises MarkerNotFound: Ironic has none of them any more.
        """
        if not marks:
            return ask(None)
        for mark in reversed(marks[-mirrors.MARKS:]):
            try:
                return ask(mark)
            except MarkerNotFound as exc:
                error = exc
        raise error

    def _first(self, rows: Sequence[NodeRow]) -> datetime.datetime | None:
        """Return when the first of some nodes that exists was touched.

        None if it never was, or that is not known.
        """
        failed = 0
        for row in rows[:mirrors.MARKS]:
            try:
                return self._pages.touched(row.uuid)
            except MarkerNotFound:
                continue
            except ListingError as exc:
                LOG.debug('When node %(node)s was touched is not known: '
                          '%(exc)s', {'node': row.uuid, 'exc': exc})
                failed += 1
                if failed == FAILURES:
                    break
        return None

    def _before(self, rows: Sequence[NodeRow], since: datetime.datetime | None
                ) -> bool:
        """Whether the last of some nodes that exists was touched before."""
        if since is None:
            return False
        touched = self._first(rows[::-1])
        return touched is not None and touched < since


def _others(total: int | None, mirror: Mirror) -> int | None:
    return None if total is None else total - len(mirror.nodes)


def _alarmed(reading: Listing, others: int | None) -> Listing:
    """Start a round at once if a node of the mirror may be gone.

    If a node comes or goes between two questions there may be one round too
    many; if as many come as go there may be none: those wait for the next
    round.

    :param others: as :attr:`Listing.others`, by now.
    """
    before = reading.others
    if others is None or before is None or others >= before:
        return reading
    return _hurried(reading)


def _hurried(reading: Listing) -> Listing:
    """Start a round at once."""
    if reading.hurry:
        # What it is about may be where this round has been.
        return dataclasses.replace(reading, hurry=2)
    return dataclasses.replace(
        reading, mirror=reading.mirror.begun(), hurry=1)
