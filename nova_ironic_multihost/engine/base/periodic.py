# SPDX-License-Identifier: Apache-2.0

"""Threads that call functions every few seconds.

Tasks that may wait for the same services share a thread: one that hangs delays
only tasks that would hang as well.
"""

from collections import abc
import contextlib
import math
import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: The least seconds between the end of a run and the start of the next.
REST = 0.5

#: What a task calls, and what returns its seconds from start to start.
Schedule = tuple[abc.Callable[[], object], abc.Callable[[], float]]


def start_thread(name: str, target: abc.Callable[..., object], *args: object
                 ) -> bool:
    """Call a function in a new thread; return whether there is one."""
    try:
        threading.Thread(target=target, args=args, daemon=True,
                         name=f'ironic-multihost-{name}').start()
    except RuntimeError as exc:
        LOG.warning('Threads of nova-compute are used up: %s.', exc)
        return False
    return True


class PeriodicTask:
    """A function that a thread calls every few seconds.

    :param act: its errors are logged, once for each type until it succeeds.
    :param seconds: returns the interval; called at the start of each run.
    """

    def __init__(self, name: str, act: abc.Callable[[], object],
                 seconds: abc.Callable[[], float]) -> None:
        self._name = name
        self._act = act
        self._seconds = seconds
        self.interval = REST
        #: When it runs next; infinity before it is planned.
        self.due = math.inf
        # Types of errors since the last success.
        self._failures: set[type[Exception]] = set()

    def plan(self, now: float) -> None:
        """Count the seconds until the next run from now."""
        # While nova.conf has an error the last interval stays. The tasks that
        # read it log the error.
        with contextlib.suppress(Exception):
            self.interval = self._seconds()
        self.due = now + self.interval

    def run(self) -> None:
        """Run once; raises nothing."""
        try:
            self._act()
        except Exception as exc:
            if type(exc) not in self._failures:
                self._failures.add(type(exc))
                LOG.warning('The %(name)s failed: %(exc)s. It is tried again '
                            'until it succeeds.',
                            {'name': self._name, 'exc': exc}, exc_info=exc)
        else:
            self._failures.clear()


class PeriodicThread(threading.Thread):
    """A thread that runs its tasks, in their order, each when it is due.

    The interval of a task is from start to start. After a longer run the next
    one starts :data:`REST` seconds after its end; missed runs are skipped. The
    thread ends with the main thread: without it this process would take nodes
    and instances that no thread serves.
    """

    def __init__(self, name: str, tasks: abc.Mapping[str, Schedule],
                 service: threading.Thread | None = None,
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
        super().__init__(name=f'ironic-multihost-{name}', daemon=True)
        self.tasks = {task: PeriodicTask(task, *schedule)
                      for task, schedule in tasks.items()}
        self._service = service or threading.main_thread()
        self._clock = clock
        self._stopped, self._woken = threading.Event(), threading.Event()

    def wake(self, task: str) -> None:
        """Run a task soon, once for all calls but those during its run."""
        self.tasks[task].due = -math.inf
        self._woken.set()

    def stop(self) -> None:
        """Start no further run; do not wait for the one in progress."""
        self._stopped.set()
        self._woken.set()

    def run(self) -> None:
        """Run the tasks until :meth:`stop`."""
        tasks = self.tasks.values()
        for one in tasks:
            if one.due == math.inf:
                one.plan(self._clock())
        while not self._stopped.wait(
                min(REST, *(one.interval for one in tasks))):
            self._woken.wait(max(0, min(
                one.due for one in tasks) - self._clock()))
            self._woken.clear()
            if not self._service.is_alive():
                LOG.error('The main thread of nova-compute has ended, and '
                          'the process has not: kill it and start it again. '
                          'Its thread %s ends here.', self.name)
                return
            for one in tasks:
                now = self._clock()
                if now >= one.due and not self._stopped.is_set():
                    one.plan(now)
                    one.run()
