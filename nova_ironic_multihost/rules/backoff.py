# SPDX-License-Identifier: Apache-2.0

"""When what has failed, or is awaited, is taken up again."""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses

#: Seconds until Ironic is asked again whether it has deployed.
POLL = 10

#: Seconds until what has failed is tried again: at first, and at most.
FIRST, LONGEST = 10, 300


@dataclasses.dataclass(frozen=True)
class Backoff:
    """When something is to be taken up again.

    :param until: not before, in seconds of a monotonic clock.
    :param seconds: how long the pause is.
    :param silent: it failed as a service did not answer.
    """

    until: float
    seconds: float
    silent: bool = False


def longer(last: Backoff | None, silent: bool) -> float:
    """Return the seconds of the pause after a failure.

    It grows only while there are answers: what an outage has ended is to go
    on soon after that.

    :param last: the pause before, if this is not the first failure.
    :param silent: it failed as a service did not answer.
    """
    return FIRST if last is None or last.silent or silent else min(
        2 * last.seconds, LONGEST)


def due(pauses: Mapping[str, Backoff], uuids: Set[str], now: float,
        probes: int) -> set[str]:
    """Return what is to be taken up now.

    Of what failed as a service did not answer only a few, which were tried
    longest ago: they tell whether it does again.

    :param uuids: what there is to do.
    :param probes: how many those are.
    """
    over = {uuid for uuid in uuids
            if uuid not in pauses or now >= pauses[uuid].until}
    silent = sorted(
        (uuid for uuid in over if uuid in pauses and pauses[uuid].silent),
        key=lambda uuid: (pauses[uuid].until, uuid))
    return over - set(silent[probes:])


def answered(pauses: Mapping[str, Backoff], now: float) -> dict[str, Backoff]:
    """Return the pauses when something has not failed for silence.

    :param now: this moment; what waited for an answer is due.
    """
    return {uuid: Backoff(now, pause.seconds) if pause.silent else pause
            for uuid, pause in pauses.items()}


def kept(pauses: Mapping[str, Backoff], seen: Mapping[str, Backoff],
         known: Set[str]) -> dict[str, Backoff]:
    """Return the pauses of all that is known, and of what came meanwhile.

    What was looked up while somebody was at work on it does not show what he
    has left, so a pause that began since the look lasts.

    :param pauses: uuid -> its pause, as they are now.
    :param seen: the same, before it was looked up what is known.
    :param known: uuids of what there is to do, for all that is known.
    """
    return {uuid: pause for uuid, pause in pauses.items()
            if uuid in known or seen.get(uuid) is not pause}
