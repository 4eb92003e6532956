# SPDX-License-Identifier: Apache-2.0

"""Whether a compute service works, and what it shows of itself."""

from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules.counters import Counters
from nova_ironic_multihost.rules.counters import Pending
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
class HealthInputs:
    """What was seen of a compute service; times by one monotonic clock."""

    #: End of its start, with nova's first audit.
    started: float | None = None
    ending: bool = False
    listening: bool = True
    #: Last progress of the audit and of the peer poll.
    audit: float | None = None
    peer_poll: float | None = None
    peer_poll_ended: float | None = None
    #: When nova's conductor last returned the services.
    services: float | None = None
    #: Time of the oldest request that Ironic may still answer.
    asking: float | None = None


@dataclasses.dataclass(frozen=True)
class HealthState:
    """Whether it is healthy, and a line for people to read."""

    well: bool
    why: str


def judge(
    inputs: HealthInputs, limits: HealthLimits, now: float
) -> HealthState:
    """Return whether a compute service is healthy."""
    # It is unhealthy only if a restart or an operator can help.
    if inputs.ending:
        return HealthState(True, 'This compute service is about to end.')
    if inputs.started is None:
        return HealthState(True, 'This compute service starts.')
    if not inputs.listening:
        return HealthState(False, 'Nobody reads the messages that are sent to '
                           'this compute service any more: restart it.')
    started = inputs.started
    silence = {
        what: now - max(started, since or started)
        for what, since in (('audit', inputs.audit),
                            ('peer poll', inputs.peer_poll),
                            ('conductor', inputs.services))}
    if (silence['conductor'] > limits.conductor
            and inputs.peer_poll_ended is not None
            and inputs.peer_poll_ended > (inputs.services or started)):
        return HealthState(False, 'nova-conductor has not answered for '
                           f'{silence["conductor"]:.0f} s: are '
                           'nova-conductor, its database and the message '
                           'bus up?')
    hung = [f'no {what} got any further for {silence[what]:.0f} s'
            for what, limit in (('peer poll', limits.peer_poll),
                                ('audit', limits.audit))
            if limit is not None and silence[what] > limit]
    # While Ironic does not answer, a new process would hang as well.
    unanswered = now - inputs.asking if inputs.asking is not None else 0
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


#: Reasons of nodes that move to another compute service, or wait for it.
MOVING = (Reason.ADOPTED, Reason.ADOPTION_WAITS, Reason.PULLED,
          Reason.ALLOCATED, Reason.QUEUED, Reason.AWAITED, Reason.UNANSWERED,
          Reason.STARTING, Reason.TAKEN_OVER, Reason.INSTANCE_WAITS,
          Reason.TAKEOVER_FAILED)


@dataclasses.dataclass(frozen=True)
class StatusSnapshot:
    """A compute service at one moment, by the clock of ``totals``."""

    host: str
    at: float
    totals: Counters
    verdict: HealthState
    view: peers.View | None = None
    #: None before its first audit of all nodes.
    reasons: Mapping[str, Reason] | None = None
    #: Its nodes that Ironic does not list; ``braked``: too many to delete any.
    missing: int = 0
    braked: bool = False
    #: It is stopping, and no longer polls peers and Ironic.
    ending: bool = False

    @property
    def pending_seconds(self) -> float:
        """Seconds since the oldest pending takeover; 0 if there is none."""
        oldest = self.totals.oldest_pending
        return 0 if oldest is None else max(0, self.at - oldest)

    def age(self, work: Work) -> float:
        """Return the seconds since the last success, see ``Counters.age``."""
        return self.totals.age(work, self.at)

    def moving(self) -> Mapping[Reason, str]:
        """Return each reason for which nodes move -> uuid of one such node."""
        examples: dict[Reason, str] = {}
        for node, reason in (self.reasons or {}).items():
            if reason in MOVING:
                examples.setdefault(reason, node)
        return types.MappingProxyType(
            {reason: examples[reason] for reason in MOVING
             if reason in examples})

    def waiting(self, kind: Pending) -> list[tuple[str, float]]:
        """Return (uuid, seconds) of all that is pending, the oldest first."""
        return sorted(
            ((key, self.at - since) for key, since
             in self.totals.pending[kind].items()),
            key=lambda one: (-one[1], one[0]))
