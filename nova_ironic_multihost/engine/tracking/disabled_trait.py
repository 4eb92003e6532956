# SPDX-License-Identifier: Apache-2.0

"""Sets the trait of nodes of a disabled compute service in placement.

With COMPUTE_STATUS_DISABLED placement does not offer the nodes to the
scheduler, which would pass over them. nova sets it at each audit of a node,
and for all nodes in the request that disables or enables a service: one by
one, for minutes with thousands of nodes. Here it happens in the background,
without an audit of each node.
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

#: Nodes that are marked before it is looked anew whether that is still wanted,
#: and whose records are read together.
TOGETHER = 20


class DisabledTrait:
    """Compares and writes the trait if needed. One thread calls :meth:`once`.

    :param auditor: says which nodes there are.
    :param schedule: told which nodes are to be audited instead.
    :param traits: the trait in placement.
    :param view: returns the last view of a poll, None before the first.
    :param wrote: called with (node, generation of its provider before,
        generation after) for each write.
    :param ending: returns whether this service is about to stop.
    """

    def __init__(self, auditor: auditors.Auditor, schedule: DueNodes,
                 traits: Traits,
                 view: Callable[[], peers.View | None],
                 wrote: Callable[[str, int, int], None],
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._schedule = schedule
        self._traits = traits
        self._view = view
        self._wrote = wrote
        self._ending = ending
        self._lock = threading.Lock()
        #: How often this service was said to be another.
        self._said = 0
        #: That number when the last comparison began that was done to its
        #: end, and whether the service was disabled then. What was before
        #: this process is not known.
        self._done: tuple[int, bool] | None = None

    def note(self) -> None:
        """Note that this service was disabled or enabled just now.

        nova's database has it already. Work that is under way begins anew.
        """
        with self._lock:
            self._said += 1

    def once(self) -> None:
        """Set or remove the trait, if anything may have changed.

        :raises Exception: nova or placement does not answer; the next call
            begins anew.
        """
        audit, view, said = self._auditor.last, self._view(), self._said
        if audit is None or view is None:
            return
        me = view.services.get(view.host)
        if me is None or (said, me.disabled) == self._done:
            return
        # That may be old by now.
        me = self._auditor.sources.service(me.host)
        if me is None or me.stop_marker:
            # Disabled as it is about to end, which is not marked.
            return
        # They may go by what it was before.
        self._schedule.touch_running()
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
            LOG.info('This compute service is %(what)s; placement has that '
                     'of %(count)d of its nodes now.',
                     {'what': 'disabled' if me.disabled else 'enabled',
                      'count': count})

    def _mark(self, nodes: Sequence[str], me: peers.ComputeService
              ) -> int:
        """Write the trait of some nodes that are still this host's.

        :returns: number of nodes.
        """
        found = self._traits.read(nodes)
        # After that: whoever takes one from here on writes to placement, as
        # a rule, and what was read is then too old to be written. Of whom
        # nothing is to be written the drift is found later.
        own = [record.node for record
               in self._auditor.sources.records(list(found))
               if record.owner == me.key]
        written = self._traits.write(
            {node: found[node] for node in own}, me.disabled)
        for node in own:
            if node in written:
                self._wrote(node, found[node].generation, written[node])
            else:
                self._schedule.touch(node)
        return len(written)
