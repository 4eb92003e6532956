# SPDX-License-Identifier: Apache-2.0

"""Tell others that this service stops, and placement that it is disabled.

A stopping service takes no more nodes and instances, and serves those it has.
The text is in :mod:`.rules.liveness`; the next start takes it back.
"""

from collections.abc import Callable
from collections.abc import Sequence
import datetime
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Registration
from nova_ironic_multihost.engine.base.ports import Traits
from nova_ironic_multihost.engine.nodes.due_nodes import DueNodes
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Seconds that a stop waits for nova. Containers may have 30 for all of it.
WAIT = 5

#: Tries to write the stop marker, each up to nova's RPC timeout; and the
#: seconds between them.
ATTEMPTS = 12
PAUSE = 5


class Shutdown:
    """Begins at most once in a process.

    nova may call it in a signal handler, on top of any frame of the main
    thread. So nova is asked in another thread, which no lock of the main
    thread can block for longer than :data:`WAIT`.

    :param may_close: see :func:`.liveness.may_close`.
    """

    def __init__(self, registration: Registration,
                 may_close: Callable[[], bool],
                 now: Callable[[], datetime.datetime] = (
                     lambda: datetime.datetime.now(datetime.UTC)),
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._registration = registration
        self._may_close = may_close
        self._now = now
        self._sleep = sleep
        self._started = False
        self._begun = threading.Event()
        self._said = threading.Event()

    def begun(self) -> bool:
        """Return whether the service stops, and so takes nothing."""
        return self._begun.is_set()

    def begin(self) -> bool:
        """Take nothing more, and tell the other hosts; False if called before.

        A process with a refused start writes nothing: another may have its
        host name.
        """
        if self.begun():
            return False
        self._begun.set()
        if not self._started:
            self._said.set()
            return True
        try:
            threading.Thread(target=self._write_stop_marker, daemon=True,
                             name='ironic-multihost-shutdown').start()
        except RuntimeError as exc:
            LOG.warning('Threads of nova-compute are used up: %s.', exc)
            self._said.set()
        return True

    def wait(self) -> None:
        """Wait up to :data:`WAIT` s until nova knows of the stop.

        Called when the queue is read no more: later builds may not finish.
        """
        if self.begun() and not self._said.wait(WAIT):
            LOG.warning('It is not known yet to nova that this compute '
                        'service is about to end: builds are sent to it '
                        'until its heartbeat has been missing for '
                        'service_down_time. If that lasts: is '
                        'nova-conductor up?')

    def undo(self) -> None:
        """Remove the stop marker of an earlier process; raises nothing.

        Called before the first audit, and when a marker is found: the write
        of a killed process may come late. From the first call on this process
        writes a marker when it stops.
        """
        if self.begun():
            return
        self._started = True
        try:
            if self._registration.take_back():
                LOG.info('This compute service was stopped, and is enabled '
                         'again.')
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It is not known whether nova has this compute '
                        'service disabled since it was stopped: %s. It is '
                        'looked at again soon.', exc)
        if self.begun():
            # The stop began meanwhile: take_back() may remove its marker. No
            # lock, as a signal handler here may never return to this frame.
            self._write_stop_marker()

    def _write_stop_marker(self) -> None:
        try:
            text = liveness.stop_marker_text(self._now())
            if not self._write_with_retries(text):
                return
            # Asked after it: hosts that stop together see each other's marker.
            if self._may_close():
                self._registration.close(text)
            LOG.info('The others know that this compute service is about to '
                     'end. If it is not back in service_down_time they take '
                     'its free nodes.')
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It is not known whether enough compute services '
                        'stay that builds can be sent to, so builds are still '
                        'sent to this one, which is about to end: %s. They '
                        'wait for its next start.', exc)
        finally:
            self._said.set()

    def _write_with_retries(self, text: str) -> bool:
        """Write the marker, with retries; return whether it is written."""
        for attempt in range(ATTEMPTS):
            try:
                return self._registration.say(text)
            except Exception as exc:  # noqa: BLE001
                LOG.debug('Attempt %(attempt)s to say that this compute '
                          'service is about to end: %(exc)s',
                          {'attempt': attempt + 1, 'exc': exc})
                self._sleep(PAUSE)
        return False


#: Nodes to write before checking again whether that is still wanted.
TOGETHER = 20


class DisabledTrait:
    """Sets or removes COMPUTE_STATUS_DISABLED; one thread calls :meth:`once`.

    With this trait placement does not offer the nodes to the scheduler. Inside
    the request that disables the service nova sets it for one node after the
    other, minutes for thousands of nodes. This runs in the background.

    :param wrote: called with (node, generation before, generation after).
    """

    def __init__(self, auditor: auditors.Auditor, due_nodes: DueNodes,
                 traits: Traits,
                 view: Callable[[], peers.View | None],
                 wrote: Callable[[str, int, int], None],
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._due_nodes = due_nodes
        self._traits = traits
        self._view = view
        self._wrote = wrote
        self._ending = ending
        #: Another object each time that the service is disabled or enabled.
        self._said = object()
        #: That object and whether the service was disabled, at the start of
        #: the last complete run; None before the first.
        self._done: tuple[object, bool] | None = None

    def note(self) -> None:
        """Note that this service was just disabled or enabled in nova."""
        self._said = object()

    def once(self) -> None:
        """Write the trait where it is wrong, if anything may have changed."""
        audit, view, said = self._auditor.last, self._view(), self._said
        if audit is None or view is None:
            return
        me = view.services.get(view.host)
        if me is None or (said, me.disabled) == self._done:
            return
        # The view may be old.
        me = self._auditor.cloud.service(me.host)
        if me is None or me.stop_marker:
            # A stopping service keeps its nodes without the trait.
            return
        # Audits in progress may use the old status.
        self._due_nodes.touch_running()
        marked = self._traits.disabled()
        wrong = sorted(
            (node for node in audit.nodes
             if (node in marked) is not me.disabled),
            key=lambda node: audit.nodes[node].instance is not None)
        count = 0
        for first in range(0, len(wrong), TOGETHER):
            if self._ending() or said is not self._said:
                return
            count += self._mark(wrong[first:first + TOGETHER], me)
        self._done = said, me.disabled
        if count:
            LOG.info('This compute service is %(what)s: the trait of '
                     '%(count)d of its nodes in placement was updated.',
                     {'what': 'disabled' if me.disabled else 'enabled',
                      'count': count})

    def _mark(self, nodes: Sequence[str], me: peers.ComputeService
              ) -> int:
        """Write the trait of nodes still owned; return the number written."""
        found = self._traits.read(nodes)
        # After the traits: a peer that takes a node from now on nearly always
        # changes the generation, so the write fails.
        own = [record.node for record
               in self._auditor.cloud.records(list(found))
               if record.owner == me.key]
        written = self._traits.write(
            {node: found[node] for node in own}, me.disabled)
        for node in own:
            if node in written:
                self._wrote(node, found[node].generation, written[node])
            else:
                self._due_nodes.touch(node)
        return len(written)
