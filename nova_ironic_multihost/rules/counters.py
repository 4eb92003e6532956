# SPDX-License-Identifier: Apache-2.0

"""Counters and times of a compute service, in monotonic seconds."""

from collections import abc
import dataclasses
import enum
import math

from nova_ironic_multihost.rules.ownership import Reason


class Event(enum.Enum):
    """An event that is counted from the start of the process."""

    ADOPTED = 'a free node came from a compute service that is down'
    PULLED = 'a free node came from one that is up'
    MOVE_FAILED = 'the record of a free node could not be moved'
    TAKEN_OVER = 'an instance was taken over'
    TAKEOVER_FAILED = 'a takeover has ended with an unknown result'
    PEER_POLL_FAILED = 'a peer poll has failed'
    REFUSED = 'an operation of a moved instance was refused'


class Work(enum.Enum):
    """Work that is repeated."""

    LISTING = 'asking Ironic what has changed'
    AUDIT = 'an audit of all nodes'
    PEER_POLL = 'a peer poll'
    SERVICES = 'reading the compute services from nova'


class Pending(enum.Enum):
    """What an unfinished takeover waits for."""

    TURN = 'nodes with instances that wait to be taken over'
    REST = 'instances with an interrupted operation'


class Wait(enum.Enum):
    """What had to wait; the value is its label."""

    BUILD = 'build'
    DELETE = 'delete'
    MOVE = 'move'
    TAKEOVER = 'takeover'


#: Upper bounds of the buckets of a histogram, in seconds.
BOUNDS = (1, 10, 30, 60, 90, 120, 300, 600, 1800, 3600, 14400, math.inf)

#: Seconds with other answers after which a request to Ironic is lost.
LOST = 600

#: Work that one thread does for as long as the process lives.
LASTING = frozenset({Work.AUDIT, Work.PEER_POLL})

#: Reason of a free node that came to this host -> the event to count.
CAME = {Reason.ADOPTED: Event.ADOPTED, Reason.PULLED: Event.PULLED}


@dataclasses.dataclass(frozen=True)
class RunStats:
    """Times of one kind of work; the last success took ``seconds``."""

    #: Last progress: a begin, a step or an end, failed or not.
    sign: float | None = None
    #: Last end, failed or not.
    ended: float | None = None
    succeeded: float | None = None
    seconds: float | None = None

    def seen(self, now: float) -> 'RunStats':
        """Return this after progress."""
        return dataclasses.replace(self, sign=now)

    def over(self, begun: float, now: float, done: bool) -> 'RunStats':
        """Return this after the end of a run."""
        if done:
            return RunStats(now, now, now, now - begun)
        return dataclasses.replace(self, sign=now, ended=now)


@dataclasses.dataclass(frozen=True)
class Histogram:
    """The number of waits up to each of ``BOUNDS``, and their seconds."""

    counts: tuple[int, ...] = (0,) * len(BOUNDS)
    seconds: float = 0

    def plus(self, seconds: float) -> 'Histogram':
        """Return this after another wait."""
        return Histogram(
            tuple(count + (seconds <= bound)
                  for count, bound in zip(self.counts, BOUNDS)),
            self.seconds + seconds)


@dataclasses.dataclass(frozen=True)
class Counters:
    """All counters at one moment."""

    begun: float = 0
    counts: abc.Mapping[Event, int] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(Event, 0))
    turns: abc.Mapping[Work, RunStats] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(Work, RunStats()))
    waits: abc.Mapping[Wait, Histogram] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(Wait, Histogram()))
    #: Kind -> uuid -> when it was first seen pending.
    pending: abc.Mapping[Pending, abc.Mapping[str, float]] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(Pending, {}))
    #: Number of an unanswered request to Ironic -> its time.
    asking: abc.Mapping[int, float] = dataclasses.field(default_factory=dict)
    #: When Ironic last answered a request.
    heard: float | None = None

    def counted(self, event: Event, number: int = 1) -> 'Counters':
        """Return this after an event."""
        return dataclasses.replace(self, counts={
            **self.counts, event: self.counts[event] + number})

    def with_turns(self, work: Work, turns: RunStats) -> 'Counters':
        """Return this with new times of one kind of work."""
        return dataclasses.replace(self, turns={**self.turns, work: turns})

    def waited(self, wait: Wait, seconds: float) -> 'Counters':
        """Return this after a wait."""
        return dataclasses.replace(self, waits={
            **self.waits, wait: self.waits[wait].plus(seconds)})

    def with_pending(self, kind: Pending, keys: abc.Set[str], now: float
                     ) -> 'Counters':
        """Return this with ``keys`` as all that is pending of one kind."""
        before = self.pending[kind]
        return dataclasses.replace(self, pending={
            **self.pending,
            kind: {key: before.get(key, now) for key in sorted(keys)}})

    def asked(self, number: int, now: float) -> 'Counters':
        """Return this after a request to Ironic, with a unique number."""
        return dataclasses.replace(self, asking={**self.asking, number: now})

    def answered(self, number: int, now: float | None = None) -> 'Counters':
        """Return this after an answer, or a failure if ``now`` is None."""
        return dataclasses.replace(
            self, heard=self.heard if now is None else now,
            asking={other: since for other, since in self.asking.items()
                    if other != number})

    def age(self, work: Work, now: float) -> float:
        """Return the seconds since the last success or the process start."""
        succeeded = self.turns[work].succeeded
        return now - (self.begun if succeeded is None else succeeded)

    @property
    def oldest_pending(self) -> float | None:
        """When the oldest pending takeover was first seen."""
        return min((since for some in self.pending.values()
                    for since in some.values()), default=None)

    @property
    def oldest_asking(self) -> float | None:
        """When the oldest request without an answer was made."""
        return min(self.asking.values(), default=None)

    @property
    def oldest_awaited(self) -> float | None:
        """The same, without requests that are lost."""
        return min((since for since in self.asking.values()
                    if self.heard is None or self.heard - since <= LOST),
                   default=None)
