# SPDX-License-Identifier: Apache-2.0

"""The holder of the lease: asks, in one thread, and gives signs of life.

The latter in another, as a question may wait a minute for its answer. Neither
does anything else and neither takes a lock, so nothing that this service is
busy with holds them up: its first audit, a look that takes a thousand
instances, Ironic that is away, the minutes in which it ends.
"""

from collections.abc import Callable
import functools
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.lifecycle import watchdog as watchdogs
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import lease
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Signs of life in the time after which the watchdog kills.
SIGNS = 4


def clock() -> float:
    """Return the seconds since the machine was started, asleep or not."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseRenewer:
    """Holds the lease of this service.

    :param ask: returns this service as nova has it now, None if it has none.
    :param terms: returns how long things last. What it returns first counts:
        a nova.conf that is read anew, with an error in it perhaps, ends
        nobody.
    :param period: returns the seconds between two questions.
    :param watchdog: what watches this process, None if nothing does.
    :param ending: says whether this service is about to end.
    :param clock: that of the lease, in seconds.
    """

    def __init__(self, ask: Callable[[], peers.ComputeService | None],
                 terms: Callable[[], lease.LeaseTiming],
                 period: Callable[[], float],
                 watchdog: watchdogs.Watchdog | None = None,
                 ending: Callable[[], bool] = lambda: False,
                 clock: Callable[[], float] = clock) -> None:
        self._ask = ask
        self._terms = functools.cache(terms)
        self._watchdog = watchdog
        self._ending = ending
        self._clock = clock
        self._lease = lease.Lease(clock())
        self._lost = False
        self._timers = [periodic.PeriodicTask('lease', self.renew, period)]
        if watchdog is not None:
            seconds = watchdog.seconds / SIGNS
            self._timers.append(periodic.PeriodicTask(
                'watchdog', self.show, lambda: seconds))

    @property
    def dead_after(self) -> float | None:
        """Seconds from the last renewal until it is dead for certain.

        None if nothing watches it.
        """
        if self._watchdog is None:
            return None
        return self._terms().over_after(self._watchdog.seconds)

    def start(self) -> None:
        """Begin, when nova has just answered."""
        self._lease = lease.Lease(self._clock())
        if self._watchdog is not None:
            LOG.info('systemd kills this process when it shows no sign of '
                     'life for %(seconds)d s. It shows some while the lease '
                     'is valid: for %(length)d s after nova was asked, and '
                     'said that this compute service is up.',
                     {'seconds': self._watchdog.seconds,
                      'length': self._terms().length})
        for one in self._timers:
            one.start()
            one.wake()

    def end(self) -> None:
        """Ask no more: the service has ended, but for a few threads.

        What hangs then is killed when the lease has run out.
        """
        self._timers[0].stop()

    def renew(self) -> None:
        """Ask, and renew the lease by the answer.

        :raises Exception: there is none.
        """
        asked = self._clock()
        self._lease = self._lease.after(asked, self._ask())

    def show(self) -> None:
        """Give a sign of life, if the lease is valid.

        With each, as a word may be lost, it says that the start is over: for
        systemd it is when the watchdog is to begin, before the first audit,
        which may take minutes. With native threads nova does not say it.

        :raises OSError: systemd does not hear.
        """
        if self._watchdog is None:
            return
        verdict = self.verdict()
        if not verdict.well:
            if not self._lost:
                LOG.error(
                    'This process shows no sign of life any more, and systemd '
                    'kills it within %(seconds)d s, as others may take over '
                    'what it has: %(why)s',
                    {'seconds': self._watchdog.seconds, 'why': verdict.why})
            self._lost = True
            return
        if self._lost:
            LOG.info('The lease is valid again: this process shows signs of '
                     'life.')
        self._lost = False
        self._watchdog.tell(
            watchdogs.READY, watchdogs.ALIVE,
            *([watchdogs.stay(self._watchdog.seconds)] if self._ending()
              else ()))

    def verdict(self) -> health.HealthState:
        """Say whether the lease is valid."""
        return self._lease.verdict(self._terms(), self._clock())
