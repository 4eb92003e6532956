# SPDX-License-Identifier: Apache-2.0

"""The recheck of a node right before it is taken or reported to placement.

An audit of many nodes lasts minutes, and nova's tracker moves a record
regardless of its owner (ResourceTracker._init_compute_node).
"""

from collections import abc
import enum
import functools

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.audit import decide
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

#: Reasons of nodes that are reserved even if they are available in Ironic.
RESERVED = frozenset({
    Reason.BUILDING, Reason.LEAKED, Reason.UNKNOWN, Reason.UNLISTED})

#: Reasons of nodes with records that may move without an audit.
_MOVED = ownership.SERVED | {Reason.ADOPTED}


class Offer(enum.Enum):
    """What to report to placement about a node."""

    AS_IRONIC_SAYS = 'the inventory that Ironic has'
    NOTHING = 'it is reserved, no server may be built on it'
    REFUSED = 'nothing, another compute service reports it'


class Recheck:
    """Rechecks the nodes of an audit; takes no more when ``ending``."""

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 ending: abc.Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._ending = ending

    def may_take(self, node: str) -> bool:
        """Whether the tracker may take a node, or holds its record."""
        return (self._auditor.last is None or self._tracker.has(node)
                or self._auditor.is_mine(node))

    def may_create(self, node: str, settings: Settings) -> bool:
        """Whether the tracker may create the record of a node.

        The services are read before each creation. Services without nodes do
        not see each other until each has created its first record, and would
        create all records. Of two that create one record both succeed:
        nova.db.main.api:compute_node_create returns the existing row.
        """
        reason = self._auditor.reason(node)
        return not (self._ending() or self._auditor.is_barred(node)) and (
            reason is None or ownership.may_create(
                reason, lambda: self._auditor.refresh_ring(settings).prefers(
                    host_key(settings.host), node)))

    def of(self, node: str) -> Offer:
        """Return what may be reported to placement about a node.

        A node in a rebalance is reserved until its record has moved. If a
        build claims it first, the generation has changed: placement refuses
        the update and nova asks again.
        """
        audit = self._auditor.last
        reason = self._auditor.reason(node)
        if (reason in incremental.CAME
                and self._tracker.has(node) and not self.still_valid(node)):
            # The record moved here, and a peer has taken it since.
            return Offer.REFUSED
        if audit and reason is Reason.KEPT and (
                self._ending() or self._auditor.in_doubt
                or _is_due_to_leave(audit, node)) and (
                    not self.still_valid(node)):
            return Offer.REFUSED
        if (reason is not None and not reason.mine
                and not self._tracker.has(node)):
            # The peer poll changed the decision during the audit.
            return Offer.REFUSED
        if reason is Reason.PULLED and not self._tracker.has(node):
            if decide.in_use(self._auditor.cloud, node):
                return Offer.REFUSED
            return Offer.NOTHING
        return Offer.NOTHING if reason in RESERVED else Offer.AS_IRONIC_SAYS

    def still_valid(self, node: str, record: Record | None = None) -> bool:
        """Whether this host may still take a node; ``record`` if just read."""
        audit = self._auditor.last
        reason = audit.reasons.get(node) if audit else None
        if audit is None or reason is None or not reason.mine:
            return False
        cloud = self._auditor.cloud
        record = record or next(iter(cloud.records([node])), None)
        if record is None or record.owner == audit.view.host:
            return True
        if (self._ending() or self._auditor.is_barred(node)
                or self._auditor.heartbeats.excluded
                and reason not in ownership.SERVED):
            return False
        known = audit.nodes.get(node)
        instance = known.instance if known else None
        host = record.host
        return ownership.still_valid(
            reason, audit.owners.get(node), record.owner, audit.view.host,
            lambda: self._auditor.heartbeats.lives(host),
            lambda: cloud.instance_states([instance]).get(
                instance) if instance else None)

    def to_move(self, nodes: abc.Iterable[str], label: str) -> list[Record]:
        """Return the records of dead hosts that can move without an audit.

        The partition and the host aggregates must be the same. A node with an
        idle server always qualifies: its allocation protects it. A free node
        of a disabled host does not, because its audit must remove the trait. A
        server that is being deleted may leave a machine to clean.

        :param nodes: owned by the last audit; with a server, or as free in
            Ironic as they were.
        """
        audit = self._auditor.last
        if audit is None:
            return []
        cloud, me = self._auditor.cloud, audit.view.host
        records = self._records(audit, nodes, (
            ownership.SERVED if self._auditor.heartbeats.excluded
            else _MOVED), label)
        service = functools.cache(cloud.service)
        found = [record for record in records if ownership.still_valid(
            Reason.ADOPTED, audit.owners.get(record.node), record.owner, me,
            functools.partial(
                self._auditor.heartbeats.lives, record.host, service),
            lambda: None)]
        served = {record.node: audit.nodes[record.node].instance or ''
                  for record in found
                  if audit.reasons[record.node] in ownership.SERVED}
        marked = {record.node for record in found
                  if record.node not in served and record.owner != me
                  and ((owner := service(record.host)) is None
                       or owner.disabled)}
        states = (cloud.instance_states(list(served.values()))
                  if served else {})
        return [record for record in found if (
            _is_idle_here(states.get(served[record.node]), me)
            if record.node in served else record.node not in marked)]

    def to_pull(self, nodes: list[str], label: str) -> list[Record]:
        """Return the records of live hosts that can move without an audit.

        As :meth:`to_move`; members and stopping hosts set no trait.
        """
        audit = self._auditor.last
        if audit is None or self._auditor.heartbeats.excluded:
            return []
        return [
            record for record in self._records(
                audit, nodes, {Reason.PULLED}, label)
            if record.owner == audit.owners.get(record.node)
            and (audit.view.member(record.owner)
                 or audit.view.gone(record.owner))]

    def _records(self, audit: Audit, nodes: abc.Iterable[str],
                 reasons: abc.Set[Reason], label: str) -> list[Record]:
        """Read the records of the nodes that nothing but an owner hinders."""
        known, me = audit.host_aggregates, audit.view.host
        wanted = [node for node in nodes if audit.reasons.get(node) in reasons
                  and not self._auditor.is_barred(node)
                  and not self._tracker.has(node)]
        return [
            record for record in self._auditor.cloud.records(wanted)
            if record.partition == label
            and known.of(record.owner) == known.of(me)
        ] if wanted and not self._ending() else []


def _is_idle_here(state: InstanceState | None, host: HostKey) -> bool:
    return (state is not None and ownership.is_here(state, host)
            and takeover.rests(state.vm_state, state.task_state))


def _is_due_to_leave(audit: Audit, node: str) -> bool:
    """Whether the ring prefers another host, which may have the node now."""
    host = audit.view.host
    return not audit.preferences.prefers(
        host, node, audit.preferences.members.get(host))
