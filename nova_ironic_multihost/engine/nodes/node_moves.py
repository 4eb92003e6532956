# SPDX-License-Identifier: Apache-2.0

"""Move idle nodes of live services here, and nodes of dead ones for builds.

nova's tracker takes a node by an audit of 0.1 s, in which claims wait. Here a
few nodes are taken at once, as in :mod:`.peer_poll`, and audited later in the
background (:mod:`.due_nodes`). nova's tracker takes the nodes that fail here.
"""

from collections import abc

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.audit.recheck import Recheck
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.engine.nodes.due_nodes import DueNodes
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules.peers import host_key

LOG = logging.getLogger(__name__)

#: Nodes that are taken at once; claims wait for that.
AT_ONCE = 8

#: Failed nodes until nova's tracker gets the rest: claims wait for each.
FAILURES = 2


class Rebalancer:
    """Pulls the nodes that audits have decided on. Several threads use it.

    :param free: whether a node is free in Ironic.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 due_nodes: DueNodes, recheck: Recheck,
                 free: abc.Callable[[str], bool],
                 recorder: Metrics | None = None) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._due_nodes = due_nodes
        self._recheck = recheck
        self._free = free
        self._recorder = recorder or Metrics()
        #: Records of the last pull. The audit has read this host's records
        #: before, so the tracker needs these to keep the nodes.
        self.records: tuple[Record, ...] = ()

    def once(self, label: str) -> None:
        """Pull nodes of the audit, a few at a time, until a pull fails."""
        audit, self.records = self._auditor.last, ()
        if audit is None:
            return
        pulled = self.pull(sorted(
            node for node in audit.nodes
            if audit.reasons.get(node) is Reason.PULLED), label)
        self._due_nodes.defer(pulled.keys())
        self.records = tuple(pulled[node] for node in sorted(pulled))

    def pull(self, nodes: abc.Iterable[str], label: str,
             work: Work = Work.AUDIT) -> dict[str, Record]:
        """Pull nodes; those that fail stay as they are.

        :param label: of the partition of this host.
        :returns: uuid -> record of the nodes that are this host's now.
        """
        pulled: dict[str, Record] = {}
        found: dict[str, Record] = {}
        #: Records of the current batch, before and after the reservation.
        judged: list[list[Record]] = []
        failed = 0

        def judge(idle: list[str]) -> list[Record]:
            records = self._recheck.to_pull(idle, label)
            found.update((record.node, record) for record in records)
            judged.append(records)
            return records

        free = [node for node in nodes if self._free(node)]
        for first in range(0, len(free), AT_ONCE):
            self._recorder.sign(work)
            judged.clear()
            try:
                some = self._tracker.pull(
                    free[first:first + AT_ONCE], judge)
            except Exception as exc:  # noqa: BLE001
                LOG.debug('Nodes could not be pulled together: %s', exc)
                break
            pulled.update((node, found[node]) for node in some)
            if not judged:
                break
            failed += len(judged[0]) - len(some)
            if failed >= FAILURES:
                break
        return pulled


def adopt(auditor: auditors.Auditor, tracker: Tracker,
          acquired: abc.Callable[[Audit, list[str]], None], settings: Settings,
          build: str, node: str | None) -> bool:
    """Take the node of a build, if a dead host has it; raises nothing.

    An allocated node waits for its dead owner, as that host's RPC queue may
    have the build. After :mod:`.engine.builds.queue_forwarder` has handed the
    build on, its new host takes the node by the same rules, without a wait. If
    it cannot be taken, nova sends the build to another node. Threads of builds
    call this at once.

    :param build: uuid of the instance.
    :returns: whether the node or instances of the host may be taken now.
    """
    def take(audit: Audit, mine: list[str]) -> None:
        acquired(audit, mine)
        for one in mine:
            tracker.drop(one)
            tracker.audit(one)

    last = auditor.last
    if node is None or last is None or tracker.has(node):
        return False
    try:
        record = next(iter(auditor.cloud.records([node])), None)
        if (record is None or record.owner == host_key(settings.host)
                or auditor.heartbeats.lives(record.host)):
            return False
        reasons = auditor.audit_hosts(
            settings, [record.host], take, last.view.hosts,
            only=frozenset({node}), builds=frozenset({build}))
    except Exception as exc:  # noqa: BLE001
        LOG.warning('The node of build %(build)s could not be taken from '
                    'a compute service that is down: %(exc)s. nova sends '
                    'the build to another node.',
                    {'build': build, 'exc': exc})
        return True
    LOG.info('Build %(build)s was sent to compute service %(host)s, which '
             'is down. Its node is now %(reason)s.', {
                 'build': build, 'host': record.host,
                 'reason': reasons[node].value if node in reasons
                 else 'not available'})
    return True
