# SPDX-License-Identifier: Apache-2.0

"""Which nodes nova's tracker audits now, and which in the background.

:mod:`.rules.incremental` has the rule. nova's audits, builds, the peer
poll and :class:`BackgroundAudit` use :class:`DueNodes` in different threads. A
node that changes in Ironic, or a provider that another client of placement
changes, reaches placement within seconds, not at nova's next audit.
"""

from collections import abc
import contextlib
import dataclasses
import itertools
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers

LOG = logging.getLogger(__name__)

#: Seconds for which nova audits nodes at the start of the service; builds wait
#: for that. The other nodes are audited in the background.
START = 5

#: The most known nodes that nova audits itself in an audit of all.
FIRST = 250

#: Nodes that the background audits before it reads the due ones again; and
#: the number of due nodes from which on it writes log lines.
BACKGROUND_BATCH, BACKGROUND_MANY = 50, 200

#: The most seconds between two reads of the generations of providers, and the
#: seconds after a failed one.
LISTING, RETRY = 600, 120


@dataclasses.dataclass(eq=False)
class RunningAudit:
    """An audit of a node in one thread."""

    node: str
    basis: incremental.NodeInputs | None
    #: Whether it must bypass nova's cache of placement.
    uncached: bool
    #: The audit before, if data of an equal generation may be reused. Clients
    #: below microversion 1.19 change aggregates without a new generation.
    last: incremental.NodeAudit | None
    #: Placement has all of the node.
    reported: bool = False
    #: nova's driver used another row of the node.
    outdated: bool = False


class DueNodes:
    """Tells which nodes are due for an audit of the tracker."""

    def __init__(self, host: str, auditor: auditors.Auditor,
                 tracker: Tracker,
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._auditor = auditor
        self._tracker = tracker
        self._clock = clock
        self._lock = threading.Lock()
        #: Node -> its last successful audit.
        self._audited: dict[str, incremental.NodeAudit] = {}
        #: Nodes that have changed since their last audit began.
        self._changed: set[str] = set()
        #: Those to read without nova's cache of placement, which lasts 300 s.
        self._provider_changed: set[str] = set()
        #: Free nodes with an allocation at their last audit: a build has
        #: claimed them, or a next audit removes the allocation.
        self._allocated: set[str] = set()
        #: Nodes from other hosts, which may have changed them since.
        self._recent: frozenset[str] = frozenset()
        #: Nodes that nova leaves to the background.
        self._deferred: set[str] = set()
        #: Nodes tried since the last audit of all nodes began.
        self._tried: set[str] = set()
        #: Of the mirror when Ironic was last asked for changes.
        self._serial = 0
        #: Inputs of all audits.
        self._inputs: object = None
        #: How often this service was disabled or enabled in nova.
        self.switches = 0
        #: Seconds in which each node is audited.
        self._interval: float = 0
        #: When the start of the service is over, None afterwards.
        self._start_ends: float | None = None
        self._thread = threading.local()

    def begin(self, starting: bool) -> None:
        """Note that an audit of all nodes has begun."""
        audit = self._auditor.last
        nodes = audit.nodes.keys() if audit is not None else set()
        with self._lock:
            self._start_ends = self._clock() + START if starting else None
            self._tried.clear()
            self._audited = {node: success for node, success
                             in self._audited.items() if node in nodes}
            self._changed = (self._changed | self._allocated) & nodes
            self._allocated.clear()
            self._provider_changed &= nodes
            self._deferred.clear()
            self._recent = (frozenset(audit.recent & nodes)
                            if audit is not None else frozenset())

    def read_ironic(self, settings: Settings) -> bool:
        """Have changed nodes decided; return whether there are any.

        Nothing before the first audit of all nodes. One thread calls it.
        """
        if self._auditor.last is None:
            return False
        mirror = self._auditor.read(settings)
        changed = mirror.changed_since(
            max(self._serial, self._auditor.serial))
        if changed:
            self._auditor.audit_changed(settings, sorted(changed))
        self._serial = mirror.serial
        return bool(changed)

    def note_pulled(self, nodes: abc.Iterable[str]) -> None:
        """Note nodes taken a while ago: old owners may have set traits."""
        with self._lock:
            self._recent |= frozenset(nodes)

    def skip_unchanged(self, nodes: abc.Iterable[str]) -> None:
        """Skip audited nodes from peers that only this host changed since."""
        with self._lock:
            asked = sorted(
                self._recent & self._audited.keys() & frozenset(nodes))
        unchanged = self._tracker.unchanged(asked)
        with self._lock:
            self._recent -= unchanged

    def defer(self, nodes: abc.Set[str]) -> None:
        """Leave nodes that this host has taken to the background, once."""
        with self._lock:
            self._deferred |= nodes
            for node in nodes:
                # This host may have had it before.
                self._audited.pop(node, None)

    def ready(self) -> list[Record]:
        """Return records to claim unaudited: owned here before the start."""
        audit = self._auditor.last
        return [] if audit is None else [
            record for record in audit.records
            if record.host == self._host
            and audit.reasons.get(record.node) in incremental.READY]

    def follow(self, settings: Settings, view: peers.View) -> None:
        """Note the inputs of all audits."""
        audit = self._auditor.last
        me = view.services.get(view.host)
        # An audit sets COMPUTE_STATUS_DISABLED, which may have changed twice.
        common = (self.switches, me and me.disabled,
                  settings.partition.label,
                  audit.host_aggregates.of(view.host) if audit else None)
        self._interval, self._inputs = settings.audit_interval, common

    def touch(self, node: str, told: bool = True) -> None:
        """Note a change of a node, not ``told`` if placement may lack it."""
        if running := self.audit_of(node):
            # A moving record is reported too, before the tracker holds it
            # (ResourceTracker._init_compute_node).
            running.reported = told and self._tracker.has(node)
            return
        with self._lock:
            self._changed.add(node)
            if not told:
                # The failed audit may have read only a part.
                self._provider_changed.add(node)

    def note_allocated(self, node: str) -> None:
        """Note an allocation: a free node is audited again until it ends."""
        running = self.audit_of(node)
        if running and running.basis and running.basis.node.instance is None:
            with self._lock:
                self._allocated.add(node)

    def note_provider_changes(self, nodes: abc.Set[str]) -> None:
        """Note that another client of placement changed these providers."""
        if nodes:
            # A peer that joined since the audit may have taken the nodes.
            self._auditor.doubt()
        with self._lock:
            self._changed |= nodes
            self._provider_changed |= nodes

    @contextlib.contextmanager
    def auditing(self, node: str) -> abc.Iterator[None]:
        """Note an audit of a node; it succeeds if it calls :meth:`touch`."""
        audit = self._auditor.last
        with self._lock:
            last = self._audited.get(node)
            # By itself nova reads placement only every 300 s, and an old owner
            # may still set traits (_update_compute_provider_status).
            uncached = (
                node in self._provider_changed or not self._tracker.has(node)
                or audit is not None and node in audit.recent
                # A switch removes a trait that nova's copy does not have.
                or last is not None and (
                    last.basis.common != self._inputs
                    or incremental.interval_has_passed(
                        node, last, self._clock(), self._interval)))
            running = RunningAudit(
                node, self._basis(node, audit), uncached,
                None if uncached or node in self._recent else last)
            self._provider_changed.discard(node)
            self._changed.discard(node)
            self._allocated.discard(node)
            self._recent -= {node}
            self._tried.add(node)
        self._thread.running = running
        done = False
        try:
            yield
            done = running.reported
        finally:
            self._thread.running = None
            with self._lock:
                # Without a successful audit it stays due.
                self._audited.pop(node, None)
                if done and running.basis:
                    self._audited[node] = incremental.NodeAudit(
                        running.basis, running.last.at if running.last
                        else self._clock())
                if running.outdated:
                    self._changed.add(node)
                if uncached and not done:
                    self._provider_changed.add(node)

    def audit_of(self, node: str) -> RunningAudit | None:
        """Return this thread's audit of a node, if it is in one."""
        running: RunningAudit | None = getattr(self._thread, 'running', None)
        return running if running and running.node == node else None

    def note_used(self, node: str, row: NodeRow | None) -> None:
        """Note the row of an audit, None if just read; inputs may differ."""
        running = self.audit_of(node)
        if (running and row is not None and running.basis
                and running.basis.node != row):
            running.outdated = True

    def is_due(self, node: str) -> bool:
        """Whether a node is due for an audit."""
        audit = self._auditor.last
        if audit is None or not self._tracker.has(node):
            return True
        basis = self._basis(node, audit)
        with self._lock:
            return (basis is None or node in self._changed
                    or node in self._recent or incremental.audit_is_due(
                        basis, self._audited.get(node), self._clock(),
                        self._interval))

    def next_of(self, nodes: abc.Iterable[str]) -> list[str]:
        """Return those of all nodes that nova audits itself.

        At the start of the service up to :data:`FIRST` new nodes, because
        builds wait; later all new and up to :data:`FIRST` known ones.
        """
        due = list(filter(self.is_next, nodes))
        new = [node for node in due if not self._tracker.has(node)]
        if self._start_ends is not None:
            return new[:FIRST]
        known = (node for node in due if self._tracker.has(node))
        return [*new, *itertools.islice(known, FIRST)]

    def is_next(self, node: str) -> bool:
        """Whether nova audits this node itself, now that its turn has come."""
        until = self._start_ends
        return (until is None or self._clock() < until) and (
            node not in self._deferred and self.is_due(node))

    def waiting(self) -> list[str]:
        """Return the nodes for the background, in order.

        Nodes to take, failed ones and those without a body wait for nova.
        """
        audit = self._auditor.last
        if audit is None:
            return []
        with self._lock:
            tried, audited = set(self._tried), dict(self._audited)
        due = [node for node, row in audit.nodes.items()
               if (node not in tried or node in audited
                   and row.body is not None)
               and (audit.reasons.get(node) not in incremental.COMING
                    or self._tracker.has(node)) and self.is_due(node)]
        # A start has thousands of others.
        changed = {node for node in due if (
            audited[node].basis.node != audit.nodes[node] if node in audited
            else audit.reasons[node] is Reason.CREATED)}
        return incremental.audit_order(due, changed, audited.keys(), {
            node for node in due if audit.nodes[node].instance is not None})

    def _basis(self, node: str, audit: Audit | None
               ) -> incremental.NodeInputs | None:
        row = audit.nodes.get(node) if audit is not None else None
        reason = audit.reasons.get(node) if audit is not None else None
        if row is None or reason is None:
            return None
        return incremental.NodeInputs(row, reason, self._inputs)


class BackgroundAudit:
    """Audits due nodes, every few seconds; nova does not wait for them.

    These have changed, were not audited since the start, or have too old an
    audit. One thread calls it, and pauses while ``resting`` says so.
    """

    def __init__(self, due_nodes: DueNodes, tracker: Tracker,
                 resting: abc.Callable[[], bool] = lambda: False) -> None:
        self._due_nodes = due_nodes
        self._tracker = tracker
        self._resting = resting

    def once(self) -> None:
        """Audit the due nodes, each once."""
        if self._resting():
            return
        waiting, done = self._due_nodes.waiting(), set[str]()
        if len(waiting) >= BACKGROUND_MANY:
            LOG.info('%d nodes wait for their audit in the background; '
                     'builds go on meanwhile.', len(waiting))
        while waiting:
            some = waiting[:BACKGROUND_BATCH]
            # Without an answer of placement they are audited.
            with contextlib.suppress(Exception):
                self._due_nodes.skip_unchanged(some)
            for node in some:
                if self._resting():
                    return
                done.add(node)
                # nova may have audited it meanwhile.
                if self._due_nodes.is_due(node):
                    self._tracker.audit(node)
            waiting = [node for node in self._due_nodes.waiting()
                       if node not in done]


class ProviderChanges:
    """Reads the generations now and then; one thread calls :meth:`once`.

    Placement returns the generations of all providers in one reply.

    :param known: returns generations at the last audits; for the first reply.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 note: abc.Callable[[abc.Set[str]], None],
                 known: abc.Callable[[abc.Iterable[str]], dict[str, int]],
                 clock: abc.Callable[[], float] = time.monotonic) -> None:
        self._pause = LISTING * incremental.moment(host)
        self._auditor = auditor
        self._note = note
        self._known = known
        self._clock = clock
        #: Of this host's nodes, in the last reply.
        self._generations: dict[str, int] | None = None
        self._next = 0.0

    def once(self) -> None:
        """Read the generations, if it is time."""
        audit, now = self._auditor.last, self._clock()
        if audit is None or now < self._next:
            return
        self._next = now + RETRY
        found = self._auditor.cloud.generations()
        self._next = now + self._pause
        before = self._generations
        self._generations = {
            node: found[node] for node in audit.nodes if node in found}
        if before is None:
            before = self._generations | self._known(self._generations)
        drifted = incremental.drifted(
            {node: before.get(node) for node in audit.nodes},
            self._generations)
        if drifted:
            LOG.debug('The resource providers of %d nodes have changed.',
                      len(drifted))
            self._note(drifted)
