# SPDX-License-Identifier: Apache-2.0

"""Threads of the simulation: greenlets, which go on when a rule says so."""

import types
import weakref

import greenlet


def get_ident():
    """As threading.get_ident, but no later thread has the same."""
    return vars(greenlet.getcurrent()).setdefault('ident', object())


def pause():
    """Let the others go on."""
    greenlet.getcurrent().parent.switch()


class Lock:
    """A lock of a process: who waits for it lets the others go on.

    Locks are taken in the order that the docstring of service.py tells.

    :param rank: a greenlet waits for it only with locks of lower ranks.
    """

    #: Greenlet -> the ranks of its locks.
    _ranks = weakref.WeakKeyDictionary()

    def __init__(self, rank):
        self.held = False
        self._rank = rank
        self._holder = None

    def acquire(self, blocking=True):
        mine = self._ranks.setdefault(greenlet.getcurrent(), [])
        if blocking and any(rank >= self._rank for rank in mine):
            raise AssertionError(
                f'It waits for lock {self._rank}, and has {mine}')
        while self.held and blocking:
            pause()
        if self.held:
            return False
        self.held, self._holder = True, mine
        mine.append(self._rank)
        return True

    def release(self):
        self.held = False
        self._holder.remove(self._rank)

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


class Local:
    """As threading.local, for each greenlet, with the defaults of a class."""

    def __init__(self, defaults=None):
        object.__setattr__(self, '_each', weakref.WeakKeyDictionary())
        object.__setattr__(self, '_defaults', defaults)

    def __getattr__(self, name):
        try:
            return self._each[greenlet.getcurrent()][name]
        except KeyError:
            return getattr(self._defaults, name)

    def __setattr__(self, name, value):
        self._each.setdefault(greenlet.getcurrent(), {})[name] = value


class Event:
    """As threading.Event, by the clock of a process."""

    def __init__(self, clock):
        self._clock = clock
        self._set = False

    def is_set(self):
        return self._set

    def set(self):
        self._set = True

    def clear(self):
        self._set = False

    def wait(self, timeout):
        until = self._clock() + timeout
        while not self._set and self._clock() < until:
            pause()
        return self._set


class Threads:
    """The module threading, to engine/base/periodic.py of one process."""

    def __init__(self, clock):
        self._clock = clock
        self.running = []

    def Event(self):
        return Event(self._clock)

    def Thread(self, target, args=(), **named):
        one = greenlet.greenlet(lambda: target(*args))
        return types.SimpleNamespace(start=lambda: self.running.append(one))

    def main_thread(self):
        return types.SimpleNamespace(is_alive=lambda: True)

    def go_on(self, steps):
        """Let each thread go on for some steps."""
        for one in self.running:
            for _ in range(steps):
                if not one.dead:
                    one.switch()
        self.running = [one for one in self.running if not one.dead]
