# SPDX-License-Identifier: Apache-2.0

"""Finds nodes with a provider that another client of placement changed.

nova's tracker would notice at each audit of a node, but unchanged nodes are
not audited here (:mod:`.due_nodes`). Placement returns the generations of all
resource providers in one reply.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Set
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.rules import incremental

LOG = logging.getLogger(__name__)

#: The most seconds between two reads, and the seconds after a failed one.
LISTING, RETRY = 600, 120


class ProviderChanges:
    """Reads the generations now and then; one thread calls :meth:`once`.

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
        found = self._auditor.sources.generations()
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
