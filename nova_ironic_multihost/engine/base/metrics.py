# SPDX-License-Identifier: Apache-2.0

"""Counts and times the work of this compute service.

Any thread may write. No reader takes ``_lock``: a signal handler may read in
the middle of a write.
"""

from collections import abc
import contextlib
import threading
import time

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason

#: Seconds with other answers after which a request to Ironic is lost.
LOST = 600


class Metrics:
    """The counters and times of this process; clock in monotonic seconds.

    :ivar pending: kind -> uuid -> when it was first seen pending.
    """

    def __init__(self, clock: abc.Callable[[], float] = time.monotonic
                ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.begun = clock()
        self.counts = dict.fromkeys(Event, 0)
        self.turns = dict.fromkeys(Work, RunStats())
        self.pending: dict[Pending, abc.Mapping[str, float]] = dict.fromkeys(
            Pending, {})
        #: The threads of work that lasts as long as the process.
        self._threads = {Work.AUDIT: 0, Work.PEER_POLL: 0}
        #: Unanswered request to Ironic -> its time.
        self._asking: dict[object, float] = {}
        #: When Ironic last answered a request.
        self._heard: float | None = None

    def count(self, event: Event, number: int = 1) -> None:
        """Count an event."""
        with self._lock:
            self.counts[event] += number

    def note_move(self, reason: Reason | None, done: bool) -> None:
        """Count a move of a record to this host; only free nodes count."""
        came = counters.CAME.get(reason) if reason is not None else None
        if came is not None:
            self.count(came if done else Event.MOVE_FAILED)

    @contextlib.contextmanager
    def turn(self, work: Work) -> abc.Iterator[None]:
        """Time a run of some work, and note whether it fails."""
        begun = self._clock()
        if work in self._threads:
            self._threads[work] = threading.get_ident()
        self.sign(work)
        done = False
        try:
            yield
            done = True
        finally:
            with self._lock:
                self.turns[work] = self.turns[work].over(
                    begun, self._clock(), done)

    def sign(self, work: Work) -> None:
        """Note that some work has made progress."""
        with self._lock:
            self.turns[work] = self.turns[work].seen(self._clock())

    def note_pending(self, kind: Pending, keys: abc.Set[str]) -> None:
        """Replace the uuids that are pending of one kind."""
        before, now = self.pending[kind], self._clock()
        self.pending[kind] = {key: before.get(key, now)
                              for key in sorted(keys)}

    @contextlib.contextmanager
    def asking(self) -> abc.Iterator[None]:
        """Note a request to Ironic, and progress of this thread's work.

        nova has one thread for its periodic tasks: while one of them deletes
        machines, an audit that waits for it is alive.
        """
        request = object()
        self._asking[request] = self._clock()
        try:
            yield
            self._heard = self._clock()
        finally:
            del self._asking[request]
            for work, thread in self._threads.items():
                if thread == threading.get_ident():
                    self.sign(work)

    @property
    def oldest_asking(self) -> float | None:
        """When the oldest request that Ironic may still answer was made."""
        heard = self._heard
        return min((since for since in list(self._asking.values())
                    if heard is None or heard - since <= LOST), default=None)
