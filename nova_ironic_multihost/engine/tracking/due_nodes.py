# SPDX-License-Identifier: Apache-2.0

"""Says which nodes nova's tracker audits now.

By the rule of :mod:`.rules.tracker_schedule`. nova's audits, builds, polls and
the background audit come in threads of their own.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Set
import contextlib
import itertools
import threading
import time

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import tracker_schedule

#: Seconds for which nova audits nodes when the service starts. The others come
#: in the background: builds wait until that is over.
START = 5

#: Nodes to which nova comes in an audit, though the background does as well.
FIRST = 250


class DueNodes:
    """Says of each node whether it is due.

    :param host: this host.
    :param auditor: says which nodes there are.
    :param tracker: nova's resource tracker.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 tracker: Tracker,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._auditor = auditor
        self._tracker = tracker
        self._clock = clock
        self._lock = threading.Lock()
        #: Node -> its last audit that succeeded.
        self._audited: dict[str, tracker_schedule.NodeAudit] = {}
        #: Nodes to which something has happened since their last audit began.
        self._touched: set[str] = set()
        #: Those of them of which placement is to be asked anew: nova does
        #: that every 300 s only.
        self._drifted: set[str] = set()
        #: Free nodes of which something was allocated at their last audit: a
        #: build has claimed them, or nova frees them at one of the next ones.
        self._held: set[str] = set()
        #: Nodes that came from others, who may have written of them since.
        self._recent: frozenset[str] = frozenset()
        #: Nodes whose audits are left to the background by nova.
        self._deferred: set[str] = set()
        #: Nodes that were tried since the last audit of all nodes.
        self._tried: set[str] = set()
        # What all audits depend on, and the number of that.
        self._common: object = None
        self._era = 0
        #: Nodes that are audited in this moment, one for each thread.
        self._running: list[str] = []
        #: Seconds in which each node is audited.
        self._interval: float = 0
        #: Until when nova audits while it starts, None when that is over.
        self._until: float | None = None
        # The node that a thread audits, its
        # :class:`.rules.tracker_schedule.NodeInputs`, whether placement is
        # asked anew for it, whether the audit has come to its end, whether it
        # went by something else than the basis, and the audit before if what
        # placement has said then may do.
        self._current = threading.local()

    def begin(self, starting: bool) -> None:
        """Note the begin of an audit of all nodes: nova comes to each.

        :param starting: the service starts.
        """
        audit = self._auditor.last
        nodes = audit.nodes.keys() if audit is not None else set()
        with self._lock:
            self._until = self._clock() + START if starting else None
            self._tried.clear()
            self._audited = {node: success for node, success
                             in self._audited.items() if node in nodes}
            self._touched = (self._touched | self._held) & nodes
            self._held.clear()
            self._drifted &= nodes
            self._deferred.clear()
            self._recent = (frozenset(audit.recent & nodes)
                            if audit is not None else frozenset())

    def note_pulled(self, nodes: Iterable[str]) -> None:
        """Note nodes that this host pulled a while ago.

        Their former owners may have set traits until now.
        """
        with self._lock:
            self._recent |= frozenset(nodes)

    def spare(self, nodes: Iterable[str]) -> None:
        """Leave out nodes that came from others and have not changed since.

        They were audited when they came.

        :param nodes: placement is asked about those of them that have come.
        """
        with self._lock:
            asked = sorted(
                self._recent & self._audited.keys() & frozenset(nodes))
        unchanged = self._tracker.unchanged(asked)
        with self._lock:
            self._recent -= unchanged

    def defer(self, nodes: Set[str]) -> None:
        """Leave nodes that have come to the background audit, once."""
        with self._lock:
            self._deferred |= nodes
            for node in nodes:
                # It may have been here before.
                self._audited.pop(node, None)

    def ready(self) -> list[Record]:
        """Return the records of nodes that builds may claim without an audit.

        They were here before the start, and this host told placement of them.
        """
        audit = self._auditor.last
        return [] if audit is None else [
            record for record in audit.records
            if record.host == self._host
            and audit.reasons.get(record.node) in tracker_schedule.READY]

    def follow(self, settings: Settings, view: peers.View) -> None:
        """Note the services and options that all audits of nodes depend on.

        Not whether this service is disabled: see :mod:`.disabled_trait`.
        """
        audit = self._auditor.last
        me = view.services.get(view.host)
        common = (me is not None and bool(me.stop_marker),
                  settings.partition.label,
                  audit.host_aggregates.of(view.host) if audit else None)
        with self._lock:
            self._interval = settings.audit_interval
            if common != self._common:
                self._common = common
                self._era += 1

    def touch(self, node: str, told: bool = True) -> None:
        """Note that something has happened to a node, or its record.

        :param told: placement knows of it; if not, an audit has not succeeded.
        """
        if getattr(self._current, 'node', None) == node:
            # By its audit; what moves a record reports the node, too, but
            # before the tracker has it (ResourceTracker._init_compute_node).
            self._current.reported = told and self._tracker.has(node)
            return
        with self._lock:
            self._touched.add(node)
            if not told:
                # It may have been asked for a part of it.
                self._drifted.add(node)

    def note_allocated(self, node: str) -> None:
        """Note that a node that is audited now has an allocation.

        If the node is free, nova's next audit comes to it again: only that
        removes the allocation of a deleted server.
        """
        current = self._current
        if (getattr(current, 'node', None) == node
                and current.basis is not None
                and current.basis.node.instance is None):
            with self._lock:
                self._held.add(node)

    def touch_running(self) -> None:
        """Note that something has happened to each node that is audited now.

        Its audit may have begun too early to see it.
        """
        with self._lock:
            self._touched.update(self._running)

    def note_provider_changes(self, nodes: Set[str]) -> None:
        """Note that others have changed what placement has of some nodes.

        They may have taken the nodes: a compute service that joined and was
        disabled since the last audit did so unseen.
        """
        if nodes:
            self._auditor.doubt()
        with self._lock:
            self._touched |= nodes
            self._drifted |= nodes

    @contextlib.contextmanager
    def auditing(self, node: str) -> Iterator[None]:
        """Note that the tracker audits a node.

        It has succeeded if it has reported the node (:meth:`touch`).
        """
        current = self._current
        basis = current.basis = self._basis(node, self._auditor.last)
        with self._lock:
            last = self._audited.get(node)
            # Within 300 s nova would read nothing by itself.
            current.anew = node in self._drifted or (
                last is not None and tracker_schedule.is_over(
                    node, last, self._clock(), self._interval))
            current.last = (None if current.anew or node in self._recent
                            else last)
            self._drifted.discard(node)
            self._touched.discard(node)
            self._held.discard(node)
            self._recent -= {node}
            self._tried.add(node)
            self._running.append(node)
        current.node, current.reported, current.odd = node, False, False
        done = False
        try:
            yield
            done = current.reported
        finally:
            current.node = None
            with self._lock:
                self._running.remove(node)
                # Without an audit that has succeeded it stays due.
                self._audited.pop(node, None)
                if done and basis is not None:
                    self._audited[node] = tracker_schedule.NodeAudit(
                        basis, current.last.at if current.last is not None
                        else self._clock())
                if current.odd:
                    self._touched.add(node)
                if current.anew and not done:
                    self._drifted.add(node)

    def asks_anew(self, node: str) -> bool:
        """Whether this audit of a node is to ask placement anew."""
        return (getattr(self._current, 'node', None) == node
                and self._current.anew)

    def may_spare(self, node: str) -> bool:
        """Whether this audit may use what placement has said before.

        If the generation of the provider is still the same. Once in an
        interval placement is asked for all: with a client before microversion
        1.19 aggregates change without a new generation.
        """
        return (getattr(self._current, 'node', None) == node
                and self._current.last is not None)

    def note_used(self, node: str, row: NodeRow | None) -> None:
        """Note the inputs of an audit of a node.

        A decision is known a moment before nova's driver has it, and an audit
        may begin in between.

        :param row: None if Ironic was asked for the node alone, just now.
        """
        current = self._current
        if (getattr(current, 'node', None) == node and row is not None
                and current.basis is not None
                and current.basis.node != row):
            current.odd = True

    def is_due(self, node: str) -> bool:
        """Whether a node is to be audited now."""
        audit = self._auditor.last
        if audit is None or not self._tracker.has(node):
            return True
        basis = self._basis(node, audit)
        with self._lock:
            return (basis is None or node in self._touched
                    or node in self._recent or tracker_schedule.due(
                        basis, self._audited.get(node), self._clock(),
                        self._interval))

    def next_of(self, nodes: Iterable[str]) -> list[str]:
        """Return the nodes that nova is to visit in an audit of all nodes.

        Those that it has to take, and few others, as the rest comes in the
        background; builds wait for this while the service starts.

        :param nodes: uuids of all of them.
        """
        due = list(filter(self.is_next, nodes))
        new = [node for node in due if not self._tracker.has(node)]
        if self._until is not None:
            return new[:FIRST]
        known = (node for node in due if self._tracker.has(node))
        return [*new, *itertools.islice(known, FIRST)]

    def is_next(self, node: str) -> bool:
        """Whether nova is to audit a node now that it has come to it."""
        until = self._until
        return (until is None or self._clock() < until) and (
            node not in self._deferred and self.is_due(node))

    def waiting(self) -> list[str]:
        """Return the nodes that are to be audited, in order.

        Without those that are still to be taken. Nodes that were tried in
        vain, or of which it cannot be seen whether they have changed, are left
        to nova's next audit of all nodes.
        """
        audit = self._auditor.last
        if audit is None:
            return []
        with self._lock:
            tried, audited = set(self._tried), set(self._audited)
        due = [node for node, row in audit.nodes.items()
               if (node not in tried or node in audited
                   and row.body is not None)
               and (audit.reasons.get(node) not in tracker_schedule.COMING
                    or self._tracker.has(node)) and self.is_due(node)]
        return tracker_schedule.order(due, audited, (
            node for node in due if audit.nodes[node].instance is not None))

    def _basis(self, node: str, audit: Audit | None
               ) -> tracker_schedule.NodeInputs | None:
        row = audit.nodes.get(node) if audit is not None else None
        reason = audit.reasons.get(node) if audit is not None else None
        if row is None or reason is None:
            return None
        return tracker_schedule.NodeInputs(row, reason, self._era)
