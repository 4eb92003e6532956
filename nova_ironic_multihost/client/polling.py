# SPDX-License-Identifier: Apache-2.0

"""Repeat a read or an action until it succeeds or the time is over."""

from collections.abc import Callable
from collections.abc import Iterator
import time
import typing

_Seen = typing.TypeVar('_Seen')

#: The least seconds between two reads.
PAUSE = 2.0


def looks(read: Callable[[], _Seen], seconds: float,
          clock: Callable[[], float] = time.monotonic,
          sleep: Callable[[float], object] = time.sleep,
          least: int = 1) -> Iterator[tuple[float, _Seen]]:
    """Yield (seconds since the beginning, result of a read) repeatedly.

    :param read: reads once
    :param seconds: at most; 0 reads once
    :param least: the least number of reads, even if the time is over
    """
    began = clock()
    while True:
        read_began = clock()
        seen = read()
        now = clock()
        yield now - began, seen
        least -= 1
        # Half of the time at most is spent on requests.
        pause = max(PAUSE, now - read_began)
        left = began + seconds - clock()
        if left <= 0 and least <= 0:
            return
        sleep(min(left, pause) if left > 0 else PAUSE)


def patiently(act: Callable[[], _Seen], seconds: float,
              passing: tuple[type[Exception], ...],
              tell: Callable[[Exception], object] = lambda error: None,
              ) -> _Seen:
    """Call ``act`` until it succeeds or the time is over; return its result.

    :param seconds: at most; 0 tries once
    :param passing: transient errors; any other error ends the retries
    :param tell: called with an error before a retry, unless its text is that
        of the error before
    :raises Exception: the last error
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
