# SPDX-License-Identifier: Apache-2.0

"""Show the state of this compute service, and renew its lease.

The threads here take no lock, so that no audit, outage of Ironic or stop
delays them.
"""

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import dataclasses
import functools
import math
import socket
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import peers


class HealthProbe:
    """Collects the state of this moment, for health checks and metrics.

    It only reads values that are replaced whole, and asks no service. So it
    answers even while other threads hang.

    :param recorder: counts and times; with the clock of :meth:`picture`.
    :param bounds: returns the limits of a healthy service; may raise.
    :param listening: whether this host reads its RPC queue.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 peer_poller: peer_poll.PeerPoller, recorder: Metrics,
                 bounds: Callable[[], health.HealthLimits],
                 ending: Callable[[], bool] = lambda: False,
                 listening: Callable[[], bool] = lambda: True,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._auditor = auditor
        self._peer_poller = peer_poller
        self._recorder = recorder
        self._bounds = bounds
        self._ending = ending
        self._listening = listening
        self._clock = clock
        self._started: float | None = None
        self._limits = health.HealthLimits(None, math.inf, math.inf)

    def note_start(self) -> None:
        """Note the start of this service."""
        if self._started is None:
            self._started = self._clock()

    def verdict(self) -> health.HealthState:
        """Return whether this compute service is healthy."""
        # Read before the clock, so that no time is in the future.
        totals = self._recorder.totals
        turns = totals.turns
        return health.judge(health.HealthInputs(
            started=self._started, ending=self._ending(),
            listening=self._listening(),
            audit=turns[Work.AUDIT].sign, peer_poll=turns[Work.PEER_POLL].sign,
            peer_poll_ended=turns[Work.PEER_POLL].ended,
            services=turns[Work.SERVICES].succeeded,
            asking=totals.oldest_awaited), self._read_limits(),
            self._clock())

    def _read_limits(self) -> health.HealthLimits:
        """Return the limits, the last ones if nova.conf has an error.

        A working service must not end for that: it could not start again.
        """
        with contextlib.suppress(Exception):
            self._limits = self._bounds()
        return self._limits

    def picture(self) -> StatusSnapshot:
        """Return the state of this moment."""
        audit = self._auditor.last
        absences = self._auditor.absences
        totals = self._recorder.totals
        return StatusSnapshot(
            self._host, self._clock(), totals, self.verdict(),
            view=self._peer_poller.view or (audit.view if audit else None),
            reasons=audit.reasons if audit else None,
            missing=len(absences.counts), braked=absences.braked,
            ending=self._ending())


LOG = logging.getLogger(__name__)

#: Signs of life within the timeout of the watchdog.
SIGNS = 4

#: Timeout of the watchdog's socket, in seconds.
SOCKET_TIMEOUT = 1

SYSTEMD_READY = 'READY=1'
SYSTEMD_ALIVE = 'WATCHDOG=1'


def clock() -> float:
    """Return the seconds since the machine's boot, with its sleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclasses.dataclass(frozen=True)
class Watchdog:
    """systemd's watchdog of this process, told by sd_notify(3).

    oslo.service uses sd_notify(3) at the start only, and takes the socket out
    of the environment then: call :func:`find_watchdog` before.

    :param address: its socket: a path, or ``@`` and an abstract name.
    :param seconds: without a sign of life until it kills.
    """

    address: str
    seconds: float

    def tell(self, *words: str) -> None:
        """Send words of sd_notify(3); OSError if systemd does not read."""
        where = self.address
        if where.startswith('@'):
            where = f'\0{where[1:]}'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(SOCKET_TIMEOUT)
            line.connect(where)
            line.sendall('\n'.join(words).encode())


class LeaseRenewer:
    """Holds the lease of this service.

    :param ask: returns this service as nova has it, None if it has none.
    :param terms: returns the timing. Only its first result counts, so an error
        in a changed nova.conf ends no service.
    :param period: returns the seconds between two questions.
    """

    def __init__(self, ask: Callable[[], peers.ComputeService | None],
                 terms: Callable[[], health.LeaseTiming],
                 period: Callable[[], float],
                 watchdog: Watchdog | None = None,
                 ending: Callable[[], bool] = lambda: False,
                 clock: Callable[[], float] = clock) -> None:
        self._ask = ask
        self._terms = functools.cache(terms)
        self._watchdog = watchdog
        self._ending = ending
        self._clock = clock
        self._lease = health.Lease(clock())
        self._lost = False
        # A thread each: nova may not answer while systemd waits for a sign.
        self._timers = [periodic.PeriodicThread(
            'lease', {'lease': (self.renew, period)})]
        if watchdog is not None:
            seconds = watchdog.seconds / SIGNS
            self._timers.append(periodic.PeriodicThread(
                'watchdog', {'watchdog': (self.show, lambda: seconds)}))

    @property
    def dead_after(self) -> float | None:
        """Seconds from the last renewal to certain death; None: unwatched."""
        if self._watchdog is None:
            return None
        return self._terms().over_after(self._watchdog.seconds)

    def start(self) -> None:
        """Start the threads, when nova has just answered."""
        self._lease = health.Lease(self._clock())
        if self._watchdog is not None:
            LOG.info('systemd kills this process when it shows no sign of '
                     'life for %(seconds)d s. It shows some while the lease '
                     'is valid: for %(length)d s after nova was asked, and '
                     'said that this compute service is up.',
                     {'seconds': self._watchdog.seconds,
                      'length': self._terms().length})
        for one in self._timers:
            one.start()
            for task in one.tasks:
                one.wake(task)

    def end(self) -> None:
        """Ask no more: only a few threads of the service are left.

        The watchdog kills those that hang when the lease has run out.
        """
        self._timers[0].stop()

    def renew(self) -> None:
        """Ask nova, and renew the lease by the answer, or raise the error."""
        asked = self._clock()
        self._lease = self._lease.after(asked, self._ask())

    def show(self) -> None:
        """Give a sign of life if the lease is valid; may raise OSError.

        READY=1 goes with each, as one may be lost. systemd's watchdog begins
        with it, before the first audit. nova with native threads sends none.
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
            SYSTEMD_READY, SYSTEMD_ALIVE,
            *([extend_timeout(self._watchdog.seconds)] if self._ending()
              else ()))

    def verdict(self) -> health.HealthState:
        """Return whether the lease is valid."""
        return self._lease.verdict(self._terms(), self._clock())


def find_watchdog(environment: Mapping[str, str], pid: int) -> Watchdog | None:
    """Return a process's watchdog by its environment at the start, or None."""
    address = environment.get('NOTIFY_SOCKET', '')
    span = environment.get('WATCHDOG_USEC', '')
    if not address.startswith(('/', '@')) or not span.isdecimal():
        return None
    if environment.get('WATCHDOG_PID', str(pid)) != str(pid):
        # For a parent of this process.
        return None
    seconds = int(span) / 1e6
    return Watchdog(address, seconds) if seconds else None


def extend_timeout(seconds: float) -> str:
    """Return the word that asks for more seconds until SIGKILL.

    While a service stops, systemd looks at this alone, not at signs of life.
    """
    return f'EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}'
