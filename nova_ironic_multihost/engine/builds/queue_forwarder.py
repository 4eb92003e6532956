# SPDX-License-Identifier: Apache-2.0

"""Forwards builds that wait in the queues of dead compute services.

Every few seconds, in a thread of its own: a broker that does not answer holds
up nothing else. Of the members one reads the queue of a dead host, the one
that a ring of them names; two that see different members do no harm, as each
message goes to one of them.

What is not handed on is held for as long as that is allowed, and looked at
again each time: taking and giving back is counted, see
:func:`.rules.forwarding.pause`. Nothing depends on this process: what it holds
goes back when it ends.
"""

import collections
from collections.abc import Callable
import dataclasses
import threading
import time
import typing

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Queue
from nova_ironic_multihost.engine.base.ports import Queues
from nova_ironic_multihost.engine.builds import dead_host_builds
from nova_ironic_multihost.engine.builds import request_facts
from nova_ironic_multihost.engine.moves import peer_poll
from nova_ironic_multihost.rules import backup_copies
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)

#: The most messages of one queue that are held at a time.
HELD = 1000

#: Messages that are taken until it is asked again who is there.
STRETCH = 20

#: What is read of a host: its queue, and then its copies of builds.
KINDS = (False, True)

#: Seconds until it is looked again whether there is a queue that was not
#: there: RabbitMQ logs that as an error.
ABSENT = 60


class QueueKey(typing.NamedTuple):
    """What is read of a dead host.

    :param host: the host.
    :param copies: its copies of builds, not its queue.
    """

    host: HostKey
    copies: bool


@dataclasses.dataclass
class QueueReading:
    """A queue, or copies, being read. Only the forwarder's thread uses it.

    :ivar queue: the queue, open.
    :ivar opened: when it was opened.
    :ivar absent: when there was no such queue last, None if never.
    :ivar held: what was taken and neither handed on nor dropped.
    :ivar ended: since when each turn has come to its end; None if the last
        one did not.
    :ivar counts: what was done with messages in this turn.
    :ivar copies: the same of hosts that took no copy -> whether they have a
        queue for them.
    """

    queue: Queue
    opened: float
    absent: float | None = None
    held: list[QueuedRequest] = dataclasses.field(default_factory=list)
    ended: float | None = None
    counts: collections.Counter[Action] = dataclasses.field(
        default_factory=collections.Counter)
    copies: dict[HostKey, bool] = dataclasses.field(default_factory=dict)


class QueueNoAnswer(Exception):
    """nova does not say what a message is about."""


class QueueForwarder:
    """Reads the queues of dead hosts, again and again, from one thread.

    :param host: this host.
    :param queues: the queues of all hosts.
    :param auditor: what the last audit has found.
    :param looks: who is there, and who is dead.
    :param request: says what is known of a message.
    :param lost_builds: gives up builds that are found nowhere.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(
        self,
        host: str,
        queues: Queues,
        auditor: auditors.Auditor,
        looks: peer_poll.PeerPoller,
        requests: request_facts.RequestSorter,
        lost_builds: dead_host_builds.LostBuilds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host_key(host)
        self._queues = queues
        self._auditor = auditor
        self._peer_poller = looks
        self._lost = lost_builds
        self._request_sorter = requests
        self._clock = clock
        self._ending = threading.Event()
        self._said = self._said_forbidden = False
        self._readings: dict[QueueKey, QueueReading] = {}
        #: When what was given back may be read again.
        self._pauses: dict[QueueKey, float] = {}
        #: Builds that were handed on -> to which host.
        self._handed_on: dict[str, HostKey] = {}

    def end(self) -> None:
        """Take no more messages: the service is told to end."""
        self._ending.set()

    def once(self) -> None:
        """Read what there is in the queues that are this host's to read.

        :raises Exception: one of them cannot be read, the last that was
            tried; the others have been.
        """
        mine = self._mine()
        for box in [*self._readings]:
            if box.host not in mine:
                self._close(box)
        if mine and not self._queues.readable:
            self._say_unreadable()
            return
        failure = None
        for box in [QueueKey(host, kind) for host in sorted(mine)
                    for kind in KINDS]:
            try:
                self._read(box, mine[box.host])
            except QueueNoAnswer:
                # What was taken is held. It is the same for all of them.
                raise
            except Exception as exc:  # noqa: BLE001
                self._close(box)
                failure = exc
        self._give_up_lost()
        if failure is not None:
            raise failure

    def _give_up_lost(self) -> None:
        """Give up builds whose messages are in none of the queues."""
        read = self._read_to_the_end()
        now = self._clock()
        # What waits for a host that is down is there, until that is dead in
        # turn, and is not found there.
        handed_on = {uuid: host for uuid, host in self._handed_on.items()
                     if now - read.get(host, now) < forwarding.GRACE}
        held = {request.instance for reading in self._readings.values()
                for request in reading.held if request.instance is not None}
        waiting = self._lost.once(read, held | handed_on.keys())
        self._handed_on = {uuid: host for uuid, host in handed_on.items()
                           if uuid in waiting}

    def _read_to_the_end(self) -> dict[HostKey, float]:
        """Return since when all was read again and again that hosts have."""
        ended: dict[HostKey, list[float | None]] = {}
        for box, reading in self._readings.items():
            ended.setdefault(box.host, []).append(reading.ended)
        return {host: max(known) for host, since in ended.items()
                if len(known := [one for one in since if one is not None])
                == len(KINDS)}

    def _say_unreadable(self) -> None:
        if not self._said:
            self._said = True
            LOG.info('Builds that wait for a compute service that is dead '
                     'wait until it is back: only queues of RabbitMQ are '
                     'read by others.')

    def _say_forbidden(self, exc: Exception) -> None:
        if not self._said_forbidden:
            self._said_forbidden = True
            LOG.warning(
                'RabbitMQ does not let this compute service read what waits '
                'for one that is dead: %s. Builds wait until that is back, or '
                'end in ERROR. Give the account of nova the rights to '
                'configure, write and read queues named compute.* and '
                'compute-builds.*', exc)

    def _mine(self) -> dict[HostKey, str]:
        """Return whose queues are this host's to read: {host: name}."""
        view, last = self._peer_poller.view, self._auditor.last
        preferences = self._auditor.preferences
        if (view is None or last is None or preferences is None
                or self._ending.is_set()):
            return {}
        return {
            host: view.services[host].host
            for host in self._peer_poller.eligible
            if host in view.services
            and not view.live(host)
            # What waits there is for nodes of its partition.
            and view.peer(host)
            and forwarding.reader(preferences, host) == self._host
        }

    def _read(self, box: QueueKey, name: str) -> None:
        """Read a queue, or copies, to the end.

        :param name: the host as nova spells it.
        :raises SilentError: nova does not answer.
        :raises Exception: the queue cannot be read.
        """
        now = self._clock()
        reading = self._readings.get(box)
        if reading is None:
            if now < self._pauses.get(box, now):
                return
            reading = self._readings[box] = QueueReading(
                (self._queues.open_copies if box.copies
                 else self._queues.open)(name), now)
        elif reading.held and now - reading.opened >= forwarding.HOLDING:
            self._close(box)
            return
        reading.counts.clear()
        reading.copies.clear()
        before = reading.ended
        try:
            if not self._read_on(box, reading):
                self._close(box)
        except PermissionError as exc:
            # What waits there waits for its host.
            reading.held.clear()
            reading.absent = now
            reading.ended = now if before is None else before
            self._say_forbidden(exc)
        finally:
            self._tell(name, reading)

    def _read_on(self, box: QueueKey, reading: QueueReading) -> bool:
        """Read until nothing is left.

        :returns: whether it is still this host's to read.
        """
        queue = reading.queue
        now = self._clock()
        if reading.absent is not None and now - reading.absent < ABSENT:
            # RabbitMQ closes a connection over which nothing comes.
            queue.beat()
            return True
        ended, reading.ended = reading.ended, None
        consumers = queue.consumers()
        if consumers is None:
            # Nobody has ever listened there, or it was deleted.
            reading.held.clear()
            reading.absent = now
            reading.ended = now if ended is None else ended
            return True
        if forwarding.returned(consumers, len(reading.held)):
            return False
        for request in [*reading.held]:
            if self._deal(box, reading, request):
                reading.held.remove(request)
        taken = 0
        while len(reading.held) < HELD:
            found = queue.take()
            if found is None:
                reading.ended = now if ended is None else ended
                return True
            reading.held.append(found)
            if self._deal(box, reading, found):
                reading.held.pop()
            taken += 1
            if taken % STRETCH == 0 and (
                    box.host not in self._mine() or forwarding.returned(
                        queue.consumers() or 0, len(reading.held))):
                return False
        return True

    def _deal(
        self, box: QueueKey, reading: QueueReading, request: QueuedRequest
    ) -> bool:
        """Do with a message what is to be done; return whether it is gone.

        :raises SilentError: what that is cannot be known.
        """
        try:
            verdict = self._judge(box, reading.queue, request)
        except Exception as exc:
            raise QueueNoAnswer(f'it is not known what becomes of a message: '
                              f'{exc}') from exc
        if verdict.action is Action.KEEP:
            return False
        action = verdict.action
        if action is Action.HAND_ON and not self._hand_on(
                reading.queue, request, verdict):
            if box.copies or not verdict.copy or self._has_copies(
                    reading, verdict.host):
                return False
            # Where the build goes on there are no copies; nobody waits for
            # this one.
            action = Action.DROP
        if action is Action.DROP:
            reading.queue.drop(request)
        reading.counts[action] += 1
        return True

    def _has_copies(self, reading: QueueReading, host: HostKey | None) -> bool:
        """Whether a host has a queue for copies, or nova does not know it.

        It may only not have taken one for the moment.
        """
        name = self._request_sorter.name(host)
        if host is None or name is None:
            return True
        if host not in reading.copies:
            # It takes another connection, which may take long.
            with reading.queue.attended():
                reading.copies[host] = self._has_queue_for_copies(name)
        return reading.copies[host]

    def _has_queue_for_copies(self, name: str) -> bool:
        queue = self._queues.open_copies(name)
        try:
            return queue.consumers() is not None
        except PermissionError:
            # Nor may that host.
            return False
        finally:
            queue.close()

    def _hand_on(
        self, queue: Queue, request: QueuedRequest, verdict: Disposition
    ) -> bool:
        name = self._request_sorter.name(verdict.host)
        if name is None or not queue.hand_on(request, name, verdict.copy):
            return False
        if request.instance is not None and verdict.host is not None:
            self._handed_on[request.instance] = verdict.host
        return True

    def _judge(
        self, box: QueueKey, queue: Queue, request: QueuedRequest
    ) -> Disposition:
        if request.kind is RequestKind.OTHER:
            return Disposition(Action.KEEP)
        with queue.attended():
            situation = self._request_sorter.situation(request)
        if situation is None:
            return Disposition(Action.KEEP)
        judge = backup_copies.judge if box.copies else forwarding.judge
        return judge(request, box.host, situation)

    def _tell(self, name: str, reading: QueueReading) -> None:
        if reading.counts:
            LOG.info('Compute service %(host)s is dead. Of what waited for '
                     'it %(builds)d builds were handed on, and %(dropped)d '
                     'messages dropped that nobody wants any more; %(held)d '
                     'wait on.', {
                         'host': name,
                         'builds': reading.counts[Action.HAND_ON],
                         'dropped': reading.counts[Action.DROP],
                         'held': len(reading.held)})

    def _close(self, box: QueueKey) -> None:
        """Give back what is held, and leave it alone for some time."""
        reading = self._readings.pop(box, None)
        if reading is None:
            return
        reading.queue.close()
        self._pauses[box] = self._clock() + forwarding.pause(reading.held)
