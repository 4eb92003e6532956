# SPDX-License-Identifier: Apache-2.0

"""Audits nodes that change in Ironic between two audits.

A node that an operator or Ironic has changed or created reaches its compute
service and placement in seconds, not at nova's next audit.
"""

from collections.abc import Callable
from collections.abc import Mapping

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules.mirror import NodeRow

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

    def once(self, settings: Settings,
             then: Callable[[Mapping[str, NodeRow]], None]) -> bool:
        """Audit changed nodes; return whether some are left for later.

        Nothing before the first full audit. Such an audit decides older
        changes; of those only nodes that are due are audited here.

        :param then: called with {uuid: row} of owned nodes before their audit.
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

        # If they fail, they come last the next time.
        self._waiting = {**others, **serials}
        self._auditor.audit_changed(settings, some, take)
        self._waiting = others
        return bool(others)
