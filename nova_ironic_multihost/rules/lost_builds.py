# SPDX-License-Identifier: Apache-2.0

"""Which builds that were sent to this host will not arrive any more.

The scheduler allocates a node to an instance and sends a message. Until the
node is claimed, only that message knows what is to be built. It is lost when a
process with it is killed, or when the message broker loses it. All that shows
then is an instance to be built, without a host.
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

    :param instance: uuid.
    :param node: uuid of the node that is allocated to it.
    """

    instance: str
    node: str


@dataclasses.dataclass(frozen=True)
class Absence:
    """Since when a build is missing, in seconds of a monotonic clock.

    :param seen: it was seen and had not arrived.
    :param mine: the node is this host's; minus infinity if it was so at the
        start.
    """

    seen: float
    mine: float


def observe(before: Mapping[SentBuild, Absence], absent: Iterable[SentBuild],
            mine: Mapping[str, float], now: float) -> dict[SentBuild, Absence]:
    """Note which builds have not arrived.

    :param before: result of the last call.
    :param absent: builds of nodes of this host that have not arrived.
    :param mine: node uuid -> since when it is this host's.
    """
    return {build: dataclasses.replace(
        before.get(build, Absence(now, now)), mine=mine[build.node])
        for build in absent}


def lost(
    absences: Mapping[SentBuild, Absence], now: float
) -> frozenset[SentBuild]:
    """Return the builds that will not arrive any more.

    :param absences: result of :func:`observe`.
    """
    return frozenset(
        build for build, since in absences.items()
        if now - since.seen >= (
            PATIENCE if since.seen - since.mine >= PATIENCE
            else PATIENCE_MOVED))
