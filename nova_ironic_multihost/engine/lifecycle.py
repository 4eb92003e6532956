# SPDX-License-Identifier: Apache-2.0

"""How this compute service stops, and shows that it is healthy.

After SIGTERM it takes no more nodes and instances, and serves those it has.
The stop marker is in :mod:`.rules.liveness`; the next start removes it. The
threads of the health probe and of the lease take no lock, so that no audit,
outage of Ironic or stop delays them.
"""

from collections import abc
import contextlib
import dataclasses
import datetime
import functools
import math
import socket
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.base.ports import Registration
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import StatusSnapshot
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Seconds that a stop waits for nova. Containers may have 30 for all of it.
WAIT = 5

#: Tries to write the stop marker, each up to nova's RPC timeout; and the
#: seconds between them.
ATTEMPTS = 12
PAUSE = 5

#: Signs of life within the timeout of the watchdog.
SIGNS = 4

#: Timeout of the watchdog's socket, in seconds.
SOCKET_TIMEOUT = 1

SYSTEMD_READY = 'READY=1'
SYSTEMD_ALIVE = 'WATCHDOG=1'


class Shutdown:
    """Begins at most once in a process.

    nova may call it in a signal handler, on top of any frame of the main
    thread. So nova is asked in another thread, which no lock of the main
    thread can block for longer than :data:`WAIT`.

    :param may_close: see :func:`.liveness.may_close`.
    """

    def __init__(self, registration: Registration,
                 may_close: abc.Callable[[], bool],
                 now: abc.Callable[[], datetime.datetime] = (
                     lambda: datetime.datetime.now(datetime.UTC)),
                 sleep: abc.Callable[[float], None] = time.sleep) -> None:
        self._registration = registration
        self._may_close = may_close
        self._now = now
        self._sleep = sleep
        self._started = False
        #: The last removal of a marker that had no answer.
        self._unsure: object = None
        self._begun = threading.Event()
        self._said = threading.Event()

    def begun(self) -> bool:
        """Return whether the service stops, and so takes nothing."""
        return self._begun.is_set()

    def begin(self) -> None:
        """Take nothing more, and tell the other hosts, once.

        A process with a refused start writes nothing: another may have its
        host name.
        """
        if self.begun():
            return
        self._begun.set()
        if not self._started or not periodic.start_thread(
                'shutdown', self._write_stop_marker):
            self._said.set()

    def wait(self) -> None:
        """Wait up to :data:`WAIT` s until nova knows of the stop.

        Called when the queue is read no more: later builds may not finish.
        """
        if self.begun() and not self._said.wait(WAIT):
            LOG.warning('It is not known yet to nova that this compute '
                        'service is about to end: builds are sent to it '
                        'until its heartbeat has been missing for '
                        'service_down_time. If that lasts: is '
                        'nova-conductor up?')

    def undo(self, found: bool = True) -> bool:
        """Remove the stop marker of an earlier process; raises nothing.

        Called before the first audit and after each look at the services: the
        write of a killed process may come late. From the first removal on this
        process writes a marker when it stops.

        :param found: nova has shown a marker. Without one, only a removal that
            had no answer is repeated.
        :returns: whether this, or one without an answer before it, may have
            enabled the service.
        """
        if self.begun() or not (found or self._unsure):
            return False
        self._started = True
        before, undone = self._unsure, False
        try:
            undone = self._registration.take_back()
            # That of another thread may have failed meanwhile.
            if self._unsure is before:
                self._unsure = None
            if undone:
                LOG.info('This compute service was stopped, and is enabled '
                         'again.')
            undone = undone or before is not None
        except Exception as exc:  # noqa: BLE001
            self._unsure = object()
            if before is None:
                LOG.warning('It is not known whether nova has this compute '
                            'service disabled since it was stopped: %s. It '
                            'is looked at again soon.', exc)
        if self.begun():
            # The stop began meanwhile: take_back() may remove its marker. No
            # lock, as a signal handler here may never return to this frame.
            self._write_stop_marker()
        return undone

    def _write_stop_marker(self) -> None:
        try:
            text = liveness.stop_marker_text(self._now())
            if not self._write_with_retries(text):
                return
            # Asked after it: hosts that stop together see each other's marker.
            if self._may_close():
                self._registration.close(text)
            LOG.info('The others know that this compute service is about to '
                     'end. If it is not back in service_down_time they take '
                     'its free nodes.')
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It is not known whether enough compute services '
                        'stay that builds can be sent to, so builds are still '
                        'sent to this one, which is about to end: %s. They '
                        'wait for its next start.', exc)
        finally:
            self._said.set()

    def _write_with_retries(self, text: str) -> bool:
        """Write the marker, with retries; return whether it is written."""
        for attempt in range(ATTEMPTS):
            try:
                return self._registration.say(text)
            except Exception as exc:  # noqa: BLE001
                LOG.debug('Attempt %(attempt)s to say that this compute '
                          'service is about to end: %(exc)s',
                          {'attempt': attempt + 1, 'exc': exc})
                self._sleep(PAUSE)
        return False


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
                 bounds: abc.Callable[[], health.HealthLimits],
                 ending: abc.Callable[[], bool],
                 listening: abc.Callable[[], bool],
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
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
        # A working service must not end for an error in nova.conf: it could
        # not start again.
        with contextlib.suppress(Exception):
            self._limits = self._bounds()
        return health.judge(self.picture(), self._limits)

    def picture(self) -> StatusSnapshot:
        """Return the state of this moment."""
        audit = self._auditor.last
        absences = self._auditor.absences
        recorder = self._recorder
        # Read before the clock, so that no time is in the future.
        turns, asking = dict(recorder.turns), recorder.oldest_asking
        return StatusSnapshot(
            self._host, self._clock(), recorder.begun, self._started,
            dict(recorder.counts), turns, dict(recorder.pending), asking,
            self._listening(), self._ending(),
            view=self._peer_poller.view or (audit.view if audit else None),
            reasons=audit.reasons if audit else None,
            missing=len(absences.counts), braked=absences.braked)


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

    def __init__(self, ask: abc.Callable[[], peers.ComputeService | None],
                 terms: abc.Callable[[], health.LeaseTiming],
                 period: abc.Callable[[], float],
                 watchdog: Watchdog | None = None,
                 ending: abc.Callable[[], bool] = lambda: False,
                 clock: abc.Callable[[], float] = clock) -> None:
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
        words = [SYSTEMD_READY, SYSTEMD_ALIVE]
        if self._ending():
            # While a service stops, systemd looks at this alone.
            words.append('EXTEND_TIMEOUT_USEC='
                         f'{round(self._watchdog.seconds * 1e6)}')
        self._watchdog.tell(*words)

    def verdict(self) -> health.HealthState:
        """Return whether the lease is valid."""
        return self._lease.verdict(self._terms(), self._clock())


def find_watchdog(environment: abc.Mapping[str, str], pid: int
                 ) -> Watchdog | None:
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
