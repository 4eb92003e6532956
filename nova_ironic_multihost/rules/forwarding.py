# SPDX-License-Identifier: Apache-2.0

"""What becomes of the messages in the queue of a dead compute service.

Pure. The *queue* is the queue of RabbitMQ from which that compute service
would read what it is asked for. Only builds are handed on: the message is all
that knows what is to be built. What is asked of an instance that has moved is
no longer wanted, see :mod:`nova_ironic_multihost.engine.builds.guard`; all
else waits there until the compute service is back.
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
    """What a message asks for.

    :cvar BUILD: a build.
    :cvar OPERATION: something that the compute service does not do for an
        instance that has moved.
    :cvar OTHER: anything else, or it was not understood.
    """

    BUILD = 'build'
    OPERATION = 'operation'
    OTHER = 'other'


@dataclasses.dataclass(frozen=True)
class QueuedRequest:
    """A message that was taken from a queue and not acknowledged.

    :param kind: what it asks for.
    :param instance: uuid of the instance that it is about, or None.
    :param node: uuid of the node that a build is for, or None.
    :param returns: how often RabbitMQ says that it was taken and came back;
        0 if it does not say.
    :param handle: what the queue knows it by.
    :param arguments: of what it asks for, as they were sent, by their names.
        They are in no log: a build has passwords in it.
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
    """What is known at this moment about what a message asks for.

    What is said of the node is needed for builds only.

    :param state: the instance as nova has it, None if it does not have it.
    :param owner: whose the record of the node is, None if it has none.
    :param live: whether that one is up.
    :param dead: whether what it had may be taken from it, see
        :func:`.takeover.eligible`.
    :param choice: the member that the ring prefers for the node, None if
        nobody may have it.
    :param attempts: how often the build was begun and not ended; needed for
        copies only.
    """

    state: InstanceState | None
    owner: HostKey | None = None
    live: bool = False
    dead: bool = False
    choice: HostKey | None = None
    attempts: int = 0


class Action(enum.Enum):
    """What is done with a message.

    :cvar HAND_ON: it goes to another host, and is acknowledged then.
    :cvar DROP: it is acknowledged.
    :cvar KEEP: it is not; the compute service finds it when it is back.
    """

    HAND_ON = 'hand on'
    DROP = 'drop'
    KEEP = 'keep'


@dataclasses.dataclass(frozen=True)
class Disposition:
    """What is done with a message.

    :param host: to which it goes, if it does.
    :param copy: whether it goes there as a copy, see :mod:`.backup_copies`.
    """

    action: Action
    host: HostKey | None = None
    copy: bool = False


_DROP = Disposition(Action.DROP)
_KEEP = Disposition(Action.KEEP)


def judge(
    request: QueuedRequest, home: HostKey, situation: RequestFacts
) -> Disposition:
    """Say what to do with a message from the queue of a dead host.

    A build goes to whom it would be admitted by (:func:`.builds.outdated`)
    and who has the node, or is to have it. One that was begun becomes a copy
    (:mod:`.backup_copies`). What the dead host itself would not do any more is
    dropped. Whatever is not sure is kept.

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
    """Whether a build was begun on the node that it was sent for.

    :param request: that asks for it.
    :param state: of its instance.
    """
    return (state.host_key is not None and state.vm_state == 'building'
            and state.node == request.node)


def reader(preferences: ring.Preferences, host: HostKey) -> HostKey | None:
    """Return the member that reads the queue of a dead host, or None.

    :param host: the dead host.
    """
    ring_of_all = preferences.ring
    return ring_of_all.host_for(host) if ring_of_all is not None else None


def returned(consumers: int, held: int) -> bool:
    """Whether somebody else reads a queue: its host is back.

    Quorum queues count each message that is held as a consumer, classic ones
    do not. So as many consumers as messages may be either.

    :param consumers: what RabbitMQ says.
    :param held: messages that are held by whoever asks.
    """
    return consumers > held or 0 < consumers < held


def pause(held: Iterable[QueuedRequest]) -> float:
    """Return the seconds for which a queue is left alone.

    RabbitMQ drops what has come back to a quorum queue too often: 20 times
    by default since 4.0. It says on the message how often that was, so that
    the pauses become longer whoever reads. Classic queues do not count.

    :param held: messages that go back to it now; 0 if there are none.
    """
    returns = max((request.returns for request in held), default=None)
    if returns is None:
        return 0
    return min(PAUSE * 2.0 ** min(returns, 20), LONGEST_PAUSE)


def overdue(since: Mapping[SentBuild, float], found: Set[str], now: float
            ) -> list[SentBuild]:
    """Return the builds that have waited too long, as far as is known.

    Whose node is recorded on a compute service whose queue has been read to
    its end all that time are found nowhere.

    :param since: build -> when it was first seen to wait, of those that have
        waited ever since.
    :param found: uuids of the instances whose message is held or was handed
        on.
    :param now: this moment, by the same clock.
    """
    return [build for build, first in since.items()
            if build.instance not in found and now - first >= GRACE]
