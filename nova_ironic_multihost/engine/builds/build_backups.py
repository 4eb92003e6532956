# SPDX-License-Identifier: Apache-2.0

"""Holds the copies of the builds that are on this host.

Each build that comes is copied before it begins (:mod:`.rules.backup_copies`).
Every few seconds the copies are taken, in a thread of their own, and held,
unacknowledged, for as long as somebody here is at the build. What nobody is at
was left by a process before this one: that is asked for again. A copy that is
not found is sent once more: RabbitMQ may have been started anew.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Copier
from nova_ironic_multihost.engine.base.ports import Queue
from nova_ironic_multihost.engine.base.ports import Queues
from nova_ironic_multihost.engine.builds.request_facts import RequestSorter
from nova_ironic_multihost.rules import backup_copies
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.lost_builds import SentBuild
from nova_ironic_multihost.rules.peers import host_key

LOG = logging.getLogger(__name__)

#: The most copies that are held at a time.
HELD = 1000

#: Seconds until it is tried again to have copies, where RabbitMQ forbids it.
FORBIDDEN = 600

#: Seconds for which it is remembered that a build is over, until its copy was
#: found.
OVER = 3600

#: Seconds in which a copy is found that was sent, and how many are sent once
#: more at a time.
FOUND, TOGETHER = 20, 20


class BackupStore:
    """Holds copies. Threads of nova and a timer use it.

    :param host: this host.
    :param queues: where its copies are.
    :param copier: sends them there.
    :param request_sorter: says what is known of a build.
    :param here: says of the uuid of an instance whether its build is here.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, host: str, queues: Queues, copier: Copier,
                 request_sorter: RequestSorter, here: Callable[[str], bool],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._name = host
        self._host = host_key(host)
        self._queues = queues
        self._copier = copier
        self._request_sorter = request_sorter
        self._here = here
        self._clock = clock
        self._lock = threading.Lock()
        #: Builds that were here and are over -> since when, and whether the
        #: gate has refused them.
        self._over: dict[SentBuild, tuple[float, bool]] = {}
        #: Builds that are undone, to be asked for again -> whether that goes
        #: on. Who has come meanwhile may say later that it was refused.
        self._undone: dict[SentBuild, bool] = {}
        #: Builds whose copies were not found yet -> when they were sent, and
        #: what they were asked for with.
        self._sent: dict[SentBuild, tuple[float, Mapping[str, object]]] = {}
        #: The copies that are held, replaced whole.
        self._copies: Mapping[SentBuild, QueuedRequest] = {}
        #: Since when not all were seen, None if they were.
        self._unseen: float | None = clock()
        # Only the timer uses these.
        self._box: Queue | None = None
        self._opened = self._taken = self._paused = 0.0
        self._held: list[QueuedRequest] = []
        self._forbidden: float | None = None

    @property
    def readable(self) -> bool:
        """Whether there can be copies, with the message bus that there is."""
        return self._queues.readable

    @property
    def all_seen(self) -> bool:
        """Whether all were seen that there are, or there can be none."""
        return self._unseen is None or not self.readable

    def copy(self, build: SentBuild) -> QueuedRequest | None:
        """Return the copy of a build that is held, None if it is not."""
        return self._copies.get(build)

    def may_come(self, build: SentBuild) -> bool:
        """Whether a build may still be asked for, as there may be a copy."""
        if not self.readable or self._forbidden is not None:
            return False
        now, unseen = self._clock(), self._unseen
        # Some may be with a connection whose end RabbitMQ has not noticed.
        return (build in self._copies
                or now - self._opened < backup_copies.PATIENCE
                or unseen is not None and now - unseen < backup_copies.LONGEST)

    def keep(self, instance: str, node: str | None,
             arguments: Mapping[str, object]) -> None:
        """Copy a build that has come and not begun; raises nothing.

        :param instance: its uuid.
        :param node: the uuid of the node that it is for, None if that is not
            known; then there is no copy.
        :param arguments: what it was asked for with, by name.
        """
        if node is None or not self.readable or self._forbidden is not None:
            return
        build = SentBuild(instance, node)
        self.repeat(build)
        self._send(build, self._copier.seal(arguments))

    def _send(self, build: SentBuild, arguments: Mapping[str, object]) -> bool:
        """Send a copy; return whether RabbitMQ has taken it."""
        with self._lock:
            self._sent[build] = self._clock(), arguments
        try:
            self._copier.copy(arguments)
            return True
        except Exception as exc:  # noqa: BLE001
            # Its text may quote the message.
            LOG.warning('There is no copy of the build of instance %(uuid)s, '
                        'as RabbitMQ has not taken it: %(error)s. If '
                        'nova-compute is killed before Ironic knows of the '
                        'build, it ends in ERROR.',
                        {'uuid': build.instance,
                         'error': type(exc).__name__})
            return False

    def end(self, instance: str, node: str | None, refused: bool = False
            ) -> None:
        """Note that a build is over: nobody needs its copy any more.

        :param refused: it was done or another's. What nova has of it says who
            may still need the copy, but here it is not asked for again.
        """
        if node is not None:
            build = SentBuild(instance, node)
            with self._lock:
                self._sent.pop(build, None)
                # What is undone is refused because it is still here.
                if not (refused and build in self._undone):
                    self._over[build] = self._clock(), refused

    def repeat(self, build: SentBuild) -> None:
        """Have a build asked for again, whatever became of it here.

        As soon as its instance is on no host.
        """
        with self._lock:
            self._over.pop(build, None)

    @contextlib.contextmanager
    def repeating(self, build: SentBuild) -> Iterator[None]:
        """Undo a build that is asked for again then.

        Also if that fails: it may have been done.
        """
        with self._lock:
            self._undone[build] = True
        self.repeat(build)
        try:
            yield
        finally:
            with self._lock:
                self._undone[build] = False

    def once(self) -> None:
        """Take what copies there are, and do with each what is to be done.

        :raises Exception: they cannot be read; or nova does not say what they
            are about, and they are held.
        """
        now = self._clock()
        if not self.readable or (self._forbidden is not None
                                 and now - self._forbidden < FORBIDDEN):
            return
        with self._lock:
            self._over = {build: over for build, over in self._over.items()
                          if now - over[0] < OVER}
            self._undone = {build: goes_on for build, goes_on
                            in self._undone.items()
                            if goes_on or self._here(build.instance)}
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
        self._send_again()

    def _forbid(self, exc: Exception, now: float) -> None:
        # There is none.
        self._unseen = None
        self._copies = {}
        with self._lock:
            self._sent.clear()
        before, self._forbidden = self._forbidden, now
        if before is not None:
            return
        LOG.warning('RabbitMQ does not let this compute service keep copies '
                    'of its builds: %s. A build that waits for its turn when '
                    'it is killed ends in ERROR. Give the account of nova the '
                    'rights to configure, write and read queues named '
                    'compute-builds.*', exc)

    def _open(self) -> None:
        """See that there is a connection, and where copies are sent to."""
        if self._box is not None:
            try:
                self._box.beat()
            except Exception as exc:  # noqa: BLE001
                # RabbitMQ was started anew; until now nothing came here.
                LOG.debug('The connection to the copies is lost: %s', exc)
                self._close()
            else:
                return
        self._box = self._queues.open_copies(self._name)
        self._opened = self._taken = self._clock()
        self._box.create()

    def _take(self) -> None:
        """Take all that there is."""
        box = self._box
        assert box is not None
        try:
            while len(self._held) < HELD:
                found = box.take()
                self._forbidden = None
                if found is None:
                    self._unseen = None
                    return
                self._held.append(found)
        finally:
            self._publish()

    def _renew(self) -> None:
        """Put what is held into the queue anew, and take it again.

        RabbitMQ closes a channel that has held a message for too long, and
        counts what comes back to a quorum queue.
        """
        box = self._box
        assert box is not None
        for copy in [*self._held]:
            if box.hand_on(copy, self._name, copy=True):
                self._held.remove(copy)
        if self._held:
            self._close()
        else:
            self._taken = self._clock()

    def _sort(self) -> None:
        """Do with each copy what is to be done."""
        box, asked, sent = self._box, 0, 0
        assert box is not None
        for copy in [*self._held]:
            try:
                verdict = self._judge(box, copy)
            except Exception:
                # Who does not answer is not asked for each. It is held, and
                # the others come first the next time.
                self._held.remove(copy)
                self._held.append(copy)
                raise
            try:
                if verdict.action is Action.DROP:
                    box.drop(copy)
                elif verdict.action is Action.KEEP or not self._hand_on(
                        box, copy, verdict):
                    continue
            except Exception:
                self._close()
                raise
            here = verdict == Disposition(Action.HAND_ON, self._host)
            asked += here
            sent += verdict.action is Action.HAND_ON and not here
            self._held.remove(copy)
        self._publish()
        if sent:
            LOG.info('%d builds of which Ironic was not told go to the '
                     'compute services that have their instances or nodes '
                     'now.', sent)
        if asked:
            LOG.info('%d builds that were begun here and not ended are begun '
                     'again.', asked)

    def _send_again(self) -> None:
        """Send the copies once more that were not found."""
        if self._unseen is not None:
            return
        now = self._clock()
        with self._lock:
            self._sent = {build: its for build, its in self._sent.items()
                          if self._here(build.instance)}
            missing = [(build, arguments) for build, (sent, arguments)
                       in self._sent.items() if now - sent >= FOUND]
        for build, arguments in missing[:TOGETHER]:
            if not self._send(build, arguments):
                # Each would wait, and no heartbeat goes to RabbitMQ.
                return

    def _judge(self, box: Queue, copy: QueuedRequest) -> Disposition:
        build = _build(copy)
        if build is None:
            return Disposition(Action.KEEP)
        with self._lock:
            over = self._over.get(build)
        if self._here(build.instance):
            return Disposition(Action.KEEP)
        if over is not None and not over[1]:
            return Disposition(Action.DROP)
        with box.attended():
            situation = self._request_sorter.situation(copy)
        if situation is None:
            return Disposition(Action.KEEP)
        verdict = backup_copies.judge(
            copy, self._host, situation, refused=over is not None)
        # It may have come, and ended, since.
        with self._lock:
            if self._over.get(build) != over:
                return Disposition(Action.KEEP)
        return (
            Disposition(Action.KEEP) if self._here(build.instance) else verdict
        )

    def _hand_on(
        self, box: Queue, copy: QueuedRequest, verdict: Disposition
    ) -> bool:
        name = self._request_sorter.name(verdict.host)
        return name is not None and box.hand_on(copy, name, verdict.copy)

    def _publish(self) -> None:
        self._copies = {build: copy for copy in self._held
                        if (build := _build(copy)) is not None}
        with self._lock:
            for build in self._copies:
                self._sent.pop(build, None)

    def _close(self) -> None:
        """Give back what is held; it is taken again.

        At once, unless RabbitMQ counts how often it comes back.
        """
        box, self._box = self._box, None
        now = self._clock()
        self._paused = now
        if any(copy.returns for copy in self._held):
            self._paused += forwarding.pause(self._held)
        self._held = []
        if self._unseen is None:
            self._unseen = now
        if box is not None:
            box.close()


def _build(copy: QueuedRequest) -> SentBuild | None:
    return (SentBuild(copy.instance, copy.node)
            if copy.instance is not None and copy.node is not None else None)
