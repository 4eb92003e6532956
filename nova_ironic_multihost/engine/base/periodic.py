# SPDX-License-Identifier: Apache-2.0

"""Threads that call functions every few seconds.

Tasks that may wait for the same services share a thread: one that hangs delays
only tasks that would hang as well.
"""

from collections.abc import Callable
from collections.abc import Mapping
import math
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The least seconds between the end of a run and the start of the next.
REST = 0.5

#: What a task calls, and what returns its seconds from start to start.
Schedule = tuple[Callable[[], object], Callable[[], float]]


def start_thread(name: str, target: Callable[..., object], *args: object
                 ) -> bool:
    """Call a function in a new thread; return whether there is one."""
    try:
        threading.Thread(target=target, args=args, daemon=True,
                         name=f'ironic-multihost-{name}').start()
    except RuntimeError as exc:
        LOG.warning('Threads of nova-compute are used up: %s.', exc)
        return False
    return True


class PeriodicTasks:
    """The threads by name; ``threads``: the tasks of each."""

    def __init__(self, **threads: Mapping[str, Schedule]) -> None:
        self.threads = {name: PeriodicThread(name, tasks)
                        for name, tasks in threads.items()}

    def start(self) -> None:
        """Start the threads, if they have not started."""
        for one in self.threads.values():
            one.start()

    def wake(self, task: str) -> None:
        """Run a task soon, see :meth:`PeriodicThread.wake`."""
        for one in self.threads.values():
            if task in one.tasks:
                one.wake(task)
                return
        raise KeyError(task)

    def run_due(self, thread: str) -> None:
        """Run the other due tasks of a thread; one of its tasks calls this."""
        self.threads[thread].run_due()

    def stop(self) -> None:
        """Stop the threads without waiting for runs in progress."""
        for one in self.threads.values():
            one.stop()


class PeriodicTask:
    """A function that a thread calls every few seconds.

    :param act: its errors are logged, once for each type until it succeeds.
    :param seconds: returns the interval; called at the start of each run.
    """

    def __init__(self, name: str, act: Callable[[], object],
                 seconds: Callable[[], float]) -> None:
        self._name = name
        self._act = act
        self._seconds = seconds
        self.interval = REST
        #: When it runs next; never before its thread has started.
        self._due = math.inf
        self._running = False
        self.woken = threading.Event()
        # Types of errors since the last success, of ``act`` and ``seconds``.
        self._failures: set[type[Exception]] = set()
        self._unknown: set[type[Exception]] = set()

    def plan(self, now: float) -> None:
        """Count the seconds until the next run from now."""
        self.interval = self._period()
        self._due = now + self.interval

    def wait(self, now: float) -> float:
        """Return the seconds until the next run."""
        return 0 if self.woken.is_set() else max(0, self._due - now)

    def is_due(self, now: float) -> bool:
        """Whether it is to run now; not while it runs."""
        return (self._due < math.inf and not self._running
                and not self.wait(now))

    def run(self, now: float) -> None:
        """Plan the next run, and run now."""
        self.plan(now)
        # Cleared before the run, so that a wake during it counts.
        self.woken.clear()
        self._running = True
        try:
            self.turn()
        finally:
            self._running = False

    def _period(self) -> float:
        """Return the interval, or the one before if it cannot be read."""
        try:
            seconds = self._seconds()
        except Exception as exc:  # noqa: BLE001
            self._note(exc, self._unknown)
            return self.interval
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


class PeriodicThread:
    """A thread that runs its tasks, in their order, each when it is due.

    The interval of a task is from start to start. After a longer run the next
    one starts :data:`REST` seconds after its end; missed runs are skipped. The
    thread ends with the main thread: without it this process would take nodes
    and instances that no thread serves.
    """

    def __init__(self, name: str, tasks: Mapping[str, Schedule],
                 service: threading.Thread | None = None,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self.tasks = {task: PeriodicTask(task, *schedule)
                      for task, schedule in tasks.items()}
        self._service = service or threading.main_thread()
        self._clock = clock
        self._stopped, self._woken = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None:
            self._stopped, self._woken = threading.Event(), threading.Event()
            self._thread = threading.Thread(
                target=self._run, args=(self._stopped, self._woken),
                name=f'ironic-multihost-{self._name}', daemon=True)
            self._thread.start()

    def wake(self, task: str) -> None:
        """Run a task soon, once for all calls but those during its run."""
        self.tasks[task].woken.set()
        self._woken.set()

    def stop(self) -> None:
        """Start no further run; do not wait for the one in progress."""
        self._stopped.set()
        self._woken.set()
        self._thread = None

    def run_due(self) -> None:
        """Run the due tasks that are not running."""
        for one in self.tasks.values():
            if self._stopped.is_set():
                return
            now = self._clock()
            if one.is_due(now):
                one.run(now)

    def _pause(self, stopped: threading.Event, woken: threading.Event
               ) -> bool:
        """Wait for the next run; return whether the thread was stopped."""
        tasks = self.tasks.values()
        if not stopped.wait(min(REST, *(one.interval for one in tasks))):
            now = self._clock()
            woken.wait(min(one.wait(now) for one in tasks))
            woken.clear()
        return stopped.is_set()

    def _run(self, stopped: threading.Event, woken: threading.Event) -> None:
        for one in self.tasks.values():
            one.plan(self._clock())
        while not self._pause(stopped, woken):
            if not self._service.is_alive():
                LOG.error('The main thread of nova-compute has ended, and '
                          'the process has not: kill it and start it again. '
                          'Its %s ends here.', self._name)
                return
            self.run_due()
