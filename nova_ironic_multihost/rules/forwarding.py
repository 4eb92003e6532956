# SPDX-License-Identifier: Apache-2.0

"""What becomes of the requests in the RPC queue of a dead compute service.

Only builds are handed on: nothing else says what is to be built. An operation
on an instance that has moved is no longer wanted
(:mod:`.engine.builds.guard`); all other requests wait until the compute
service is back.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum
import typing

from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.lost_builds import SentBuild
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

#: Seconds for which messages may be held. RabbitMQ closes a channel that has
#: held one for 30 minutes (its consumer_timeout).
HOLDING = 1200

#: Seconds until a queue is read again to which something went back: when it
#: goes back for the first time, and at most.
PAUSE, LONGEST_PAUSE = 30, 86400

#: Seconds for which a build must have been nowhere until it is given up. Its
#: message may still come: conductors allocate all servers of one request
#: before they send the first; and what was sent to a host that is frozen or
#: without power is in no queue until RabbitMQ misses its heartbeats, some
#: three minutes.
GRACE = 600


class RequestKind(enum.Enum):
    """What a request asks for.

    :cvar BUILD: a build.
    :cvar OPERATION: an operation that the compute service refuses for an
        instance that has moved.
    :cvar OTHER: anything else, or a request that was not understood.
    """

    BUILD = 'build'
    OPERATION = 'operation'
    OTHER = 'other'


@dataclasses.dataclass(frozen=True)
class QueuedRequest:
    """A request that was taken from a queue and not yet acknowledged.

    :param kind: type of the request.
    :param instance: uuid of its instance, or None.
    :param node: uuid of the node that a build is for, or None.
    :param returns: how often RabbitMQ says that it went back; 0 if unknown.
    :param handle: identifies it in the queue.
    :param arguments: the arguments as they were sent, by name. Never logged: a
        build contains passwords.
    """

    kind: RequestKind
    instance: str | None = None
    node: str | None = None
    returns: int = 0
    handle: typing.Any = dataclasses.field(
        default=None, compare=False, repr=False)
    arguments: Mapping[str, typing.Any] = dataclasses.field(
        default_factory=dict, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class RequestFacts:
    """Facts of this moment about a request.

    Those of the node are set for builds only.

    :param state: the instance as nova has it, or None.
    :param owner: host of the record of the node, or None.
    :param live: the owner is up.
    :param dead: the instances of the owner may be taken over
        (:func:`.takeover.eligible`).
    :param choice: the member that the ring prefers for the node, or None.
    :param attempts: how often the build was begun and not ended; for copies.
    """

    state: InstanceState | None
    owner: HostKey | None = None
    live: bool = False
    dead: bool = False
    choice: HostKey | None = None
    attempts: int = 0


class Action(enum.Enum):
    """What is done with a request.

    :cvar HAND_ON: send it to another host, then acknowledge it.
    :cvar DROP: acknowledge it.
    :cvar KEEP: leave it for the compute service.
    """

    HAND_ON = 'hand on'
    DROP = 'drop'
    KEEP = 'keep'


@dataclasses.dataclass(frozen=True)
class Disposition:
    """The action for one request.

    :param host: the host to hand it on to.
    :param copy: hand it on as a copy (:mod:`.backup_copies`).
    """

    action: Action
    host: HostKey | None = None
    copy: bool = False


_DROP = Disposition(Action.DROP)
_KEEP = Disposition(Action.KEEP)


def judge(
    request: QueuedRequest, home: HostKey, situation: RequestFacts
) -> Disposition:
    """Return the disposition of a request in the queue of a dead host.

    A build goes to the host that has the node, or is to have it, if that host
    would accept it (:func:`.builds.outdated`). A build that was begun becomes
    a copy (:mod:`.backup_copies`). A request that the dead host itself would
    refuse is dropped. All else is kept.

    :param home: the dead host.
    """
    state = situation.state
    if (
        request.kind is RequestKind.OTHER
        or request.instance is None
        or state is None
    ):
        return _KEEP
    if request.kind is RequestKind.OPERATION:
        # It may be for what is left of one that is deleted.
        return (_DROP if not state.deleted
                and builds.elsewhere(state, home) else _KEEP)
    return _judge_build(request, state, home, situation)


def _judge_build(request: QueuedRequest, state: InstanceState, home: HostKey,
                 situation: RequestFacts) -> Disposition:
    if state.deleted:
        # Who owns the node frees it.
        return _DROP
    if goes_on(request, state):
        # This may be the last there is of what it was asked for with, and
        # whoever has it now may have to begin it again.
        return Disposition(Action.HAND_ON, state.host_key, copy=True)
    # Whoever gets it asks placement, and more than once.
    if builds.outdated(state, request.node, home, allocated=lambda: True):
        return _DROP
    if request.node is None or state.host_key is not None:
        # The dead host had claimed another node for it.
        return _KEEP
    if situation.owner is not None and situation.live:
        return Disposition(Action.HAND_ON, situation.owner)
    if situation.choice is not None and (
            situation.owner is None or situation.dead):
        # Who cannot have the node has the build scheduled again.
        return Disposition(Action.HAND_ON, situation.choice)
    return _KEEP


def goes_on(request: QueuedRequest, state: InstanceState) -> bool:
    """Whether a build was begun on the node that it was sent for."""
    return (state.host_key is not None and state.vm_state == 'building'
            and state.node == request.node)


def reader(preferences: ring.Preferences, host: HostKey) -> HostKey | None:
    """Return the member that reads the queue of a dead host, or None."""
    ring_of_all = preferences.ring
    return ring_of_all.host_for(host) if ring_of_all is not None else None


def returned(consumers: int, held: int) -> bool:
    """Whether another process reads a queue: its host is back.

    Quorum queues count each held message as a consumer, classic ones do not.
    So as many consumers as messages may mean either.

    :param consumers: number that RabbitMQ says.
    :param held: messages that this process holds.
    """
    return consumers > held or 0 < consumers < held


def pause(held: Iterable[QueuedRequest]) -> float:
    """Return the seconds for which a queue is left alone.

    RabbitMQ drops a message that went back to a quorum queue too often, 20
    times by default since 4.0. The message says how often that was, so pauses
    grow whichever host reads. Classic queues do not count.

    :param held: messages that go back to it now; without any it is 0.
    """
    returns = max((request.returns for request in held), default=None)
    if returns is None:
        return 0
    return min(PAUSE * 2.0 ** min(returns, 20), LONGEST_PAUSE)


def overdue(since: Mapping[SentBuild, float], found: Set[str], now: float
            ) -> list[SentBuild]:
    """Return the builds that have waited too long.

    The queue of their node's compute service has been read to its end all that
    time, and they were nowhere.

    :param since: build -> when it was first seen to wait.
    :param found: uuids of the instances whose request is held or was handed
        on.
    :param now: this moment, by the same clock.
    """
    return [build for build, first in since.items()
            if build.instance not in found and now - first >= GRACE]
