# SPDX-License-Identifier: Apache-2.0

"""What a compute service has counted and timed of its own work; immutable.

Times are seconds of one monotonic clock.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum
import types

from nova_ironic_multihost.rules.ownership import Reason


class Event(enum.Enum):
    """Something that is counted, since the process has begun."""

    ADOPTED = 'a free node came from a compute service that is down'
    PULLED = 'a free node came from one that is up'
    MOVE_FAILED = 'the record of a free node could not be moved'
    TAKEN_OVER = 'an instance was taken over'
    TAKEOVER_FAILED = 'it is not known whether one was'
    LOOK_FAILED = 'a look has failed'
    REFUSED = 'an operation was not carried out at the gate'


class Work(enum.Enum):
    """Something that is done again and again."""

    LISTING = 'asking Ironic what has changed'
    AUDIT = 'an audit of all nodes'
    LOOK = 'a look'
    SERVICES = 'asking nova who is there'


class Pending(enum.Enum):
    """What a take-over that is not over waits for."""

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
    """How it goes with one kind of work.

    :param sign: when it was last seen to go on: it began, got a step further
        or came to its end, whatever came of it. None before the first time.
    :param ended: when it last came to its end, whatever came of it.
    :param succeeded: when it last came to its end without an error.
    :param seconds: how long it had taken then.
    """

    sign: float | None = None
    ended: float | None = None
    succeeded: float | None = None
    seconds: float | None = None

    def seen(self, now: float) -> 'RunStats':
        """Return this after a sign of life."""
        return dataclasses.replace(self, sign=now)

    def over(self, begun: float, now: float, done: bool) -> 'RunStats':
        """Return this after one more turn.

        :param begun: when it began.
        :param done: it came to its end without an error.
        """
        if done:
            return RunStats(now, now, now, now - begun)
        return dataclasses.replace(self, sign=now, ended=now)


@dataclasses.dataclass(frozen=True)
class Counters:
    """All of it at one moment.

    :param begun: when the process began.
    :param counts: how often something has happened.
    :param turns: of each kind of work.
    :param pending: of each kind, what is pending -> since when it was seen.
    :param asking: number of a request that Ironic has not answered yet ->
        when it was made.
    :param heard: when Ironic last answered one.
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
        """Return this after something has happened."""
        return dataclasses.replace(self, counts=types.MappingProxyType(
            {**self.counts, event: self.counts[event] + number}))

    def with_turns(self, work: Work, turns: RunStats) -> 'Counters':
        """Return this with how it goes with one kind of work."""
        return dataclasses.replace(self, turns=types.MappingProxyType(
            {**self.turns, work: turns}))

    def with_pending(self, kind: Pending, keys: Set[str], now: float
                     ) -> 'Counters':
        """Return this with all that is pending of one kind.

        :param keys: uuids; what is not among them is over.
        """
        before = self.pending[kind]
        return dataclasses.replace(self, pending=types.MappingProxyType({
            **self.pending, kind: types.MappingProxyType(
                {key: before.get(key, now) for key in sorted(keys)})}))

    def asked(self, number: int, now: float) -> 'Counters':
        """Return this after a request to Ironic was made.

        :param number: of the request; no two have the same.
        """
        return dataclasses.replace(self, asking=types.MappingProxyType(
            {**self.asking, number: now}))

    def answered(self, number: int, now: float | None = None) -> 'Counters':
        """Return this after that request has got an answer, or has failed.

        :param now: when it was answered, None if it has failed.
        """
        return dataclasses.replace(
            self, heard=self.heard if now is None else now,
            asking=types.MappingProxyType({
                other: since for other, since in self.asking.items()
                if other != number}))

    def age(self, work: Work, now: float) -> float:
        """Return the seconds since some work came to its end without an error.

        Since the process began, if it never has.
        """
        succeeded = self.turns[work].succeeded
        return now - (self.begun if succeeded is None else succeeded)

    @property
    def oldest_pending(self) -> float | None:
        """When the oldest take-over that is pending was seen first."""
        return min((since for some in self.pending.values()
                    for since in some.values()), default=None)

    @property
    def oldest_asking(self) -> float | None:
        """When the oldest request was made that has no answer yet."""
        return min(self.asking.values(), default=None)

    @property
    def oldest_awaited(self) -> float | None:
        """The same, without those whose answer never comes."""
        return min((since for since in self.asking.values()
                    if self.heard is None or self.heard - since <= LOST),
                   default=None)
