# SPDX-License-Identifier: Apache-2.0

"""Finds nodes that others have changed in placement.

nova's tracker compares placement with its own data whenever it audits a node;
here unchanged nodes are not audited (:mod:`.due_nodes`). But each change
raises the generation of a resource provider, and one question returns all
generations.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Set
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.rules import tracker_schedule

LOG = logging.getLogger(__name__)

#: Seconds between two questions, at most, and until the next one when there
#: was no answer.
LISTING, RETRY = 600, 120


class ProviderChanges:
    """Asks placement now and then. One thread calls :meth:`once`.

    :param host: this host; each host asks at moments of its own.
    :param auditor: says which nodes there are.
    :param note: called with the uuids of nodes with changed providers.
    :param known: returns the generations at the last audits of some nodes; for
        the first answer.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 note: Callable[[Set[str]], None],
                 known: Callable[[Iterable[str]], dict[str, int]],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = LISTING * tracker_schedule.moment(host)
        self._auditor = auditor
        self._note = note
        self._known = known
        self._clock = clock
        #: Of this host's nodes, at the last answer.
        self._generations: dict[str, int] | None = None
        self._next = 0.0

    def expect(self, node: str, before: int, after: int) -> None:
        """Note that this host itself has changed the provider of a node.

        :param before: its generation when it was read.
        :param after: its generation since.
        """
        known = self._generations
        # If placement answers in between the node is audited once for nothing.
        if known is not None and known.get(node) == before:
            known[node] = after

    def once(self) -> None:
        """Ask placement if it is time to.

        A node that came since the last answer may have changed since it came.

        :raises Exception: placement does not answer.
        """
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
        drifted = tracker_schedule.drifted(
            {node: before.get(node) for node in audit.nodes},
            self._generations)
        if drifted:
            LOG.debug('The resource providers of %d nodes have changed.',
                      len(drifted))
            self._note(drifted)
