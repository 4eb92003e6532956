# SPDX-License-Identifier: Apache-2.0

"""Timers: threads that call a function every few seconds."""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The least seconds between the end of a run and the start of the next.
REST = 0.5


class PeriodicTasks:
    """Timers by name; ``acts``: (act, seconds) of :class:`PeriodicTask`."""

    def __init__(self, **acts: tuple[
            Callable[[], object], Callable[[], float]]) -> None:
        self._timers = {name: PeriodicTask(name, act, seconds)
                        for name, (act, seconds) in acts.items()}

    def start(self) -> None:
        """Start the timers, if they have not started."""
        for one in self._timers.values():
            one.start()

    def wake(self, name: str) -> None:
        """Run one of them soon, see :meth:`PeriodicTask.wake`."""
        self._timers[name].wake()

    def stop(self) -> None:
        """Stop the timers without waiting for runs in progress."""
        for one in self._timers.values():
            one.stop()


class PeriodicTask:
    """Calls a function every few seconds, in its own thread.

    The interval is from start to start. After a longer run the next one starts
    :data:`REST` seconds after its end; missed runs are skipped. The thread
    ends with the main thread: without it this process would take nodes and
    instances that no thread serves.

    :param act: its errors are logged, once for each type until it succeeds.
    :param seconds: returns the interval; called at the start of each run.
    """

    def __init__(self, name: str, act: Callable[[], object],
                 seconds: Callable[[], float],
                 service: threading.Thread | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._act = act
        self._seconds = seconds
        self._service = service or threading.main_thread()
        self._clock = clock
        self._stopped, self._woken = threading.Event(), threading.Event()
        # Types of errors since the last success, of ``act`` and ``seconds``.
        self._failures: set[type[Exception]] = set()
        self._unknown: set[type[Exception]] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if it has not started."""
        if self._thread is None:
            self._stopped, self._woken = threading.Event(), threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopped, self._woken),
                name=f'ironic-multihost-{self._name}', daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Run soon, once for all calls; a run in progress does not count."""
        self._woken.set()

    def stop(self) -> None:
        """Start no further run; do not wait for the one in progress."""
        self._stopped.set()
        self._woken.set()
        self._thread = None

    def _pause(self, stopped: threading.Event, woken: threading.Event,
               begun: float, seconds: float) -> bool:
        """Wait for the next run; return whether the timer was stopped."""
        if not stopped.wait(min(REST, seconds)):
            woken.wait(max(0, begun + seconds - self._clock()))
            # Cleared before the run, so that a wake during it counts.
            woken.clear()
        return stopped.is_set()

    def _run(self, stopped: threading.Event, woken: threading.Event) -> None:
        begun, seconds = self._clock(), self._period(REST)
        while not self._pause(stopped, woken, begun, seconds):
            if not self._service.is_alive():
                LOG.error('The main thread of nova-compute has ended, and '
                          'the process has not: kill it and start it again. '
                          'Its %s ends here.', self._name)
                return
            begun, seconds = self._clock(), self._period(seconds)
            self.turn()

    def _period(self, before: float) -> float:
        """Return the interval, or the one before if it cannot be read."""
        try:
            seconds = self._seconds()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._unknown)
            return before
        self._unknown.clear()
        return seconds

    def turn(self) -> None:
        """Run once; raises nothing."""
        try:
            self._act()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._failures)
        else:
            self._failures.clear()

    def _note(self, exc: Exception, known: set[type[Exception]]) -> None:
        if type(exc) not in known:
            known.add(type(exc))
            LOG.warning('The %(name)s failed: %(exc)s. It is tried again '
                        'until it succeeds.',
                        {'name': self._name, 'exc': exc}, exc_info=exc)
