# SPDX-License-Identifier: Apache-2.0

"""Counts and times the work of this compute service.

``_lock`` is held only to replace the immutable counters: any thread may write,
and a signal handler may read in the middle of a write.
"""

from collections import abc
import contextlib
import itertools
import threading
import time

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Wait
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason


class Metrics:
    """The counters and times of this process; clock in monotonic seconds."""

    def __init__(self, clock: abc.Callable[[], float] = time.monotonic
                ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = itertools.count()
        # The thread of each work that lasts; replaced, never changed.
        self._threads: dict[Work, int] = {}
        #: All counts and times so far.
        self.totals = Counters(begun=clock())

    def count(self, event: Event, number: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self.totals = self.totals.counted(event, number)

    def note_move(self, reason: Reason | None, done: bool) -> None:
        """Count a move of a record to this host; only free nodes count."""
        came = counters.CAME.get(reason) if reason is not None else None
        if came is not None:
            self.count(came if done else Event.MOVE_FAILED)

    def note_wait(self, wait: Wait, seconds: float) -> None:
        """Count a wait that is over."""
        with self._lock:
            self.totals = self.totals.waited(wait, seconds)

    @contextlib.contextmanager
    def turn(self, work: Work) -> abc.Iterator[None]:
        """Time a run of some work, and note whether it fails."""
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
        """Note that some work has made progress."""
        self._note(work, lambda turns: turns.seen(self._clock()))

    def _note(self, work: Work, change: abc.Callable[[RunStats], RunStats]
             ) -> None:
        with self._lock:
            self.totals = self.totals.with_turns(
                work, change(self.totals.turns[work]))

    def note_pending(self, kind: Pending, keys: abc.Set[str]) -> None:
        """Replace the uuids that are pending of one kind."""
        with self._lock:
            self.totals = self.totals.with_pending(
                kind, keys, self._clock())

    @contextlib.contextmanager
    def asking(self) -> abc.Iterator[None]:
        """Note a request to Ironic, and progress of this thread's work.

        nova has one thread for its periodic tasks: while one of them deletes
        machines, an audit that waits for it is alive.
        """
        with self._lock:
            number = next(self._requests)
            self.totals = self.totals.asked(number, self._clock())
        heard = None
        try:
            yield
            heard = self._clock()
        finally:
            with self._lock:
                self.totals = self.totals.answered(number, heard)
            for work, thread in self._threads.items():
                if thread == threading.get_ident():
                    self.sign(work)
