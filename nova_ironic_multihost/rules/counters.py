# SPDX-License-Identifier: Apache-2.0

"""Counters and times of a compute service's own work; immutable.

Times are seconds of one monotonic clock.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum
import types

from nova_ironic_multihost.rules.ownership import Reason


class Event(enum.Enum):
    """An event that is counted since the start of the process."""

    ADOPTED = 'a free node came from a compute service that is down'
    PULLED = 'a free node came from one that is up'
    MOVE_FAILED = 'the record of a free node could not be moved'
    TAKEN_OVER = 'an instance was taken over'
    TAKEOVER_FAILED = 'it is not known whether one was'
    LOOK_FAILED = 'a look has failed'
    REFUSED = 'an operation was not carried out at the gate'


class Work(enum.Enum):
    """Work that is done again and again."""

    LISTING = 'asking Ironic what has changed'
    AUDIT = 'an audit of all nodes'
    LOOK = 'a look'
    SERVICES = 'asking nova who is there'


class Pending(enum.Enum):
    """What a pending take-over waits for."""

    TURN = 'nodes whose instances wait to be taken over'
    REST = 'instances that are to be finished'


#: Seconds for which Ironic answers others before a request is taken for lost:
#: somebody on the way has forgotten it.
LOST = 600

#: What the same thread does for as long as the process lives.
LASTING = frozenset({Work.AUDIT, Work.LOOK})

#: Why a free node becomes this host's -> what is counted when it does.
CAME = types.MappingProxyType({
    Reason.ADOPTED: Event.ADOPTED, Reason.PULLED: Event.PULLED})


@dataclasses.dataclass(frozen=True)
class RunStats:
    """State of one kind of work.

    :param sign: its last sign of life: begin, progress or end, whatever the
        result. None before the first.
    :param ended: its last end, whatever the result.
    :param succeeded: its last end without an error.
    :param seconds: how long that run took.
    """

    sign: float | None = None
    ended: float | None = None
    succeeded: float | None = None
    seconds: float | None = None

    def seen(self, now: float) -> 'RunStats':
        """Return this after a sign of life."""
        return dataclasses.replace(self, sign=now)

    def over(self, begun: float, now: float, done: bool) -> 'RunStats':
        """Return this after one more run.

        :param begun: begin of the run.
        :param done: it ended without an error.
        """
        if done:
            return RunStats(now, now, now, now - begun)
        return dataclasses.replace(self, sign=now, ended=now)


@dataclasses.dataclass(frozen=True)
class Counters:
    """All counters at one moment.

    :param begun: start of the process.
    :param counts: number of times of each event.
    :param turns: the :class:`RunStats` of each kind of work.
    :param pending: of each kind, uuid -> since when it was seen.
    :param asking: number of a request to Ironic without an answer -> its time.
    :param heard: last answer of Ironic.
    """

    begun: float = 0
    counts: Mapping[Event, int] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType(
            dict.fromkeys(Event, 0)))
    turns: Mapping[Work, RunStats] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType(
            dict.fromkeys(Work, RunStats())))
    pending: Mapping[Pending, Mapping[str, float]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType(
            dict.fromkeys(Pending, types.MappingProxyType({}))))
    asking: Mapping[int, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    heard: float | None = None

    def counted(self, event: Event, number: int = 1) -> 'Counters':
        """Return this after an event."""
        return dataclasses.replace(self, counts=types.MappingProxyType(
            {**self.counts, event: self.counts[event] + number}))

    def with_turns(self, work: Work, turns: RunStats) -> 'Counters':
        """Return this with new statistics of one kind of work."""
        return dataclasses.replace(self, turns=types.MappingProxyType(
            {**self.turns, work: turns}))

    def with_pending(self, kind: Pending, keys: Set[str], now: float
                     ) -> 'Counters':
        """Return this with all that is pending of one kind.

        :param keys: uuids; others are over.
        """
        before = self.pending[kind]
        return dataclasses.replace(self, pending=types.MappingProxyType({
            **self.pending, kind: types.MappingProxyType(
                {key: before.get(key, now) for key in sorted(keys)})}))

    def asked(self, number: int, now: float) -> 'Counters':
        """Return this after a request to Ironic.

        :param number: unique number of the request.
        """
        return dataclasses.replace(self, asking=types.MappingProxyType(
            {**self.asking, number: now}))

    def answered(self, number: int, now: float | None = None) -> 'Counters':
        """Return this after the answer to a request.

        :param now: time of the answer, None if the request failed.
        """
        return dataclasses.replace(
            self, heard=self.heard if now is None else now,
            asking=types.MappingProxyType({
                other: since for other, since in self.asking.items()
                if other != number}))

    def age(self, work: Work, now: float) -> float:
        """Return the seconds since some work ended without an error.

        Since the start of the process if it never has.
        """
        succeeded = self.turns[work].succeeded
        return now - (self.begun if succeeded is None else succeeded)

    @property
    def oldest_pending(self) -> float | None:
        """When the oldest pending take-over was seen first."""
        return min((since for some in self.pending.values()
                    for since in some.values()), default=None)

    @property
    def oldest_asking(self) -> float | None:
        """Time of the oldest request without an answer."""
        return min(self.asking.values(), default=None)

    @property
    def oldest_awaited(self) -> float | None:
        """Time of the oldest request with an answer that may still come."""
        return min((since for since in self.asking.values()
                    if self.heard is None or self.heard - since <= LOST),
                   default=None)
