# SPDX-License-Identifier: Apache-2.0

"""Counts and times what this compute service does, for metrics.

In the threads of whoever does it. ``_lock`` is held to replace what is known,
which is immutable; who only reads that waits for nobody, a handler of signals
in the middle of a write included.
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
        """What was counted and timed so far."""
        return self._totals

    def count(self, event: Event, number: int = 1) -> None:
        """Note that something has happened."""
        with self._lock:
            self._totals = self._totals.counted(event, number)

    def note_move(self, reason: Reason | None, done: bool) -> None:
        """Note what has come of moving the record of a node to this host.

        :param reason: why the node is mine; only free ones are counted.
        """
        came = counters.CAME.get(reason) if reason is not None else None
        if came is not None:
            self.count(came if done else Event.MOVE_FAILED)

    @contextlib.contextmanager
    def turn(self, work: Work) -> Iterator[None]:
        """Note that something is done, how long that takes, if it fails."""
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
        """Note that something has got a step further."""
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

        Whatever comes of it, its thread has got a step further then, in what
        it does now or before its next turn: nova's tasks have one thread, and
        the audit waits while another one deletes a hundred machines.
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
