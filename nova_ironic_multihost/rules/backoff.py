# SPDX-License-Identifier: Apache-2.0

"""When a failed or pending task is tried again."""

from collections.abc import Mapping
from collections.abc import Set
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


def longer(last: Backoff | None, silent: bool) -> float:
    """Return the seconds until the next try, which grow only with answers."""
    return FIRST if last is None or last.silent or silent else min(
        2 * last.seconds, LONGEST)


def due(pauses: Mapping[str, Backoff], uuids: Set[str], now: float,
        probes: int) -> set[str]:
    """Return the tasks to try now."""
    # Of those without an answer ``probes`` show if the service is back.
    over = {uuid for uuid in uuids
            if uuid not in pauses or now >= pauses[uuid].until}
    silent = sorted(
        (uuid for uuid in over if uuid in pauses and pauses[uuid].silent),
        key=lambda uuid: (pauses[uuid].until, uuid))
    return over - set(silent[probes:])


def answered(pauses: Mapping[str, Backoff], now: float) -> dict[str, Backoff]:
    """Return the backoffs after an answer: tasks without one are due."""
    return {uuid: Backoff(now, pause.seconds) if pause.silent else pause
            for uuid, pause in pauses.items()}


def kept(pauses: Mapping[str, Backoff], seen: Mapping[str, Backoff],
         known: Set[str]) -> dict[str, Backoff]:
    """Return the backoffs of known tasks, and those begun since ``seen``."""
    return {uuid: pause for uuid, pause in pauses.items()
            if uuid in known or seen.get(uuid) is not pause}
