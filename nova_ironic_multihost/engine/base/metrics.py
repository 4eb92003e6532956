# SPDX-License-Identifier: Apache-2.0

"""Counts and times what this compute service does, for metrics.

Called in the threads that do the work. ``_lock`` is held only to replace the
immutable counters, so a reader waits for nothing, not even a signal handler
that interrupts a write.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Set
import contextlib
import itertools
import threading
import time

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason


class Metrics:
    """Counts and times.

    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = itertools.count()
        # Which thread does some work; replaced whole.
        self._threads: dict[Work, int] = {}
        self._totals = Counters(begun=clock())

    @property
    def totals(self) -> Counters:
        """The counters so far."""
        return self._totals

    def count(self, event: Event, number: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self._totals = self._totals.counted(event, number)

    def note_move(self, reason: Reason | None, done: bool) -> None:
        """Count a move of a node's record to this host.

        :param reason: why the node is mine; only free nodes are counted.
        """
        came = counters.CAME.get(reason) if reason is not None else None
        if came is not None:
            self.count(came if done else Event.MOVE_FAILED)

    @contextlib.contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """Time a run of some work, also if it fails."""
        begun = self._clock()
        if work in counters.LASTING:
            self._threads = {**self._threads, work: threading.get_ident()}
        self.sign(work)
        done = False
        try:
            yield
            done = True
        finally:
            self._note(work, lambda turns: turns.over(
                begun, self._clock(), done))

    def sign(self, work: Work) -> None:
        """Note a sign of life of some work."""
        self._note(work, lambda turns: turns.seen(self._clock()))

    def _note(
        self, work: Work, change: Callable[[RunStats], RunStats]
    ) -> None:
        with self._lock:
            self._totals = self._totals.with_turns(
                work, change(self._totals.turns[work]))

    def note_pending(self, kind: Pending, keys: Set[str]) -> None:
        """Note all that is pending of one kind.

        :param keys: uuids.
        """
        with self._lock:
            self._totals = self._totals.with_pending(
                kind, keys, self._clock())

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Note that a request to Ironic is under way.

        Its end is a sign of life of the work of that thread: nova's tasks
        share one thread, and an audit waits while another task deletes a
        hundred machines.
        """
        with self._lock:
            number = next(self._requests)
            self._totals = self._totals.asked(number, self._clock())
        heard = None
        try:
            yield
            heard = self._clock()
        finally:
            with self._lock:
                self._totals = self._totals.answered(number, heard)
            for work, thread in self._threads.items():
                if thread == threading.get_ident():
                    self.sign(work)
