# SPDX-License-Identifier: Apache-2.0

"""When a failed or awaited operation is tried again."""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses

#: Seconds until Ironic is asked again whether it has deployed.
POLL = 10

#: Seconds until what has failed is tried again: at first, and at most.
FIRST, LONGEST = 10, 300


@dataclasses.dataclass(frozen=True)
class Backoff:
    """When one operation is tried again.

    :param until: not before, in seconds of a monotonic clock.
    :param seconds: length of the pause.
    :param silent: it failed because a service did not answer.
    """

    until: float
    seconds: float
    silent: bool = False


def longer(last: Backoff | None, silent: bool) -> float:
    """Return the seconds of the pause after a failure.

    The pause grows only while services answer, so that work goes on soon after
    an outage.

    :param last: the pause before; None for the first failure.
    :param silent: it failed because a service did not answer.
    """
    return FIRST if last is None or last.silent or silent else min(
        2 * last.seconds, LONGEST)


def due(pauses: Mapping[str, Backoff], uuids: Set[str], now: float,
        probes: int) -> set[str]:
    """Return the operations to try now.

    Of those that failed because a service did not answer only a few are tried,
    the longest waiting first: they tell whether it answers again.

    :param probes: how many these are.
    """
    over = {uuid for uuid in uuids
            if uuid not in pauses or now >= pauses[uuid].until}
    silent = sorted(
        (uuid for uuid in over if uuid in pauses and pauses[uuid].silent),
        key=lambda uuid: (pauses[uuid].until, uuid))
    return over - set(silent[probes:])


def answered(pauses: Mapping[str, Backoff], now: float) -> dict[str, Backoff]:
    """Return the pauses after a service has answered: silent ones are over."""
    return {uuid: Backoff(now, pause.seconds) if pause.silent else pause
            for uuid, pause in pauses.items()}


def kept(pauses: Mapping[str, Backoff], seen: Mapping[str, Backoff],
         known: Set[str]) -> dict[str, Backoff]:
    """Return the pauses of all known operations and of new ones.

    Pauses that began after the instances were read are kept, since the read
    does not show them.

    :param pauses: uuid -> its pause, as they are now.
    :param seen: the pauses before the instances were read.
    :param known: uuids of all operations that were found.
    """
    return {uuid: pause for uuid, pause in pauses.items()
            if uuid in known or seen.get(uuid) is not pause}
