# SPDX-License-Identifier: Apache-2.0

"""Periodic tasks: a thread for each function that runs every few seconds."""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds that a timer rests after each turn, however long that has taken and
#: however often it is woken.
REST = 0.5


class PeriodicTasks:
    """Several tasks that start and stop together.

    :param acts: name -> (function, seconds of :class:`PeriodicTask`).
    """

    def __init__(self, **acts: tuple[
            Callable[[], object], Callable[[], float]]) -> None:
        self._timers = {name: PeriodicTask(name, act, seconds)
                        for name, (act, seconds) in acts.items()}

    def start(self) -> None:
        """Start them, if they have not started."""
        for one in self._timers.values():
            one.start()

    def wake(self, name: str) -> None:
        """Have one of them run soon, see :meth:`PeriodicTask.wake`."""
        self._timers[name].wake()

    def stop(self) -> None:
        """Begin no more runs; a run that is under way is not waited for."""
        for one in self._timers.values():
            one.stop()


class PeriodicTask:
    """Runs a function every few seconds, in a thread of its own.

    The seconds count from the beginning of a run to the beginning of the next.
    After a run that took longer, the next one comes :data:`REST` after its
    end. Missed runs are not made up for. The thread ends with the main thread,
    which is the service.

    :param name: for people to read.
    :param act: without arguments; its errors are logged, once for each kind
        until it succeeds again.
    :param seconds: returns the seconds to the next run; called at the
        beginning of each run.
    :param service: the main thread.
    :param clock: monotonic clock, in seconds.
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
        # Kinds of errors of what is done, and of asking how often; each since
        # it succeeded.
        self._failures: set[type[Exception]] = set()
        self._unknown: set[type[Exception]] = set()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start it, if it has not started."""
        if self._thread is None:
            self._stopped, self._woken = threading.Event(), threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopped, self._woken),
                name=f'ironic-multihost-{self._name}', daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Have it run soon, not earlier than :data:`REST` after the last run.

        Once, however often this is called before the run. A run that is under
        way may have begun too early to see why, so it is followed by another.
        Before :meth:`start` this does nothing.
        """
        self._woken.set()

    def stop(self) -> None:
        """Begin no more runs; a run that is under way is not waited for."""
        self._stopped.set()
        self._woken.set()
        self._thread = None

    def _pause(self, stopped: threading.Event, woken: threading.Event,
               begun: float, seconds: float) -> bool:
        """Wait for the next run; return whether there is none.

        :param begun: begin of the last run, by the clock.
        :param seconds: from then to the next one.
        """
        if not stopped.wait(min(REST, seconds)):
            woken.wait(max(0, begun + seconds - self._clock()))
            # Before the turn: who wakes it during that is heard.
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
        """Return the seconds to the next run; raises nothing.

        :param before: the result of the last call, in case of an error.
        """
        try:
            seconds = self._seconds()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._unknown)
            return before
        self._unknown.clear()
        return seconds

    def turn(self) -> None:
        """Run it once; raises nothing."""
        try:
            self._act()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._failures)
        else:
            self._failures.clear()

    def _note(self, exc: Exception, known: set[type[Exception]]) -> None:
        if type(exc) not in known:
            known.add(type(exc))
            LOG.warning('The %(name)s failed: %(exc)s. It is repeated '
                        'until it succeeds.',
                        {'name': self._name, 'exc': exc}, exc_info=exc)
