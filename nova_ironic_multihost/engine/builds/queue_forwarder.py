# SPDX-License-Identifier: Apache-2.0

"""Hand on the RPC requests that wait for dead compute services.

A ring of the members names the reader of each dead host's RPC queue. Two
readers do no harm, as each request goes to one of them. A request that is not
handed on is held and judged again, as RabbitMQ counts each return
(:func:`.rules.forwarding.pause`). RabbitMQ gets held ones back when this
process ends. :class:`.InFlightBuilds` gives up builds that are in no queue.
"""

import collections
from collections import abc
import dataclasses
import threading
import time
import typing

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Queue
from nova_ironic_multihost.engine.base.ports import Queues
from nova_ironic_multihost.engine.builds.build_backups import RequestSorter
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)

#: The most requests of one queue that are held at a time.
HELD = 1000

#: Requests between two checks that the queue is still this host's to read.
STRETCH = 20

#: Both queues of a host, as :attr:`QueueKey.copies`: requests, then copies.
KINDS = (False, True)

#: Seconds between two checks for a missing queue: RabbitMQ logs an error.
ABSENT = 60


class QueueKey(typing.NamedTuple):
    """A queue of a dead host: of RPC requests, or of ``copies`` of builds."""

    host: HostKey
    copies: bool


@dataclasses.dataclass
class QueueReading:
    """The reading of a queue. Only the forwarder's thread uses it.

    :ivar opened: when the queue was opened, by the monotonic clock.
    :ivar absent: when the queue was last found missing, None if never.
    :ivar held: requests that were neither handed on nor dropped.
    :ivar at_end: whether it was read to the end, or may not be read.
    :ivar counts: the number of requests by action in this turn.
    """

    queue: Queue
    opened: float
    absent: float | None = None
    held: list[QueuedRequest] = dataclasses.field(default_factory=list)
    at_end: bool = False
    counts: collections.Counter[Action] = dataclasses.field(
        default_factory=collections.Counter)


class QueueNoAnswer(Exception):
    """nova does not answer a question about a request."""


class QueueForwarder:
    """Reads the RPC queues of dead hosts, again and again, from one thread."""

    def __init__(self, host: str, queues: Queues, auditor: auditors.Auditor,
                 peer_poller: peer_poll.PeerPoller, requests: RequestSorter,
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
        self._host = host_key(host)
        self._queues = queues
        self._auditor = auditor
        self._peer_poller = peer_poller
        self._requests = requests
        self._clock = clock
        self._ending = threading.Event()
        self._forbidden_logged = False
        self._readings: dict[QueueKey, QueueReading] = {}
        #: When a closed queue may be opened again.
        self._reopen_at: dict[QueueKey, float] = {}

    def end(self) -> None:
        """Take no more requests: the service stops."""
        self._ending.set()

    def once(self) -> None:
        """Read the queues that are this host's to read.

        :raises Exception: that of the last queue to fail; the others are read.
        """
        mine = self._hosts_to_read()
        for key, reading in [*self._readings.items()]:
            reading.at_end = False
            if key.host not in mine:
                self._close(key)
        if not self._queues.readable:
            return
        failure = None
        for key in [QueueKey(host, kind) for host in sorted(mine)
                    for kind in KINDS]:
            try:
                self._read(key, mine[key.host])
            except QueueNoAnswer:
                # Other queues would fail as well.
                raise
            except Exception as exc:  # noqa: BLE001
                self._close(key)
                failure = exc
        if failure is not None:
            raise failure

    @property
    def searched(self) -> abc.Set[HostKey]:
        """The dead hosts with queues that were read to the end.

        Queues that this turn has not read yet do not count.
        """
        at_end = collections.Counter(
            key.host for key, reading in [*self._readings.items()]
            if reading.at_end)
        return {host for host, queues in at_end.items()
                if queues == len(KINDS)}

    def holds(self, instance: str) -> bool:
        """Return whether the request of a build is held."""
        return any(request.instance == instance
                   for reading in [*self._readings.values()]
                   for request in [*reading.held])

    def _log_forbidden(self, exc: Exception) -> None:
        if not self._forbidden_logged:
            self._forbidden_logged = True
            LOG.warning(
                'RabbitMQ does not let this compute service read what waits '
                'for one that is dead: %s. Builds wait until that is back, or '
                'end in ERROR. Give the account of nova the rights to '
                'configure, write and read queues named compute.* and '
                'compute-builds.*', exc)

    def _hosts_to_read(self) -> dict[HostKey, str]:
        """Return {host: name} of the hosts that this host reads for."""
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
            # Its requests are for nodes of its partition.
            and view.peer(host)
            and forwarding.reader(preferences, host) == self._host
        }

    def _read(self, key: QueueKey, name: str) -> None:
        """Read a queue to its end.

        :raises QueueNoAnswer: nova does not answer.
        :raises Exception: the queue cannot be read.
        """
        now = self._clock()
        reading = self._readings.get(key)
        if reading is None:
            if now < self._reopen_at.get(key, now):
                return
            reading = self._readings[key] = QueueReading(
                (self._queues.open_copies if key.copies
                 else self._queues.open)(name), now)
        elif reading.held and now - reading.opened >= forwarding.HOLDING:
            self._close(key)
            return
        reading.counts.clear()
        try:
            if not self._read_on(key, reading):
                self._close(key)
        except PermissionError as exc:
            # The requests wait until their host is back.
            reading.held.clear()
            reading.absent = now
            reading.at_end = True
            self._log_forbidden(exc)
        finally:
            self._log_counts(name, reading)

    def _read_on(self, key: QueueKey, reading: QueueReading) -> bool:
        """Read a queue to its end; return whether this host may go on."""
        queue = reading.queue
        now = self._clock()
        if reading.absent is not None and now - reading.absent < ABSENT:
            # RabbitMQ closes an idle connection.
            queue.beat()
            reading.at_end = True
            return True
        consumers = queue.consumers()
        if consumers is None:
            # The host has never listened, or the queue was deleted.
            reading.held.clear()
            reading.absent = now
            reading.at_end = True
            return True
        if forwarding.host_is_back(consumers, len(reading.held)):
            return False
        for request in [*reading.held]:
            if self._handle(key, reading, request):
                reading.held.remove(request)
        taken = 0
        while len(reading.held) < HELD:
            found = queue.take()
            if found is None:
                reading.at_end = True
                return True
            reading.held.append(found)
            if self._handle(key, reading, found):
                reading.held.pop()
            taken += 1
            if taken % STRETCH == 0 and (
                    key.host not in self._hosts_to_read()
                    or forwarding.host_is_back(
                        queue.consumers() or 0, len(reading.held))):
                return False
        return True

    def _handle(self, key: QueueKey, reading: QueueReading,
                request: QueuedRequest) -> bool:
        """Handle a request; return whether it has left this host."""
        try:
            disposition = self._decide(key, reading.queue, request)
        except Exception as exc:
            raise QueueNoAnswer('nova does not answer a question about a '
                                f'request: {exc}') from exc
        if disposition.action is Action.KEEP:
            return False
        if disposition.action is Action.DROP:
            reading.queue.drop(request)
        elif not self._requests.hand_on(reading.queue, request, disposition):
            return False
        reading.counts[disposition.action] += 1
        return True

    def _decide(self, key: QueueKey, queue: Queue, request: QueuedRequest
               ) -> Disposition:
        if request.kind is RequestKind.OTHER:
            return Disposition(Action.KEEP)
        with queue.attended():
            facts = self._requests.situation(request)
        if facts is None:
            return Disposition(Action.KEEP)
        judge = forwarding.judge_backup if key.copies else forwarding.judge
        return judge(request, key.host, facts)

    def _log_counts(self, name: str, reading: QueueReading) -> None:
        if reading.counts:
            LOG.info('Compute service %(host)s is dead. Of the requests in '
                     'its queues %(builds)d builds were handed on, '
                     '%(dropped)d obsolete requests were dropped and %(held)d '
                     'requests still wait.', {
                         'host': name,
                         'builds': reading.counts[Action.HAND_ON],
                         'dropped': reading.counts[Action.DROP],
                         'held': len(reading.held)})

    def _close(self, key: QueueKey) -> None:
        """Give back the held requests, and pause before the next reading."""
        reading = self._readings.pop(key, None)
        if reading is None:
            return
        reading.queue.close()
        self._reopen_at[key] = self._clock() + forwarding.pause(reading.held)
