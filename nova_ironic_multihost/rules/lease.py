# SPDX-License-Identifier: Apache-2.0

"""The lease: for how long a compute service may act on what it was told last.

Pure. Others take over the instances of a compute service that they have seen
down for some time, and whoever is cut off from nova cannot see that. So it
holds a lease: it asks nova's conductor every few seconds for its own service,
and each answer that this is up renews the lease, from the moment on in which
the question was *begun*, as the answer may have waited on the wire. While the
lease is valid it shows a watchdog that it lives. When the lease has run out it
does not, and is killed. How long after the last renewal that is, at the most,
is :meth:`LeaseTiming.over_after`; the proof is in the documentation (page "A
watchdog instead of fencing").
"""

import dataclasses
import enum

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers


class ServiceState(enum.Enum):
    """What nova says of a compute service, for people to read."""

    UP = 'it is up'
    DOWN = ('no heartbeat of it has been written in time: are nova-conductor '
            'and its database up, and do the clocks agree?')
    FENCED = 'it is forced down'
    GONE = 'there is no such compute service'


def word(service: peers.ComputeService | None) -> ServiceState:
    """Return what nova says.

    :param service: the compute service, None when nova has none.
    """
    if service is None:
        return ServiceState.GONE
    if service.forced_down:
        return ServiceState.FENCED
    return ServiceState.UP if service.up else ServiceState.DOWN


@dataclasses.dataclass(frozen=True)
class LeaseTiming:
    """How long things last, in seconds.

    :param answer: for which an answer of nova's conductor is awaited,
        ``rpc_response_timeout``.
    :param down_time: after which a service whose heartbeat is missing is
        called down, ``service_down_time``.
    """

    answer: float
    down_time: float

    @property
    def length(self) -> float:
        """Of the lease.

        A question and a heartbeat that get no answer, as a conductor was
        restarted with both in its hands, are no reason to be killed: the
        next heartbeat comes when the answer has been awaited in vain.
        """
        return self.answer + self.down_time

    @property
    def margin(self) -> float:
        """What is left for all that is not in the process.

        The clocks that tell how old a heartbeat is, the kill, and a request
        that is on its way to Ironic.
        """
        return self.down_time

    def over_after(self, watchdog: float) -> float:
        """Return how long after the last renewal all is over for certain.

        The time of the watchdog counts three times. Whoever is frozen between
        the look at the lease and the sign of life gives it late, and still in
        time. Then the watchdog waits. And who is told to end in that moment
        has as long for that, with no watchdog (systemd, service.c).

        :param watchdog: seconds without a sign of life after which a process
            is killed; it is not given longer to end.
        """
        return self.length + 3 * watchdog + self.margin


@dataclasses.dataclass(frozen=True)
class Lease:
    """What was heard; times by one clock, in seconds.

    :param renewed: when the question was begun whose answer renewed it last;
        at first when the service began to start, for which nova has just read
        it.
    :param held: whether it has been up in the life of this process.
    :param word: what was heard last, None if nothing.
    :param heard: when the question for that was begun.
    """

    renewed: float
    held: bool = False
    word: ServiceState | None = None
    heard: float | None = None

    def after(self, asked: float,
              service: peers.ComputeService | None) -> 'Lease':
        """Return the lease after an answer.

        One that has not been up yet is renewed by each answer. It starts,
        which may take long and in which it is called down; or it was started
        while it is forced down, and does nothing but look.

        :param asked: when the question was begun.
        :param service: the answer.
        """
        said = word(service)
        held = self.held or said is ServiceState.UP
        return Lease(
            asked if said is ServiceState.UP or not held else self.renewed,
            held, said, asked)

    def left(self, terms: LeaseTiming, now: float) -> float:
        """Return the seconds until it runs out; negative when it has."""
        return self.renewed + terms.length - now

    def valid(self, terms: LeaseTiming, now: float) -> bool:
        """Whether it has not run out."""
        return self.left(terms, now) >= 0

    def verdict(self, terms: LeaseTiming, now: float) -> health.HealthState:
        """Say whether it is valid, and why not."""
        if self.valid(terms, now):
            return health.HealthState(
                True, f'The lease is valid for {self.left(terms, now):.0f} s '
                'more.')
        silent = self.heard is None or now - self.heard > terms.length
        why = ('does not answer: are it, its database and the message bus '
               'up?' if silent or self.word is None
               else f'said last: {self.word.value}')
        return health.HealthState(
            False, 'The lease has run out: for '
            f'{now - self.renewed:.0f} s nova has not said that this compute '
            f'service is up. nova-conductor {why}')
