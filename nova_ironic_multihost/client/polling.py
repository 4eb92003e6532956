# SPDX-License-Identifier: Apache-2.0

"""Looks again and again, for as long as somebody is ready to wait.

Clock and sleep may be replaced in a test.
"""

from collections.abc import Callable
from collections.abc import Iterator
import time
import typing

_Seen = typing.TypeVar('_Seen')

#: The least seconds between two looks.
PAUSE = 2.0


def looks(read: Callable[[], _Seen], seconds: float,
          clock: Callable[[], float] = time.monotonic,
          sleep: Callable[[float], object] = time.sleep,
          least: int = 1) -> Iterator[tuple[float, _Seen]]:
    """Look at once, and then until the time is over or nobody asks for more.

    :param read: looks once
    :param seconds: how long; 0 looks once
    :param least: so many looks there are, however long each of them takes
    :returns: (seconds since the beginning, what was read), again and again
    """
    began = clock()
    while True:
        asked = clock()
        seen = read()
        now = clock()
        yield now - began, seen
        least -= 1
        pause = max(PAUSE, now - asked)
        left = began + seconds - clock()
        if left <= 0 and least <= 0:
            return
        # A large cloud is not to be asked all the time.
        sleep(min(left, pause) if left > 0 else PAUSE)


def patiently(act: Callable[[], _Seen], seconds: float,
              passing: tuple[type[Exception], ...],
              tell: Callable[[Exception], object] = lambda error: None,
              ) -> _Seen:
    """Do something, again and again while it fails, until the time is over.

    :param act: does it
    :param seconds: how long; 0 tries once
    :param passing: failures that may pass; any other one ends it at once
    :param tell: told of failures after which it is tried again, of one that
        says the same as the one before only once
    :returns: what it returns
    :raises Exception: the last failure
    """
    failures: list[Exception] = []

    def attempt() -> tuple[_Seen, ...]:
        try:
            return (act(),)
        except passing as error:
            failures.append(error)
            return ()

    for _, done in looks(attempt, seconds):
        if done:
            return done[0]
        if seconds and [str(e) for e in failures[-2:-1]] != [
                str(failures[-1])]:
            tell(failures[-1])
    raise failures[-1]
