# SPDX-License-Identifier: Apache-2.0

"""What happens to requests in the RabbitMQ queue of a dead host, and backups.

Only builds are forwarded, as only the request says what to build. Operations
on a moved instance are dropped (engine/builds/guard.py). All others wait.
"""

from collections import abc
import dataclasses
import enum
import typing

from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules.takeover import Step

#: The most seconds to hold requests: RabbitMQ closes a channel that holds a
#: message for 30 minutes (its consumer_timeout).
HOLDING = 1200

#: First and longest pause, in seconds, before returned requests are read.
PAUSE, LONGEST_PAUSE = 30, 86400


class RequestKind(enum.Enum):
    """What a request asks for; a moved instance refuses an OPERATION."""

    BUILD = 'build'
    OPERATION = 'operation'
    OTHER = 'other'


@dataclasses.dataclass(frozen=True)
class QueuedRequest:
    """A request that was read from a queue and not acknowledged."""

    kind: RequestKind
    instance: str | None = None
    node: str | None = None
    #: How often it was returned to the queue; 0 if unknown.
    returns: int = 0
    #: The message; no two requests have the same.
    handle: typing.Any = dataclasses.field(default=None, repr=False)
    #: As sent. Never log them: builds contain passwords.
    arguments: abc.Mapping[str, typing.Any] = dataclasses.field(
        default_factory=dict, compare=False, repr=False)


@dataclasses.dataclass(frozen=True)
class RequestFacts:
    """Facts about a request; all but ``state`` are needed for builds only."""

    state: InstanceState | None
    owner: HostKey | None = None
    #: Whether the owner of the node is live.
    live: bool = False
    #: Whether the owner of the node is :func:`.takeover.eligible`.
    dead: bool = False
    #: The member that the ring prefers for the node.
    choice: HostKey | None = None
    #: How often the build began and did not finish.
    attempts: int = 0


class Action(enum.Enum):
    """What to do with a request: only KEEP leaves it unacknowledged."""

    HAND_ON = 'hand on'
    DROP = 'drop'
    KEEP = 'keep'


@dataclasses.dataclass(frozen=True)
class Disposition:
    """What to do with a request; ``copy`` means as a backup."""

    action: Action
    host: HostKey | None = None
    copy: bool = False


_DROP = Disposition(Action.DROP)
_KEEP = Disposition(Action.KEEP)


def judge(request: QueuedRequest, dead_host: HostKey, facts: RequestFacts
         ) -> Disposition:
    """Return what to do with a request in the queue of a dead host."""
    # One that the dead host would refuse is dropped; in doubt it is kept.
    state = facts.state
    if (
        request.kind is RequestKind.OTHER
        or request.instance is None
        or state is None):
        return _KEEP
    if request.kind is RequestKind.OPERATION:
        # It may clean up after a deleted instance.
        return (_DROP if not state.deleted
                and builds.elsewhere(state, dead_host) else _KEEP)
    return _judge_build(request, state, dead_host, facts)


def _judge_build(request: QueuedRequest, state: InstanceState,
                 dead_host: HostKey, facts: RequestFacts) -> Disposition:
    if state.deleted:
        # The owner of the node frees it.
        return _DROP
    if goes_on(request, state):
        # The new host may need this to begin the build again.
        return Disposition(Action.HAND_ON, state.host_key, copy=True)
    # The receiver asks placement, more than once.
    if builds.outdated(
            state, request.node, dead_host, allocated=lambda: True):
        return _DROP
    if request.node is None or state.host_key is not None:
        # The dead host had claimed another node for it.
        return _KEEP
    if facts.owner is not None and facts.live:
        return Disposition(Action.HAND_ON, facts.owner)
    if facts.choice is not None and (
            facts.owner is None or facts.dead):
        # A receiver that cannot have the node reschedules the build.
        return Disposition(Action.HAND_ON, facts.choice)
    return _KEEP


def goes_on(request: QueuedRequest, state: InstanceState) -> bool:
    """Return whether the build has begun on the node of the request."""
    return (state.host_key is not None and state.vm_state == 'building'
            and state.node == request.node)


def reader(preferences: ring.Preferences, host: HostKey) -> HostKey | None:
    """Return the member that reads the queue of a dead host, or None."""
    ring_of_all = preferences.ring
    return ring_of_all.host_for(host) if ring_of_all is not None else None


def host_is_back(consumers: int, held: int) -> bool:
    """Return whether another consumer reads the queue: its host is back."""
    # Quorum queues count each held message as a consumer, classic ones do not.
    return consumers > held or 0 < consumers < held


def pause(held: abc.Iterable[QueuedRequest]) -> float:
    """Return the seconds until a queue is read again; 0 without requests."""
    # RabbitMQ drops a message that was returned to a quorum queue too often
    # (20 times by default since 4.0, by all readers). Classic queues do not.
    returns = max((request.returns for request in held), default=None)
    if returns is None:
        return 0
    return min(PAUSE * 2.0 ** min(returns, 20), LONGEST_PAUSE)


# A compute service reads all waiting builds at once. Until a build is over, it
# holds a *backup* of the request unacknowledged in a queue of its own. If the
# process ends, RabbitMQ requeues the backups, and the next reader judges them
# by the instance in nova.

#: The most attempts of a build that end with its process: it may kill it.
BUILD_ATTEMPTS = 5

#: Looks at a build, at least ten seconds apart, until it is given up as it has
#: no backup: an ended process or another host may hold it.
LOOKS = 180

#: Provision states before nova tells Ironic to deploy; None: not reserved.
UNTOLD = frozenset({None, 'available'})


def judge_backup(copy: QueuedRequest, home: HostKey, facts: RequestFacts,
                 over: bool = False) -> Disposition:
    """Return what to do with a backup if no thread works on its build."""
    state = facts.state
    if copy.kind is not RequestKind.BUILD or copy.node is None:
        return Disposition(Action.KEEP)
    if state is None or state.deleted:
        return Disposition(Action.DROP)
    if state.host_key is None:
        if facts.attempts >= BUILD_ATTEMPTS:
            return Disposition(Action.DROP)
        disposition = judge(copy, home, facts)
        # The host does not get a build again that is ``over`` there.
        if over and disposition.host == home:
            return Disposition(Action.DROP)
        return disposition
    if not goes_on(copy, state):
        return Disposition(Action.DROP)
    # The host finishes the build, and may need the backup for that.
    if state.host_key == home:
        return Disposition(Action.KEEP)
    return Disposition(Action.HAND_ON, state.host_key, copy=True)


def retry_step(provision_state: str | None, looks: int, has_copy: bool,
               attempts: int) -> Step:
    """Return FAIL, AWAIT or REPEAT for a begun build that has no thread."""
    if provision_state not in UNTOLD or attempts >= BUILD_ATTEMPTS:
        return Step.FAIL
    if not has_copy:
        return Step.FAIL if looks > LOOKS else Step.AWAIT
    # At the first look its last request to Ironic may be on the way.
    return Step.REPEAT if looks > 1 else Step.AWAIT
