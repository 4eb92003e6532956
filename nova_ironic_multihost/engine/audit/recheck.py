# SPDX-License-Identifier: Apache-2.0

"""Checks right before a node is taken whether the decision still holds.

An audit of many nodes takes minutes, and nova's tracker moves a record
whatever its owner is by then (ResourceTracker._init_compute_node).
"""

from collections.abc import Callable
from collections.abc import Iterable
import enum
import functools

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.audit import decide
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.rules import tracker_schedule

#: Nodes that no server may be built on, whatever Ironic says of them.
BARRED = frozenset({
    Reason.BUILDING, Reason.LEAKED, Reason.UNKNOWN, Reason.UNLISTED})

#: Nodes whose records may be moved without an audit.
_MOVED = ownership.SERVED | {Reason.ADOPTED}


class Offer(enum.Enum):
    """What placement is told of a node."""

    AS_IRONIC_SAYS = 'what Ironic says of it'
    NOTHING = 'it is reserved, no server may be built on it'
    REFUSED = "it is another compute service's to speak for"


class Recheck:
    """Checks the nodes that an auditor has decided on.

    :param ending: returns whether this service is about to stop: it then takes
        no more nodes.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._ending = ending
        # A ring takes milliseconds to be made.
        self._preferences: ring.Preferences | None = None

    def may_take(self, node: str) -> bool:
        """Whether the tracker may read the record of a node, or has it.

        By the last decision; :meth:`still_valid` gets the record.
        """
        return (self._auditor.last is None or self._tracker.has(node)
                or self._auditor.is_mine(node))

    def may_create(self, node: str, settings: Settings) -> bool:
        """Whether the tracker may create the record of a node.

        Compute services without nodes see each other only when each has
        created a record (but for their first start, :mod:`.collect`), so each
        would create all of them. And if two create one record at the same
        time, both succeed (nova.db.main.api:compute_node_create takes an
        existing one). So the services are read before each record.
        """
        def preferred() -> bool:
            self._preferences = self._auditor.preferences_now(
                settings, self._preferences or self._auditor.preferences)
            return self._preferences.prefers(host_key(settings.host), node)

        reason = self._auditor.reason(node)
        return not (self._ending() or self._auditor.is_barred(node)) and (
            reason is None or ownership.may_create(reason, preferred))

    def is_new(self, node: str) -> bool:
        """Whether placement must be asked for a node as if for the first time.

        For a while the former owner still sets traits of a node that moved
        (ComputeManager._update_compute_provider_status), which nova's cache
        would hide for minutes.
        """
        audit = self._auditor.last
        return audit is not None and (
            node in audit.recent or not self._tracker.has(node))

    def of(self, node: str) -> Offer:
        """Return what placement may be told of a node.

        A node that is pulled is offered again when its record has moved. If a
        build gets in between, placement refuses the change, since the
        generation was read before, and nova asks again.
        """
        audit = self._auditor.last
        reason = self._auditor.reason(node)
        if (reason in tracker_schedule.CAME
                and self._tracker.has(node) and not self.still_valid(node)):
            # Its record was moved, and it has been pulled since.
            return Offer.REFUSED
        if audit and reason is Reason.KEPT and (
                self._ending() or self._auditor.in_doubt
                or _may_be_gone(audit, node)) and (
                    not self.still_valid(node)):
            return Offer.REFUSED
        if (reason is not None and not reason.mine
                and not self._tracker.has(node)):
            # A look has decided on it anew while the tracker takes it.
            return Offer.REFUSED
        if reason is Reason.PULLED and not self._tracker.has(node):
            if decide.in_use(self._auditor.sources, node):
                return Offer.REFUSED
            return Offer.NOTHING
        return Offer.NOTHING if reason in BARRED else Offer.AS_IRONIC_SAYS

    def still_valid(self, node: str, record: Record | None = None) -> bool:
        """Whether a node that is about to become mine still may.

        :param record: its record of this moment, if it has been read.
        """
        audit = self._auditor.last
        reason = audit.reasons.get(node) if audit else None
        if audit is None or reason is None or not reason.mine:
            return False
        sources = self._auditor.sources
        record = record or next(iter(sources.records([node])), None)
        if record is None or record.owner == audit.view.host:
            return True
        if self._ending() or self._auditor.is_barred(node):
            return False
        known = audit.nodes.get(node)
        instance = known.instance if known else None
        host = record.host
        return ownership.still_valid(
            reason, audit.owners.get(node), record.owner, audit.view.host,
            lambda: self._auditor.live(host),
            lambda: sources.instance_states([instance]).get(
                instance) if instance else None)

    def to_move(self, nodes: Iterable[str], label: str) -> list[Record]:
        """Return the records of dead hosts that can become mine as they are.

        Neither placement nor the record need a change for a node that stays in
        its aggregates and its partition. The free nodes of a disabled host may
        carry its trait in placement, which their audits change. A node with a
        server at rest needs nothing: only that server can use it. One that is
        being deleted may leave a machine to be cleaned.

        :param nodes: uuids of my nodes by the last audit that have a server or
            are still free in Ironic.
        :param label: of the partition of this host.
        """
        audit = self._auditor.last
        if audit is None or self._ending():
            return []
        sources, me = self._auditor.sources, audit.view.host
        known = audit.host_aggregates
        wanted = [node for node in nodes
                  if audit.reasons.get(node) in _MOVED
                  and not self._auditor.is_barred(node)
                  and not self._tracker.has(node)]
        records = [
            record for record in sources.records(wanted)
            if record.owner is not None and record.partition == label
            and known.of(record.owner) == known.of(me)] if wanted else []
        service = functools.cache(sources.service)
        found = [record for record in records if ownership.still_valid(
            Reason.ADOPTED, audit.owners.get(record.node), record.owner, me,
            functools.partial(self._auditor.live, record.host, service),
            lambda: None)]
        served = {record.node: audit.nodes[record.node].instance or ''
                  for record in found
                  if audit.reasons[record.node] in ownership.SERVED}
        marked = {record.node for record in found
                  if record.node not in served and record.owner != me
                  and ((owner := service(record.host)) is None
                       or owner.disabled)}
        states = (sources.instance_states(list(served.values()))
                  if served else {})
        return [record for record in found if (
            _rests_here(states.get(served[record.node]), me)
            if record.node in served else record.node not in marked)]

    def to_pull(self, nodes: list[str], label: str) -> list[Record]:
        """Return the records of live hosts that can be pulled as they are.

        As :meth:`to_move`; a member's nodes carry no trait, nor do those of a
        stopping host.

        :param nodes: uuids of nodes that are still free in Ironic.
        :param label: of the partition of this host.
        """
        audit = self._auditor.last
        wanted = [node for node in nodes if audit is not None
                  and audit.reasons.get(node) is Reason.PULLED
                  and not self._tracker.has(node)]
        if audit is None or self._ending() or not wanted:
            return []
        me, known = audit.view.host, audit.host_aggregates
        return [
            record for record in self._auditor.sources.records(wanted)
            if record.owner is not None
            and record.owner == audit.owners.get(record.node)
            and (audit.view.member(record.owner)
                 or audit.view.gone(record.owner))
            and record.partition == label
            and known.of(record.owner) == known.of(me)]


def _rests_here(state: InstanceState | None, host: HostKey) -> bool:
    """Whether an instance is on a host, without an operation."""
    return (state is not None and ownership.is_here(state, host)
            and takeover.rests(state.vm_state, state.task_state))


def _may_be_gone(audit: Audit, node: str) -> bool:
    """Whether a peer may have taken a node of mine since the audit began."""
    host = audit.view.host
    return not audit.preferences.prefers(
        host, node, audit.preferences.members.get(host))
