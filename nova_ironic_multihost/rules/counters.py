# SPDX-License-Identifier: Apache-2.0

"""What a compute service counts, and times in monotonic seconds."""

import dataclasses
import enum

from nova_ironic_multihost.rules.ownership import Reason


class Event(enum.Enum):
    """An event that is counted from the start of the process."""

    ADOPTED = 'a free node came from a compute service that is down'
    PULLED = 'a free node came from one that is up'
    MOVE_FAILED = 'the record of a free node could not be moved'
    TAKEN_OVER = 'an instance was taken over'
    TAKEOVER_FAILED = 'a takeover has ended with an unknown result'
    PEER_POLL_FAILED = 'a peer poll has failed'
    REFUSED = 'an operation of a moved instance was refused'


class Work(enum.Enum):
    """Work that is repeated."""

    LISTING = 'asking Ironic what has changed'
    AUDIT = 'an audit of all nodes'
    PEER_POLL = 'a peer poll'
    SERVICES = 'reading the compute services from nova'


class Pending(enum.Enum):
    """What an unfinished takeover waits for."""

    TURN = 'nodes with instances that wait to be taken over'
    REST = 'instances with an interrupted operation'


class Wait(enum.Enum):
    """What had to wait; the value is its label."""

    BUILD = 'build'
    DELETE = 'delete'
    MOVE = 'move'
    TAKEOVER = 'takeover'


#: Reason of a free node that came to this host -> the event to count.
CAME = {Reason.ADOPTED: Event.ADOPTED, Reason.PULLED: Event.PULLED}


@dataclasses.dataclass(frozen=True)
class RunStats:
    """Times of one kind of work; the last success took ``seconds``."""

    #: Last progress: a begin, a step or an end, failed or not.
    sign: float | None = None
    #: Last end, failed or not.
    ended: float | None = None
    succeeded: float | None = None
    seconds: float | None = None

    def seen(self, now: float) -> 'RunStats':
        """Return this after progress."""
        return dataclasses.replace(self, sign=now)

    def over(self, begun: float, now: float, done: bool) -> 'RunStats':
        """Return this after the end of a run."""
        if done:
            return RunStats(now, now, now, now - begun)
        return dataclasses.replace(self, sign=now, ended=now)
