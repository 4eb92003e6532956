# SPDX-License-Identifier: Apache-2.0

"""The changes: nodes that change in Ironic between two audits.

A node that an operator or Ironic has changed, or created, is known to its
compute service and to placement in seconds, however far apart nova's audits
are.
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
    """Has what has changed audited. One thread uses it.

    :param auditor: reads what has changed, and audits it.
    :param tracker: nova's resource tracker.
    :param due: says whether nova's tracker has still to come to a node that is
        mine, see :meth:`.engine.tracking.due_nodes.DueNodes.is_due`.
    :param ending: says whether this service is about to end.
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
        """Look once.

        Nothing before the first audit of all nodes. What such an audit has
        decided on is left to it, but nova's tracker takes minutes to come to
        all that is mine: only where it has been already.

        :param then: called with {uuid: node} of those that are mine, before
            the tracker audits them.
        :returns: whether others wait: :data:`TOGETHER` are done.
        :raises Exception: what there is cannot be known; it is tried again.
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
