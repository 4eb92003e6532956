# SPDX-License-Identifier: Apache-2.0

"""Polls the peers, and audits the nodes that a change concerns.

Every few seconds between nova's audits; :mod:`.peer_changes` says what follows
from a change.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base import operator_log
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.engine.moves import peer_changes
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import stop_marker

LOG = logging.getLogger(__name__)

#: The most nodes that are taken before others have their turn with the
#: auditor: builds whose nodes are adopted, and what has changed in Ironic. A
#: multiple of what is taken over at a time.
TOGETHER = 48

#: Questions of one portion without an answer after which no other portion is
#: begun: each may take as long as a timeout.
UNANSWERED = 8

#: The most records that are moved at the same time; claims wait for that.
AT_ONCE = 8


class PeerPoller:
    """Polls, again and again, from one thread.

    :param auditor: audits the nodes of hosts that left.
    :param tracker: nova's resource tracker, which takes them.
    :param acquired: called with the audit and the uuids of my nodes in it,
        before the tracker takes them.
    :param clock: monotonic clock, in seconds.
    :param ending: returns whether this service is about to stop: a poll then
        takes no more nodes.
    :param to_move: returns the records of my nodes that can be moved as they
        are, see :meth:`.engine.audit.recheck.Recheck.to_move`.
    :param recorder: counts and times polls.
    :param pull: pulls nodes and returns those that it could, see
        :meth:`.rebalance.Rebalancer.pull`.
    :param note_pulled: called with the nodes that the poll before has pulled.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 acquired: Callable[[Audit, list[str]], None],
                 clock: Callable[[], float] = time.monotonic,
                 ending: Callable[[], bool] = lambda: False,
                 to_move: Callable[[Iterable[str]], Sequence[Record]] = (
                     lambda nodes: ()),
                 recorder: Metrics | None = None,
                 pull: Callable[[list[str]], Iterable[str]] = (
                     lambda nodes: ()),
                 note_pulled: Callable[[Iterable[str]], None] = (
                     lambda nodes: None)) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._acquired = acquired
        self._to_move = to_move
        self._pull = pull
        self._note_pulled = note_pulled
        self._ending = ending
        self._recorder = recorder or Metrics(clock)
        self._watch = peer_changes.PeerChanges(clock)
        self._view: peers.View | None = None
        self._eligible: frozenset[HostKey] = frozenset()
        self._pulled: tuple[str, ...] = ()
        self._busy = False
        # What was logged last.
        self._told: tuple[str, str] | None = None
        self._unanswered = False

    @property
    def eligible(self) -> frozenset[HostKey]:
        """The hosts with instances that may be taken over, by the last poll.

        Newer ones are among them when this poll is over.
        """
        return self._watch.eligible & self._eligible

    @property
    def view(self) -> peers.View | None:
        """The result of the last poll, None before the first.

        Set before anything is done about it: taking many nodes lasts minutes.
        """
        return self._view

    @property
    def busy(self) -> bool:
        """Whether nodes are being taken, so that less urgent work can wait."""
        return self._busy

    def pause(self, settings: Settings) -> float:
        """Return the seconds from the beginning of a poll to the next one.

        Shorter when the time of a stopping host is nearly over.
        """
        period = settings.heartbeats.period
        over = self._auditor.next_over(settings)
        return period if over is None else min(period, max(1, over))

    def once(self, settings: Settings) -> peers.View:
        """Poll, and audit at once the nodes that a change concerns.

        :returns: the compute services as they were seen.
        """
        with self._recorder.turn(Work.LOOK):
            try:
                return self._once(settings)
            except Exception:
                self._recorder.count(Event.LOOK_FAILED)
                raise

    def _once(self, settings: Settings) -> peers.View:
        view = self._read(settings)
        if self._auditor.last is None:
            return view
        eligible = self._auditor.note_down(settings, view)
        self._view, self._eligible = view, eligible
        pulled, self._pulled = self._pulled, ()
        self._note_pulled(pulled)
        due = self._watch.due(view, eligible)
        self._busy = bool(due)
        try:
            hindered, waiting = self._audit_hosts(settings, view, due)
        finally:
            self._busy = False
            # That may take minutes, and fail then: it is no gap in what this
            # host has seen.
            outage = self._auditor.note_look(settings)
        if outage:
            eligible = frozenset()
        self._watch.done(view, due, eligible, waiting, hindered)
        return view

    def listen(self, settings: Settings) -> None:
        """Note the heartbeats if a poll takes long; in another thread."""
        self._auditor.listen(settings, self._known())

    def may_close(self, settings: Settings) -> bool:
        """Read the services, and return whether builds may be sent to others.

        While this service is about to stop, see
        :func:`.stop_marker.may_close`.
        """
        last = self._auditor.last
        return stop_marker.may_close(
            self._auditor.view_of_nova(settings, self._known()),
            last.preferences.members if last else {})

    def _read(self, settings: Settings) -> peers.View:
        with self._recorder.turn(Work.SERVICES):
            return self._auditor.read_view(settings, self._known())

    def _known(self) -> Iterable[str]:
        """Return the known hosts, as nova spells them."""
        last = self._auditor.last
        return dict.fromkeys(
            [*self._watch.hosts, *(last.view.hosts if last else ())])

    def _audit_hosts(self, settings: Settings, view: peers.View,
                     hosts: frozenset[HostKey]
                     ) -> tuple[Iterable[HostKey], Iterable[HostKey]]:
        """Audit the nodes of some hosts and take mine.

        :returns: (hosts with nodes that could not be taken, hosts with nodes
            that wait for their turn, or for an answer).
        """
        missed: set[HostKey] = set()
        if not hosts:
            return missed, ()
        #: Nodes that are not taken yet -> who may be their owners.
        left: dict[str, Set[HostKey]] = {}

        def take_some(audit: Audit, mine: list[str]) -> None:
            self._acquired(audit, mine)
            for node in mine[:TOGETHER]:
                left.pop(node, None)
            left.update(
                (node, {owner} if (owner := audit.owners[node]) else set())
                for node in mine[TOGETHER:])
            missed.update(self._take(audit, mine[:TOGETHER]))

        def audit_some(now: peers.View, some: list[str]
                       ) -> Mapping[str, Reason]:
            return self._auditor.audit_hosts(
                settings, [now.services[host].host for host in sorted(hosts)
                           if host in now.services and not now.member(host)],
                take_some, now.hosts, only=frozenset(some),
                adoptions=TOGETHER)

        due = self._watch.due(view, self._eligible)
        names = [view.services[host].host for host in sorted(hosts)]
        reasons = dict(self._auditor.audit_hosts(
            settings, names, take_some, view.hosts, adoptions=TOGETHER))
        left.update(dict.fromkeys(
            _waiting(reasons, Reason.ADOPTION_WAITS), hosts))
        while left and not self._ending() and len(
                _waiting(reasons, Reason.UNANSWERED)) < UNANSWERED:
            some = list(left)[:TOGETHER]
            # Whoever waits for the auditor gets it while nova is asked.
            now = self._view = self._read(settings)
            if self._watch.due(now, self._eligible) - due:
                # Somebody else has left.
                break
            missed |= _note(some, audit_some(now, some), reasons, left)
        while (waiting := _waiting(reasons, Reason.INSTANCE_WAITS)) and (
                not self._ending()):
            now = self._view = self._read(settings)
            if self._watch.due(now, self._eligible) - due:
                # Somebody else has left.
                break
            LOG.info('%(count)d instances of %(hosts)s wait to be taken over '
                     'here.', {'count': len(waiting),
                               'hosts': ', '.join(names)})
            some = waiting[:min(TOGETHER, settings.takeovers_per_audit)]
            found = audit_some(now, some)
            # One that is not found has got another owner meanwhile.
            for node in some:
                reasons.pop(node)
            reasons.update(found)
            if found and Reason.TAKEN_OVER not in found.values():
                # Too much goes wrong, or it may be alive.
                break
        self._tell(', '.join(names), reasons)
        kinds = frozenset(reasons.values())
        waits = left or ownership.WAITING & kinds or (
            # Nobody can use them, and they were all given up at once.
            Reason.QUEUED in kinds and any(map(view.gone, hosts)))
        return (hosts if ownership.HINDERED & kinds else missed,
                hosts if waits else ())

    def _tell(self, hosts: str, reasons: Mapping[str, Reason]) -> None:
        """Log what was found, unless it was found before."""
        counted = operator_log.in_words(ownership.count_reasons(reasons))
        if reasons and (hosts, counted) != self._told:
            LOG.info('Audited the nodes of %(hosts)s, which left: '
                     '%(counted)s.', {'hosts': hosts, 'counted': counted})
        self._told = hosts, counted
        unanswered = len(_waiting(reasons, Reason.UNANSWERED))
        if unanswered and not self._unanswered:
            LOG.warning(
                'Placement does not say whether builds were sent to %(count)d '
                'or more nodes of %(hosts)s. Until it does they stay there, '
                'and each look asks again. See whether placement answers.',
                {'count': unanswered, 'hosts': hosts})
        self._unanswered = bool(unanswered)

    def _take(self, audit: Audit, nodes: list[str]) -> set[HostKey]:
        """Have the tracker take some nodes.

        Records of free nodes are moved, which is all that a build needs; their
        audits follow (:mod:`.engine.tracking.background_audit`).

        :returns: the owners of nodes that could not be taken.
        """
        missed: set[HostKey] = set()
        for node in nodes:
            # It may have been here before.
            self._tracker.drop(node)
        moved = self._move(nodes)
        moved.update(self._pull([
            node for node in nodes if node not in moved
            and audit.reasons[node] is Reason.PULLED]))
        for node in nodes:
            if self._ending():
                return missed
            self._recorder.sign(Work.LOOK)
            if node not in moved:
                self._tracker.audit(node)
            owner = audit.owners[node]
            if owner is not None and not self._tracker.has(node):
                missed.add(owner)
            elif audit.reasons[node] is Reason.PULLED:
                self._pulled += (node,)
        return missed

    def _move(self, nodes: list[str]) -> set[str]:
        """Move the records of nodes, a few at a time, each checked before.

        :returns: the nodes with moved records; the first failure ends it, so
            that a service that does not answer is not asked for each.
        """
        moved: set[str] = set()
        judged: list[Record] = []

        def judge(some: Sequence[str]) -> Sequence[Record]:
            records = self._to_move(some)
            judged.extend(records)
            return records

        for first in range(0, len(nodes), AT_ONCE):
            moved.update(self._tracker.move(
                nodes[first:first + AT_ONCE], judge))
            if len(moved) < len(judged):
                break
        return moved


def _note(nodes: Iterable[str], found: Mapping[str, Reason],
          reasons: dict[str, Reason], left: dict[str, Set[HostKey]]
          ) -> set[HostKey]:
    """Note the result for nodes of this portion.

    :param reasons: of all nodes of the poll.
    :param left: nodes that are not taken yet -> possible owners.
    :returns: owners of nodes to try again: a node that is not mine now may be
        in the next moment, unless a build is waited for.
    """
    missed: set[HostKey] = set()
    for node in nodes:
        del reasons[node]
        owners = left.pop(node, frozenset())
        if found.get(node) is not Reason.AWAITED:
            missed |= owners
    reasons.update(found)
    return missed


def _waiting(reasons: Mapping[str, Reason], why: Reason) -> list[str]:
    """Return the nodes that are still to be taken, in order.

    :param why: one of :data:`.ownership.WAITING`.
    """
    return sorted(node for node, reason in reasons.items() if reason is why)
