# SPDX-License-Identifier: Apache-2.0

"""Whether a compute service works, and what it shows of itself.

The *lease* is how long a compute service may act on nova's last answer. A host
that is cut off cannot see that others take over its instances. So it asks
nova's conductor every few seconds for its own service. Each answer that it is
up renews the lease, from the *begin* of the question, as the answer may be
delayed. During the lease the process sends signs of life to a watchdog, which
kills it afterwards (proof: page "Watchdog and lease").
"""

from collections import abc
import dataclasses
import enum
import operator

from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers

#: Seconds after which a pending request to Ironic explains a pause.
UNANSWERED = 30

#: Number of audits or polls that may be missing.
MISSED = 3

#: Conductor calls in a row that may time out: between audits, and in a poll.
QUESTIONS, QUESTIONS_OF_POLL = 10, 5

#: The most seconds for which nova's conductor is usually away.
AWAY = 300


@dataclasses.dataclass(frozen=True)
class HealthLimits:
    """Seconds without progress of audit, peer poll and conductor."""

    audit: float | None
    peer_poll: float
    conductor: float


def bounds(interval: float | None, period: float, timeout: float,
           removal: float = 0) -> HealthLimits:
    """Return the limits for the intervals of nova, in seconds."""
    # Audits wait while nova waits for Ironic to tear down a machine (removal).
    return HealthLimits(
        None if interval is None
        else MISSED * interval + QUESTIONS * timeout + removal,
        MISSED * period + QUESTIONS_OF_POLL * timeout,
        max(AWAY, QUESTIONS_OF_POLL * timeout))


@dataclasses.dataclass(frozen=True)
class HealthState:
    """Whether it is healthy, and a line for people to read."""

    well: bool
    why: str


@dataclasses.dataclass(frozen=True)
class StatusSnapshot:
    """A compute service at one moment; times by one monotonic clock."""

    host: str
    at: float
    #: Start of the process, and its end with nova's first audit.
    begun: float
    started: float | None
    counts: abc.Mapping[Event, int]
    turns: abc.Mapping[Work, RunStats]
    #: Kind -> uuid -> when it was first seen pending.
    pending: abc.Mapping[Pending, abc.Mapping[str, float]]
    #: Time of the oldest request that Ironic may still answer.
    asking: float | None = None
    #: It reads its RPC queue.
    listening: bool = True
    #: It is stopping, and no longer polls peers and Ironic.
    ending: bool = False
    view: peers.View | None = None
    #: None before its first audit of all nodes.
    reasons: abc.Mapping[str, Reason] | None = None
    #: Its nodes that Ironic does not list; ``braked``: too many to delete any.
    missing: int = 0
    braked: bool = False

    @property
    def pending_seconds(self) -> float:
        """Seconds since the oldest pending takeover; 0 if there is none."""
        return max(0, self.at - min(
            (since for some in self.pending.values()
             for since in some.values()), default=self.at))

    def age(self, work: Work) -> float:
        """Return the seconds since the last success or the process start."""
        succeeded = self.turns[work].succeeded
        return self.at - (self.begun if succeeded is None else succeeded)

    def waiting(self, kind: Pending) -> list[tuple[str, float]]:
        """Return (uuid, seconds) of all that is pending, the oldest first."""
        return [(uuid, self.at - since) for uuid, since in sorted(
            self.pending[kind].items(), key=operator.itemgetter(1, 0))]


def judge(seen: StatusSnapshot, limits: HealthLimits) -> HealthState:
    """Return whether a compute service is healthy."""
    # It is unhealthy only if a restart or an operator can help.
    if seen.ending:
        return HealthState(True, 'This compute service is about to end.')
    if seen.started is None:
        return HealthState(True, 'This compute service starts.')
    if not seen.listening:
        return HealthState(False, 'Nobody reads the messages that are sent to '
                           'this compute service any more: restart it.')
    services = seen.turns[Work.SERVICES]
    silence = {
        what: seen.at - max(seen.started, since or seen.started)
        for what, since in (('audit', seen.turns[Work.AUDIT].sign),
                            ('peer poll', seen.turns[Work.PEER_POLL].sign),
                            ('conductor', services.succeeded))}
    # A poll may be long at work after an answer. So a question must have
    # failed since, or be without an end.
    asked = services.sign if services.sign != services.succeeded else None
    if silence['conductor'] > limits.conductor and (
            services.ended != services.succeeded
            or asked is not None and seen.at - asked > limits.conductor):
        return HealthState(False, 'nova-conductor has not answered for '
                           f'{silence["conductor"]:.0f} s: are '
                           'nova-conductor, its database and the message '
                           'bus up?')
    hung = [f'no {what} got any further for {silence[what]:.0f} s'
            for what, limit in (('peer poll', limits.peer_poll),
                                ('audit', limits.audit))
            if limit is not None and silence[what] > limit]
    # While Ironic does not answer, a new process would hang as well.
    unanswered = seen.at - seen.asking if seen.asking is not None else 0
    if unanswered > UNANSWERED:
        return HealthState(True, 'Ironic has not answered a request for '
                           f'{unanswered:.0f} s; this compute service goes on '
                           'when it does.')
    if hung:
        return HealthState(
            False,
            f'It hangs: {" and ".join(hung)}. Take a Guru '
            'Meditation Report (SIGUSR2) and restart it.',
        )
    return HealthState(True, 'This compute service is well.')


class ServiceState(enum.Enum):
    """What nova says of a compute service, for people to read."""

    UP = 'it is up'
    DOWN = ('no heartbeat of it has been written in time: are nova-conductor '
            'and its database up, and do the clocks agree?')
    FENCED = 'it is forced down'
    GONE = 'there is no such compute service'


def service_state(service: peers.ComputeService | None) -> ServiceState:
    """Return what nova says of a service; None if nova has none."""
    if service is None:
        return ServiceState.GONE
    if service.forced_down:
        return ServiceState.FENCED
    return ServiceState.UP if service.up else ServiceState.DOWN


@dataclasses.dataclass(frozen=True)
class LeaseTiming:
    """Seconds of ``rpc_response_timeout`` and ``service_down_time``."""

    answer: float
    down_time: float

    @property
    def length(self) -> float:
        """Length: a conductor may lose one question and one heartbeat."""
        return self.answer + self.down_time

    def over_after(self, watchdog: float) -> float:
        """Return the seconds from the last renewal to the certain end."""
        # The watchdog's seconds count three times: a process may be frozen
        # between its check of the lease and the sign of life, then the
        # watchdog waits, and systemd gives a stop the same time (service.c).
        # down_time: clock differences, the kill and requests on their way.
        return self.length + 3 * watchdog + self.down_time


@dataclasses.dataclass(frozen=True)
class Lease:
    """The last answers of nova; times by one clock, in seconds."""

    #: Begin of the question that last renewed it, or of the start.
    renewed: float
    #: nova has called the service up since this process began.
    held: bool = False
    word: ServiceState | None = None
    #: Begin of the question that ``word`` answers.
    heard: float | None = None

    def after(self, asked: float,
              service: peers.ComputeService | None) -> 'Lease':
        """Return this after an answer to the question begun at ``asked``."""
        # Until the service is first up, each answer renews it: a start may
        # take long, and a service that is forced down only polls.
        state = service_state(service)
        held = self.held or state is ServiceState.UP
        return Lease(
            asked if state is ServiceState.UP or not held else self.renewed,
            held, state, asked)

    def left(self, terms: LeaseTiming, now: float) -> float:
        """Return the seconds until it expires; negative afterwards."""
        return self.renewed + terms.length - now

    def valid(self, terms: LeaseTiming, now: float) -> bool:
        """Return whether it has not expired."""
        return self.left(terms, now) >= 0

    def verdict(self, terms: LeaseTiming, now: float) -> HealthState:
        """Return whether it is valid, and why not."""
        if self.valid(terms, now):
            return HealthState(
                True, f'The lease is valid for {self.left(terms, now):.0f} s '
                'more.')
        silent = self.heard is None or now - self.heard > terms.length
        why = ('does not answer: are it, its database and the message bus '
               'up?' if silent or self.word is None
               else f'said last: {self.word.value}')
        return HealthState(
            False, 'The lease has run out: for '
            f'{now - self.renewed:.0f} s nova has not said that this compute '
            f'service is up. nova-conductor {why}')
