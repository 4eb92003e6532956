# SPDX-License-Identifier: Apache-2.0

"""Whether a compute service works, and a snapshot of it for people.

Probes that restart processes ask this. So the answer is no only where a new
process or a person is the remedy: an audit or a poll that hangs, messages that
no thread reads, a conductor that is silent. How well things go is up to the
metrics.
"""

from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.rules.counters import Counters
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers

#: Seconds after which a request to Ironic explains that nothing goes on.
UNANSWERED = 30

#: Audits that may be missing, and looks.
MISSED = 3

#: Questions to nova's conductor that may get no answer one after the other, in
#: an audit or in what nova's tasks do besides, and in a look.
QUESTIONS, QUESTIONS_OF_LOOK = 10, 5

#: Seconds for which nova's conductor is usually away at most.
AWAY = 300


@dataclasses.dataclass(frozen=True)
class HealthLimits:
    """Seconds after which something counts as broken.

    :param audit: without progress of an audit, None if nova makes none.
    :param look: without progress of a poll of the peers.
    :param conductor: without an answer of nova's conductor.
    """

    audit: float | None
    look: float
    conductor: float


def bounds(interval: float | None, period: float, timeout: float,
           removal: float = 0) -> HealthLimits:
    """Return the limits that follow from nova's intervals.

    :param interval: seconds between two audits, None if there are none.
    :param period: seconds between two polls.
    :param timeout: longest wait for the conductor.
    :param removal: longest wait for Ironic to tear down a machine; audits wait
        while nova's other tasks do that.
    """
    return HealthLimits(
        None if interval is None
        else MISSED * interval + QUESTIONS * timeout + removal,
        MISSED * period + QUESTIONS_OF_LOOK * timeout,
        max(AWAY, QUESTIONS_OF_LOOK * timeout))


@dataclasses.dataclass(frozen=True)
class HealthInputs:
    """What is known of a compute service; times by one monotonic clock.

    :param started: end of its start, None while it starts. nova makes its
        first audit then, which may take long.
    :param ending: it was told to stop.
    :param listening: a thread reads its messages.
    :param audit: last progress of an audit.
    :param look: last progress of a poll of the peers.
    :param look_ended: end of the last poll.
    :param services: last answer of nova's conductor about the services.
    :param asking: time of the oldest request to Ironic without an answer that
        may still come, or None.
    """

    started: float | None = None
    ending: bool = False
    listening: bool = True
    audit: float | None = None
    look: float | None = None
    look_ended: float | None = None
    services: float | None = None
    asking: float | None = None


@dataclasses.dataclass(frozen=True)
class HealthState:
    """Whether it works, and a line for people to read."""

    well: bool
    why: str


def judge(
    signs: HealthInputs, limits: HealthLimits, now: float
) -> HealthState:
    """Say whether a compute service works.

    Ironic being away is no reason: a new process would wait for it as well.
    """
    if signs.ending:
        return HealthState(True, 'This compute service is about to end.')
    if signs.started is None:
        return HealthState(True, 'This compute service starts.')
    if not signs.listening:
        return HealthState(False, 'Nobody reads the messages that are sent to '
                       'this compute service any more: restart it.')
    started = signs.started
    silence = {
        what: now - max(started, since or started)
        for what, since in (('audit', signs.audit), ('look', signs.look),
                            ('conductor', signs.services))}
    if (silence['conductor'] > limits.conductor
            and signs.look_ended is not None
            and signs.look_ended > (signs.services or started)):
        return HealthState(False, 'nova-conductor has not answered for '
                       f'{silence["conductor"]:.0f} s: are nova-conductor, '
                       'its database and the message bus up?')
    hung = [f'no {what} got any further for {silence[what]:.0f} s'
            for what, limit in (('look', limits.look),
                                ('audit', limits.audit))
            if limit is not None and silence[what] > limit]
    unanswered = now - signs.asking if signs.asking is not None else 0
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


#: Why nodes are on their way from one compute service to another, or wait to
#: be.
MOVING = (Reason.ADOPTED, Reason.ADOPTION_WAITS, Reason.PULLED,
          Reason.ALLOCATED, Reason.QUEUED, Reason.AWAITED, Reason.UNANSWERED,
          Reason.STARTING, Reason.TAKEN_OVER, Reason.INSTANCE_WAITS,
          Reason.TAKEOVER_FAILED)


@dataclasses.dataclass(frozen=True)
class StatusSnapshot:
    """A compute service at one moment.

    :param host: its name, as nova spells it.
    :param at: the moment, by the clock of the counters.
    :param recorder: its counters.
    :param verdict: whether it works.
    :param view: the compute services as it saw them last, or None.
    :param reasons: node uuid -> reason, None before the first audit of all
        nodes.
    :param missing: number of nodes recorded on it that Ironic does not list.
    :param braked: too many are missing, and none counts as deleted.
    :param ending: it was told to stop, and polls no more.
    """

    host: str
    at: float
    totals: Counters
    verdict: HealthState
    view: peers.View | None = None
    reasons: Mapping[str, Reason] | None = None
    missing: int = 0
    braked: bool = False
    ending: bool = False

    @property
    def pending_seconds(self) -> float:
        """For how long the oldest take-over has been pending; 0 if none is."""
        oldest = self.totals.oldest_pending
        return 0 if oldest is None else max(0, self.at - oldest)

    def age(self, work: Work) -> float:
        """Return the seconds since some work was done, see ``Counters``."""
        return self.totals.age(work, self.at)

    def moving(self) -> Mapping[Reason, str]:
        """Return one node uuid for each reason for which nodes move."""
        examples: dict[Reason, str] = {}
        for node, reason in (self.reasons or {}).items():
            if reason in MOVING:
                examples.setdefault(reason, node)
        return types.MappingProxyType(
            {reason: examples[reason] for reason in MOVING
             if reason in examples})

    def waiting(self, kind: Pending) -> list[tuple[str, float]]:
        """Return (uuid, seconds) of pending take-overs, the oldest first."""
        return sorted(
            ((key, self.at - since) for key, since
             in self.totals.pending[kind].items()),
            key=lambda one: (-one[1], one[0]))
