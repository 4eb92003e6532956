# SPDX-License-Identifier: Apache-2.0

"""Sets COMPUTE_STATUS_DISABLED on the nodes of a disabled service.

With this trait placement does not offer the nodes to the scheduler. nova sets
it for one node after the other inside the request that disables the service,
minutes for thousands of nodes. This runs in the background instead.
"""

from collections.abc import Callable
from collections.abc import Sequence
import threading

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Traits
from nova_ironic_multihost.engine.tracking.due_nodes import DueNodes
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Nodes to write before checking again whether that is still wanted.
TOGETHER = 20


class DisabledTrait:
    """Sets or removes the trait; one thread calls :meth:`once`.

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
        self._lock = threading.Lock()
        #: How often this service was disabled or enabled.
        self._said = 0
        #: That number and whether the service was disabled, at the start of
        #: the last complete run; None before the first.
        self._done: tuple[int, bool] | None = None

    def note(self) -> None:
        """Note that this service was just disabled or enabled in nova."""
        with self._lock:
            self._said += 1

    def once(self) -> None:
        """Write the trait where it is wrong, if anything may have changed."""
        audit, view, said = self._auditor.last, self._view(), self._said
        if audit is None or view is None:
            return
        me = view.services.get(view.host)
        if me is None or (said, me.disabled) == self._done:
            return
        # The view may be old.
        me = self._auditor.sources.service(me.host)
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
            if self._ending() or said != self._said:
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
               in self._auditor.sources.records(list(found))
               if record.owner == me.key]
        written = self._traits.write(
            {node: found[node] for node in own}, me.disabled)
        for node in own:
            if node in written:
                self._wrote(node, found[node].generation, written[node])
            else:
                self._due_nodes.touch(node)
        return len(written)
