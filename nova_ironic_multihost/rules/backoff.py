# SPDX-License-Identifier: Apache-2.0

"""When a failed or pending task is tried again."""

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
