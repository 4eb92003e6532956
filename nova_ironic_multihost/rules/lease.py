# SPDX-License-Identifier: Apache-2.0

"""The lease: for how long a compute service may act on nova's last answer.

Other compute services take over the instances of one that they have seen down
for some time. A service that is cut off from nova cannot see that. So it asks
nova's conductor for its own service every few seconds. Each answer that the
service is up renews the lease, from the moment at which the question *began*,
as the answer may have waited on the wire. While the lease is valid the service
shows a watchdog that it lives; after that the watchdog kills it, within
:meth:`LeaseTiming.over_after`. The proof is in the documentation (page "A
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
    """Return what nova says of a service, None if nova has no such service."""
    if service is None:
        return ServiceState.GONE
    if service.forced_down:
        return ServiceState.FENCED
    return ServiceState.UP if service.up else ServiceState.DOWN


@dataclasses.dataclass(frozen=True)
class LeaseTiming:
    """Durations, in seconds.

    :param answer: the longest wait for the conductor,
        ``rpc_response_timeout``.
    :param down_time: ``service_down_time``.
    """

    answer: float
    down_time: float

    @property
    def length(self) -> float:
        """Length of the lease.

        A conductor that is restarted may swallow one question and one
        heartbeat. That is no reason to be killed: the next heartbeat follows
        when the wait for the answer ends.
        """
        return self.answer + self.down_time

    @property
    def margin(self) -> float:
        """Time for what is outside of the process.

        The clocks by which heartbeats get old, the kill, and a request that is
        on its way to Ironic.
        """
        return self.down_time

    def over_after(self, watchdog: float) -> float:
        """Return the seconds after the last renewal until the process is dead.

        The time of the watchdog counts three times: a process that is frozen
        between its check of the lease and the sign of life gives that late;
        then the watchdog waits; and a process that is told to stop at that
        moment has as long to stop, without a watchdog (systemd, service.c).

        :param watchdog: seconds without a sign of life until the kill.
        """
        return self.length + 3 * watchdog + self.margin


@dataclasses.dataclass(frozen=True)
class Lease:
    """The answers so far; times in seconds of one clock.

    :param renewed: when the question began that renewed the lease last; at
        first the start of the service, for which nova has just read it.
    :param held: the service has been up in the life of this process.
    :param word: the last answer, None before the first.
    :param heard: when the question for that began.
    """

    renewed: float
    held: bool = False
    word: ServiceState | None = None
    heard: float | None = None

    def after(self, asked: float,
              service: peers.ComputeService | None) -> 'Lease':
        """Return the lease after an answer.

        Each answer renews the lease of a service that has not been up yet: its
        start may take long, and it is down meanwhile; or it was started while
        it is forced down, and only looks.

        :param asked: when the question began.
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
        """Whether the lease has not run out."""
        return self.left(terms, now) >= 0

    def verdict(self, terms: LeaseTiming, now: float) -> health.HealthState:
        """Say whether the lease is valid, and why not."""
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
