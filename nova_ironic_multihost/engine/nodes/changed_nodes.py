# SPDX-License-Identifier: Apache-2.0

"""Finds nodes that Ironic or another client of placement has changed.

A node that changes in Ironic reaches its compute service and placement in
seconds, not at nova's next audit. The tracker would notice a changed
resource provider at each audit of its node, but unchanged nodes are not
audited here (:mod:`.due_nodes`).
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules import incremental

#: The most nodes to audit at a time; builds may wait for that.
TOGETHER = 50


class IronicChanges:
    """Has changed nodes audited, all in one thread."""

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 due: Callable[[str], bool],
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._due = due
        self._ending = ending
        self._serial = 0
        #: Waiting node -> serial of the mirror that showed its change.
        self._waiting: Mapping[str, int] = {}

    def once(self, settings: Settings) -> bool:
        """Audit changed nodes; return whether some are left for later.

        Nothing before the first full audit. Such an audit decides older
        changes; of those only nodes that are due are audited here.
        """
        last = self._auditor.last
        if last is None:
            return False
        mirror = self._auditor.read(settings, often=True)
        self._waiting = {**self._waiting, **dict.fromkeys(
            sorted(mirror.changed_since(self._serial)), mirror.serial)}
        self._serial = mirror.serial
        decided = self._auditor.serial
        self._waiting = {
            node: serial for node, serial in self._waiting.items()
            if serial > decided or node in last.nodes and self._due(node)}
        some = sorted(
            self._waiting, key=lambda node: node not in last.nodes)[:TOGETHER]
        if not some:
            return False
        serials = {node: self._waiting[node] for node in some}
        others = {node: serial for node, serial in self._waiting.items()
                  if node not in serials}

        def take(audit: Audit, mine: list[str]) -> None:
            for node in mine:
                if self._ending():
                    return
                self._tracker.audit(node)

        # If they fail, they come last the next time.
        self._waiting = {**others, **serials}
        self._auditor.audit_changed(settings, some, take)
        self._waiting = others
        return bool(others)


LOG = logging.getLogger(__name__)

#: The most seconds between two reads, and the seconds after a failed one.
LISTING, RETRY = 600, 120


class ProviderChanges:
    """Reads the generations now and then; one thread calls :meth:`once`.

    Placement returns the generations of all providers in one reply.

    :param known: returns generations at the last audits; for the first reply.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 note: Callable[[Set[str]], None],
                 known: Callable[[Iterable[str]], dict[str, int]],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = LISTING * incremental.moment(host)
        self._auditor = auditor
        self._note = note
        self._known = known
        self._clock = clock
        #: Of this host's nodes, in the last reply.
        self._generations: dict[str, int] | None = None
        self._next = 0.0

    def expect(self, node: str, before: int, after: int) -> None:
        """Note that this host has changed the generation of a provider."""
        known = self._generations
        # A reply in between costs one needless audit of the node.
        if known is not None and known.get(node) == before:
            known[node] = after

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
