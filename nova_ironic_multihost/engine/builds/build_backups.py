# SPDX-License-Identifier: Apache-2.0

"""Keep copies of the builds of this host, so that a restart loses none.

Each build is copied before it begins (:mod:`.rules.forwarding`). A thread
takes the copies every few seconds and holds them, unacknowledged, while their
build is here. A copy without a build is from an earlier process: its build is
requested again.
"""

from collections import abc
import contextlib
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.base.ports import Copier
from nova_ironic_multihost.engine.base.ports import Queue
from nova_ironic_multihost.engine.base.ports import Queues
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)

#: The most copies that are held at a time.
HELD = 1000

#: Seconds between two tries to keep copies while RabbitMQ forbids it.
FORBIDDEN = 600

#: The most seconds for which the end of a build is kept until its copy comes.
OVER = 3600


class RequestSorter:
    """Collects facts about requests. Several threads use it."""

    def __init__(self, host: str, auditor: auditors.Auditor,
                 peer_poller: peer_poll.PeerPoller,
                 attempts: Attempts) -> None:
        self._host = host_key(host)
        self._auditor = auditor
        self._peer_poller = peer_poller
        self._attempts = attempts

    def situation(self, request: QueuedRequest) -> RequestFacts | None:
        """Return the facts about a request, None if too little is known yet.

        :raises Exception: nova does not answer.
        """
        last, view = self._auditor.last, self._peer_poller.view
        if request.instance is None or last is None or view is None:
            return None
        cloud = self._auditor.cloud
        state = cloud.instance_states([request.instance]).get(
            request.instance)
        if request.kind is not RequestKind.BUILD or request.node is None:
            return RequestFacts(state)
        record = next(iter(cloud.records([request.node])), None)
        owner = record.owner if record is not None else None
        return RequestFacts(
            state, owner, owner == self._host or view.live(owner),
            owner in self._peer_poller.eligible,
            self._choice(request.node, owner, last, view),
            self._attempts.count(request.instance))

    def hand_on(self, queue: Queue, request: QueuedRequest,
                disposition: Disposition) -> bool:
        """Send a request to the host of the disposition, if nova has it."""
        view, host = self._peer_poller.view, disposition.host
        service = (view.services.get(host)
                   if view is not None and host is not None else None)
        # The queue has the name of the host as nova spells it.
        return service is not None and queue.hand_on(
            request, service.host, disposition.copy)

    def _choice(self, node: str, owner: HostKey | None, last: Audit,
                view: peers.View) -> HostKey | None:
        """Return the host that is to get a node of a dead host."""
        preferences = self._auditor.preferences
        if preferences is None:
            return None
        zones: abc.Mapping[HostKey, str] = peers.host_zones(
            last.host_aggregates.aggregates)
        choice = preferences.host_for(
            node, zones.get(owner) if owner is not None else None)
        return choice if view.live(choice) else None


class BackupStore:
    """Holds copies. Threads of nova and a timer use it.

    ``_lock`` guards what threads share, except values that are replaced whole.

    :param here: whether the build of an instance is here, by its uuid.
    """

    def __init__(self, host: str, queues: Queues, copier: Copier,
                 requests: RequestSorter, here: abc.Callable[[str], bool],
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
        self._name = host
        self._host = host_key(host)
        self._queues = queues
        self._copier = copier
        self._requests = requests
        self._here = here
        self._clock = clock
        self._lock = threading.Lock()
        #: Build that has ended or was refused here -> when.
        self._over: dict[SentBuild, float] = {}
        #: The copies that are held, replaced whole.
        self._copies: abc.Mapping[SentBuild, QueuedRequest] = {}
        # Only the timer uses these.
        self._queue: Queue | None = None
        self._taken = self._paused = 0.0
        self._held: list[QueuedRequest] = []
        self._forbidden: float | None = None

    @property
    def readable(self) -> bool:
        """Whether RabbitMQ keeps copies, as far as is known."""
        return self._queues.readable and self._forbidden is None

    def copy(self, build: SentBuild) -> QueuedRequest | None:
        """Return the held copy of a build, or None."""
        return self._copies.get(build)

    def keep(self, instance: str, node: str | None,
             arguments: abc.Mapping[str, object]) -> None:
        """Copy a build before it begins if its node is known; never raises."""
        if node is None or not self.readable:
            return
        self.repeat(SentBuild(instance, node))
        try:
            self._copier.copy(arguments)
        except Exception as exc:  # noqa: BLE001
            # Only the type: the text may quote the request.
            LOG.warning('There is no copy of the build of instance %(uuid)s, '
                        'as RabbitMQ has not taken it: %(error)s. If '
                        'nova-compute is killed before Ironic knows of the '
                        'build, it ends in ERROR.',
                        {'uuid': instance, 'error': type(exc).__name__})

    def end(self, instance: str, node: str | None) -> None:
        """Note that a build has ended or was refused, and is over here."""
        if node is not None:
            with self._lock:
                self._over[SentBuild(instance, node)] = self._clock()

    def repeat(self, build: SentBuild) -> None:
        """Request a build again as soon as its instance is on no host."""
        with self._lock:
            self._over.pop(build, None)

    def once(self) -> None:
        """Take the copies that there are, and handle each.

        :raises Exception: RabbitMQ or nova does not answer; copies are kept.
        """
        now = self._clock()
        if not self._queues.readable or (
                self._forbidden is not None
                and now - self._forbidden < FORBIDDEN):
            return
        with self._lock:
            self._over = {build: over for build, over in self._over.items()
                          if now - over < OVER}
        try:
            if self._held and now - self._taken >= forwarding.HOLDING:
                self._renew()
            self._open()
            if now >= self._paused:
                self._take()
        except PermissionError as exc:
            self._close()
            self._forbid(exc, now)
            return
        except Exception:
            self._close()
            raise
        self._sort()

    def attended(self) -> contextlib.AbstractContextManager[None]:
        """Keep the connection while this thread does other work."""
        return (self._queue.attended() if self._queue is not None
                else contextlib.nullcontext())

    def _forbid(self, exc: Exception, now: float) -> None:
        self._copies = {}
        before, self._forbidden = self._forbidden, now
        if before is not None:
            return
        LOG.warning('RabbitMQ does not let this compute service keep copies '
                    'of its builds: %s. A build that waits for its turn when '
                    'it is killed ends in ERROR. Give the account of nova the '
                    'rights to configure, write and read queues named '
                    'compute-builds.*', exc)

    def _open(self) -> None:
        if self._queue is not None:
            try:
                self._queue.beat()
            except Exception as exc:  # noqa: BLE001
                # RabbitMQ has restarted; no copy came since.
                LOG.debug('The connection to the copies is lost: %s', exc)
                self._close()
            else:
                return
        self._queue = self._queues.open_copies(self._name)
        self._taken = self._clock()
        self._queue.create()

    def _take(self) -> None:
        queue = self._queue
        assert queue is not None
        try:
            while len(self._held) < HELD:
                found = queue.take()
                self._forbidden = None
                if found is None:
                    return
                self._held.append(found)
        finally:
            self._publish()

    def _renew(self) -> None:
        """Send the held copies to the queue and take them again.

        RabbitMQ closes a channel that has held a message for too long, and
        counts the returns of a quorum queue.
        """
        queue = self._queue
        assert queue is not None
        for copy in [*self._held]:
            if queue.hand_on(copy, self._name, copy=True):
                self._held.remove(copy)
        if self._held:
            self._close()
        else:
            self._taken = self._clock()

    def _sort(self) -> None:
        queue, handed_on = self._queue, 0
        assert queue is not None
        for copy in [*self._held]:
            try:
                disposition = self._decide(queue, copy)
            except Exception:
                # Ask no more in this turn; this copy is last in the next.
                self._held.remove(copy)
                self._held.append(copy)
                raise
            try:
                if disposition.action is Action.DROP:
                    queue.drop(copy)
                elif (disposition.action is Action.KEEP
                      or not self._requests.hand_on(queue, copy, disposition)):
                    continue
            except Exception:
                self._close()
                raise
            handed_on += disposition.action is Action.HAND_ON
            self._held.remove(copy)
        self._publish()
        if handed_on:
            LOG.info('%d interrupted builds of this host begin again, here or '
                     'on the compute services that have their nodes now.',
                     handed_on)

    def _decide(self, queue: Queue, copy: QueuedRequest) -> Disposition:
        keep, build = Disposition(Action.KEEP), _build(copy)
        if build is None:
            return keep
        over = self._over.get(build)
        if self._here(build.instance):
            return keep
        with queue.attended():
            facts = self._requests.situation(copy)
        # The build may have come, or come and ended, since.
        if (facts is None or self._over.get(build) != over
                or self._here(build.instance)):
            return keep
        return forwarding.judge_backup(
            copy, self._host, facts, over is not None)

    def _publish(self) -> None:
        self._copies = {build: copy for copy in self._held
                        if (build := _build(copy)) is not None}

    def _close(self) -> None:
        """Give back the copies; take them later if RabbitMQ counts returns."""
        queue, self._queue = self._queue, None
        now = self._clock()
        self._paused = now
        if any(copy.returns for copy in self._held):
            self._paused += forwarding.pause(self._held)
        self._held = []
        if queue is not None:
            queue.close()


def _build(copy: QueuedRequest) -> SentBuild | None:
    return (SentBuild(copy.instance, copy.node)
            if copy.instance is not None and copy.node is not None else None)
