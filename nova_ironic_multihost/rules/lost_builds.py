# SPDX-License-Identifier: Apache-2.0

"""Which builds that were sent to this host will not come any more.

Pure. The scheduler allocates a node to an instance and sends a message; until
the node is claimed that message is all that knows what is to be built. It may
have been in the memory of a process that was killed, or in a message broker
that was started anew. Nobody tells: all that is seen is an instance that is to
be built and that is on no host.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses

#: Seconds for which a build must not have come, though all that waited in the
#: queue of the host has, until it is given up. nova's conductor allocates all
#: servers of a request before it sends the first of them; one that comes after
#: all is carried out.
PATIENCE = 30

#: The same if the node was not this host's all the time: the build may have
#: been sent to the host that had the node, and wait there for its turn.
PATIENCE_MOVED = 1800


@dataclasses.dataclass(frozen=True)
class SentBuild:
    """A build that has a node and no host yet.

    :param instance: its uuid.
    :param node: uuid of the node that is allocated to it.
    """

    instance: str
    node: str


@dataclasses.dataclass(frozen=True)
class Absence:
    """Since when something has been so, in seconds of a monotonic clock.

    :param seen: the build was seen and had not come.
    :param mine: the node was this host's; minus infinity if it was when the
        service started.
    """

    seen: float
    mine: float


def observe(before: Mapping[SentBuild, Absence], absent: Iterable[SentBuild],
            mine: Mapping[str, float], now: float) -> dict[SentBuild, Absence]:
    """Note which builds have not come.

    :param before: what this returned the last time.
    :param absent: builds of nodes of this host that have not come.
    :param mine: node uuid -> since when it is this host's.
    """
    return {build: dataclasses.replace(
        before.get(build, Absence(now, now)), mine=mine[build.node])
        for build in absent}


def lost(
    absences: Mapping[SentBuild, Absence], now: float
) -> frozenset[SentBuild]:
    """Say which builds will not come any more.

    :param absences: what :func:`observe` returned.
    """
    return frozenset(
        build for build, since in absences.items()
        if now - since.seen >= (
            PATIENCE if since.seen - since.mine >= PATIENCE
            else PATIENCE_MOVED))
