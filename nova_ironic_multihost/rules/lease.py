# SPDX-License-Identifier: Apache-2.0

"""The lease: how long a compute service may act on nova's last answer.

A host that is cut off cannot see that others take over its instances. So it
asks nova's conductor every few seconds for its own service. Each answer that
it is up renews the lease, from the *begin* of the question, as the answer may
be delayed. During the lease the process sends signs of life to a watchdog,
which kills it afterwards (proof: page "Watchdog and lease").
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

    @property
    def margin(self) -> float:
        """Time for clock differences, the kill and requests on their way."""
        return self.down_time

    def over_after(self, watchdog: float) -> float:
        """Return the seconds from the last renewal to the certain end."""
        # The watchdog's seconds count three times: a process may be frozen
        # between its check of the lease and the sign of life, then the
        # watchdog waits, and systemd gives a stop the same time (service.c).
        return self.length + 3 * watchdog + self.margin


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
        state = word(service)
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

    def verdict(self, terms: LeaseTiming, now: float) -> health.HealthState:
        """Return whether it is valid, and why not."""
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
