# SPDX-License-Identifier: Apache-2.0

"""When a failed or pending task is tried again."""

from collections import abc
import dataclasses

#: Seconds between two checks whether Ironic has deployed.
POLL = 10

#: Seconds until a failed task is tried again: the first time, and at most.
FIRST, LONGEST = 10, 300


@dataclasses.dataclass(frozen=True)
class Backoff:
    """When a task is tried again; ``silent``: a service did not answer."""

    until: float
    seconds: float
    silent: bool = False


def due(backoffs: abc.Mapping[str, Backoff], now: float, silence: bool,
        probes: int) -> set[str]:
    """Return the tasks that are due for another try.

    :param silence: whether the last try of any task had no answer. Then only
        some of the tasks without an answer show whether there is one again.
    :param probes: how many.
    """
    ready = sorted((uuid for uuid, one in backoffs.items()
                    if now >= one.until),
                   key=lambda uuid: backoffs[uuid].until)
    silent = [uuid for uuid in ready if backoffs[uuid].silent]
    return set(ready).difference(silent[probes:] if silence else ())


def longer(last: Backoff | None, silent: bool) -> float:
    """Return the seconds until the next try, which grow only with answers."""
    return FIRST if last is None or last.silent or silent else min(
        2 * last.seconds, LONGEST)
