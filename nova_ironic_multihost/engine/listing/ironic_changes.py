# SPDX-License-Identifier: Apache-2.0

"""Audits nodes that change in Ironic between two audits of all nodes.

So nova and placement know of a change within seconds.
"""

from collections.abc import Callable
from collections.abc import Mapping

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules.mirror import NodeRow

#: The most nodes that are audited at a time; builds have to wait for some.
TOGETHER = 50


class IronicChanges:
    """Has changed nodes audited. One thread uses it.

    :param auditor: reads the changes, and audits them.
    :param tracker: nova's resource tracker.
    :param due: returns whether nova's tracker has still to audit a node
        (:meth:`.engine.tracking.due_nodes.DueNodes.is_due`).
    :param ending: returns whether this service is about to stop.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 due: Callable[[str], bool],
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._due = due
        self._ending = ending
        self._serial = 0
        #: Nodes that wait -> serial of the mirror that they were in.
        self._waiting: Mapping[str, int] = {}

    def once(self, settings: Settings,
             then: Callable[[Mapping[str, NodeRow]], None]) -> bool:
        """Look for changes once.

        Not before the first audit of all nodes. Nodes that such an audit has
        decided are left to it, unless the tracker, which takes minutes for
        all, has audited them already.

        :param then: called with {uuid: node} of my nodes, before the tracker
            audits them.
        :returns: whether others wait: :data:`TOGETHER` are done at a time.
        :raises Exception: something cannot be known; it is tried again.
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
            then({node: audit.nodes[node] for node in mine})
            for node in mine:
                if self._ending():
                    return
                self._tracker.audit(node)

        # They come last, should they fail.
        self._waiting = {**others, **serials}
        self._auditor.audit_changed(settings, some, take)
        self._waiting = others
        return bool(others)
