# SPDX-License-Identifier: Apache-2.0

"""Late checks: whether what an audit decided still holds when it is done.

An audit of many nodes lasts minutes, and the tracker moves a record whoever
owns it by then (nova: ResourceTracker._init_compute_node). So each node is
judged once more right before it is taken, and before placement is told of it.
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
    """What placement is to be told of a node."""

    AS_IRONIC_SAYS = 'what Ironic says of it'
    NOTHING = 'it is reserved, no server may be built on it'
    REFUSED = "it is another compute service's to speak for"


class Recheck:
    """Judges the nodes that an auditor has decided on.

    :param auditor: the auditor.
    :param tracker: nova's resource tracker.
    :param ending: says whether this service is about to end: it then takes
        nothing more.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 ending: Callable[[], bool] = lambda: False) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._ending = ending
        # A ring takes milliseconds to be made.
        self._preferences: ring.Preferences | None = None

    def may_take(self, node: str) -> bool:
        """Whether the tracker may go for a node, or has its record.

        By what was decided; what it reads then it shows to
        :meth:`still_valid`.
        """
        return (self._auditor.last is None or self._tracker.has(node)
                or self._auditor.is_mine(node))

    def may_create(self, node: str, settings: Settings) -> bool:
        """Whether the tracker may create the record of a node.

        Compute services without nodes do not see each other before each has
        created a record (at their first start they do, see :mod:`.collect`),
        and each would create all of them; and of two that create one record
        at the same time both succeed (nova.db.main.api:compute_node_create
        takes the one that is there). So who is there is read before each.
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
        of placement would hide for minutes.
        """
        audit = self._auditor.last
        return audit is not None and (
            node in audit.recent or not self._tracker.has(node))

    def of(self, node: str) -> Offer:
        """Say what placement may be told of a node.

        A node that is pulled is offered again when its record has moved. If
        a build gets in between, placement refuses the change, whose
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

        :param node: uuid of a node.
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
        """Return the records that can become this host's as they are.

        As of this moment, of hosts that are down: nothing has to be told to
        placement or in the record for one that stays in its aggregates and in
        its partition. The free nodes of a host that was disabled may be marked
        as such in placement, which their audits change. Of a node with a
        server that rests nothing matters that Ironic or that mark say of it:
        what the server has allocated nobody else gets. One that is being
        deleted may have left a machine to be cleaned.

        :param nodes: uuids of nodes that are mine by the last audit, and that
            have a server or are as free in Ironic as they were.
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
        """Return the records that can be pulled as they are.

        As of this moment; a member has marked none of its nodes, nor has one
        that was told to end, and for the rest see :meth:`to_move`.

        :param nodes: uuids of nodes that are as free in Ironic as they were.
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
    """Whether an instance is on a host, and nobody does anything with it."""
    return (state is not None and ownership.is_here(state, host)
            and takeover.rests(state.vm_state, state.task_state))


def _may_be_gone(audit: Audit, node: str) -> bool:
    """Whether another may have taken a node of mine since the audit began."""
    host = audit.view.host
    return not audit.preferences.prefers(
        host, node, audit.preferences.members.get(host))
