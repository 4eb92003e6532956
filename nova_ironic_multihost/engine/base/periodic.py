# SPDX-License-Identifier: Apache-2.0

"""The timer: a thread that does one thing every few seconds."""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Seconds that a timer rests after each turn, however long that has taken and
#: however often it is woken.
REST = 0.5


class PeriodicTasks:
    """Several timers that begin and stop together.

    :param acts: (what is done, how often: ``seconds`` of
        :class:`PeriodicTask`), by the name of its timer.
    """

    def __init__(self, **acts: tuple[
            Callable[[], object], Callable[[], float]]) -> None:
        self._timers = {name: PeriodicTask(name, act, seconds)
                        for name, (act, seconds) in acts.items()}

    def start(self) -> None:
        """Begin, if they have not begun."""
        for one in self._timers.values():
            one.start()

    def wake(self, name: str) -> None:
        """Have one of them run soon, see :meth:`PeriodicTask.wake`."""
        self._timers[name].wake()

    def stop(self) -> None:
        """Do nothing again; what is under way is not waited for."""
        for one in self._timers.values():
            one.stop()


class PeriodicTask:
    """Does something every few seconds, in a thread of its own.

    The seconds are counted from the beginning of a turn to that of the next
    one, as others are promised what a turn does. After a turn that has taken
    longer the next one comes :data:`REST` after its end; turns that were
    missed are not made up for.

    It ends with the main thread, which is the service: whoever goes on
    without it takes nodes and instances that nobody serves.

    :param name: what is done, for people to read.
    :param act: function without arguments; what it raises is logged, once
        for each kind of error until it succeeds again.
    :param seconds: function without arguments that returns in how many
        seconds the next turn begins; asked at the beginning of each turn.
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
        """Begin, if it has not begun."""
        if self._thread is None:
            self._stopped, self._woken = threading.Event(), threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopped, self._woken),
                name=f'ironic-multihost-{self._name}', daemon=True)
            self._thread.start()

    def wake(self) -> None:
        """Have it done without waiting until it is due.

        Once, however often it is called before that, and not earlier than
        :data:`REST` after the turn before. What is under way may have begun
        too early to see why: it is done again. Nothing before :meth:`start`.
        """
        self._woken.set()

    def stop(self) -> None:
        """Do not do it again; what is under way is not waited for."""
        self._stopped.set()
        self._woken.set()
        self._thread = None

    def _pause(self, stopped: threading.Event, woken: threading.Event,
               begun: float, seconds: float) -> bool:
        """Wait until it is to be done again; return whether it is not.

        :param begun: when the last turn began, by the clock.
        :param seconds: from then to the beginning of the next one.
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
        """Return the seconds to the next turn; raises nothing.

        :param before: what it was. The configuration cannot be read if it
            was read anew with an error in it.
        """
        try:
            seconds = self._seconds()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._unknown)
            return before
        self._unknown.clear()
        return seconds

    def turn(self) -> None:
        """Do it once; raises nothing."""
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
