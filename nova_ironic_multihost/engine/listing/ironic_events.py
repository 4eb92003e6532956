# SPDX-License-Identifier: Apache-2.0

"""The hints: nodes of which Ironic has said that something happens to them.

A hint is never taken for what has happened. It says which node is read anew,
and that Ironic is asked at once what has changed; whatever it does not say is
found by asking every few seconds (:mod:`.ironic_changes`).
"""

from collections.abc import Callable
import threading

from nova_ironic_multihost.engine.audit.auditor import Auditor
from nova_ironic_multihost.engine.listing.lister import Lister
from nova_ironic_multihost.rules import incremental

#: Of more nodes than these between two questions none is read for itself:
#: Ironic lists what was touched last, a page for as many nodes and more.
FEW = 20


class IronicEvents:
    """Takes hints in whatever thread, and follows them in another one.

    :param auditor: knows which nodes are mine.
    :param reader: reads nodes anew.
    :param wake: called when Ironic is to be asked soon; may be called often.
    """

    def __init__(self, auditor: Auditor, reader: Lister,
                 wake: Callable[[], None]) -> None:
        self._auditor = auditor
        self._reader = reader
        self._wake = wake
        # Guards _nodes; nothing is asked while it is held.
        self._lock = threading.Lock()
        self._nodes: set[str] = set()

    def take(self, node: str, came: bool = False) -> None:
        """Note that something happens to a node.

        Every compute service is told of every node. Those that others have
        are theirs to ask for.

        :param node: uuid; of whatever partition, or of no node at all.
        :param came: whether it may be one that was not there before.
        """
        if not self._concerns_me(node, came):
            return
        with self._lock:
            if len(self._nodes) <= FEW:
                self._nodes.add(node)
        self._wake()

    def follow(self) -> None:
        """Have read anew what was noted, before Ironic is asked.

        More than :data:`FEW` nodes are left to the list of what was touched
        last, which says the same unless the clocks of Ironic differ
        (:mod:`.rules.mirror`).
        """
        with self._lock:
            nodes, self._nodes = self._nodes, set()
        if len(nodes) <= FEW:
            for node in sorted(nodes):
                self._reader.forget(node)

    def _concerns_me(self, node: str, came: bool) -> bool:
        reason = self._auditor.reason(node)
        if reason is not None:
            return reason.mine or reason in incremental.AT_ONCE
        return came or node in self._reader.mirror.nodes
