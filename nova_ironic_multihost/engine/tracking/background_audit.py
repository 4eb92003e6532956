# SPDX-License-Identifier: Apache-2.0

"""Audits single nodes in the background; nova does not wait for them.

Every few seconds it audits the nodes that are due by :mod:`.due_nodes`: after
a start the nodes not audited yet, later those with an audit that is too old.
"""

from collections.abc import Callable

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.engine.tracking.due_nodes import DueNodes

LOG = logging.getLogger(__name__)

#: Nodes to audit before the due ones are read again; and the number of due
#: nodes from which on that is logged.
TOGETHER, MANY = 50, 200


class BackgroundAudit:
    """Audits due nodes in one thread, unless ``resting`` says to pause."""

    def __init__(self, due_nodes: DueNodes, tracker: Tracker,
                 resting: Callable[[], bool] = lambda: False) -> None:
        self._due_nodes = due_nodes
        self._tracker = tracker
        self._resting = resting

    def once(self) -> None:
        """Audit the due nodes, each once."""
        if self._resting():
            return
        waiting, done = self._due_nodes.waiting(), set[str]()
        many = len(waiting) >= MANY
        if many:
            LOG.info('Auditing %d nodes in the background; builds go on '
                     'meanwhile.', len(waiting))
        while waiting:
            some = waiting[:TOGETHER]
            self._spare(some)
            for node in some:
                if self._resting():
                    return
                done.add(node)
                # nova may have audited it meanwhile.
                if self._due_nodes.is_due(node):
                    self._tracker.audit(node)
            waiting = [node for node in self._due_nodes.waiting()
                       if node not in done]
        if many:
            LOG.info('%d nodes were audited in the background.', len(done))

    def _spare(self, nodes: list[str]) -> None:
        try:
            self._due_nodes.skip_unchanged(nodes)
        except Exception as exc:  # noqa: BLE001
            LOG.debug('Placement did not say whether new nodes have changed, '
                      'so they are audited: %s', exc)
