# SPDX-License-Identifier: Apache-2.0

"""Which builds that were sent to this host will not arrive any more.

Until a build claims its node only the scheduler's message says what to build.
Without it a building instance without a host remains.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

#: Seconds after all requests in the queue until a missing build is given up.
#: Conductors allocate all servers of a call before the first send. A build
#: that arrives later is carried out.
PATIENCE = 30

#: The same if the node is new here: the build may be in its old owner's queue.
PATIENCE_MOVED = 1800


@dataclasses.dataclass(frozen=True)
class SentBuild:
    """A build that has an allocation of a node and no host yet."""

    instance: str
    node: str


@dataclasses.dataclass(frozen=True)
class Absence:
    """Since when a build is missing and its node here (monotonic seconds)."""

    seen: float
    mine: float


def observe(before: Mapping[SentBuild, Absence], absent: Iterable[SentBuild],
            mine: Mapping[str, float], now: float) -> dict[SentBuild, Absence]:
    """Return the missing builds, with the times of the previous result."""
    return {build: dataclasses.replace(
        before.get(build, Absence(now, now)), mine=mine[build.node])
        for build in absent}


def lost(
    absences: Mapping[SentBuild, Absence], now: float
) -> frozenset[SentBuild]:
    """Return the builds that will not arrive any more."""
    return frozenset(
        build for build, since in absences.items()
        if now - since.seen >= (
            PATIENCE if since.seen - since.mine >= PATIENCE
            else PATIENCE_MOVED))
