# SPDX-License-Identifier: Apache-2.0

"""Ask every few seconds which peers are up, and audit the nodes concerned.

The poll runs between nova's audits, for nodes of the hosts that
:class:`PeerChanges` finds dead, disabled, fenced or stopped. A host that joins
or is enabled takes nodes by its own audits.
"""

from collections import abc
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Tracker
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)

#: Batch size in nodes. Between batches builds and changes in Ironic get the
#: auditor. A multiple of the number of nodes in one takeover.
BATCH = 48

#: Unanswered questions to placement that end a poll: each may time out.
UNANSWERED = 8

#: The most records that are moved at once; claims wait for the move.
AT_ONCE = 8


def due(before: peers.View | None, after: peers.View
        ) -> frozenset[HostKey]:
    """Return the hosts of which this host may get nodes now.

    When a member leaves, this host may also be preferred for nodes of hosts
    that left earlier, as the member did not take them.
    """
    if not after.member(after.host):
        return frozenset()
    absent = {host: state for host, state
              in ((host, _down_state(after, host)) for host in after.services)
              if state is not None and host != after.host}
    if (before is None or not before.member(before.host)
            or before.members - after.members):
        return frozenset(absent)
    return frozenset(host for host, state in absent.items()
                     if _down_state(before, host) != state)


def _down_state(view: peers.View, host: HostKey
                ) -> tuple[bool, bool, bool] | None:
    """Return (up, disabled, forced down), None for a host in service."""
    service = view.services.get(host)
    if service is None or (service.up and not service.disabled
                           and not view.gone(host)):
        return None
    return service.up, service.disabled, service.forced_down


class PeerChanges:
    """What the last polls have found, and the hosts that are due.

    :ivar seen: the last view that was acted on, or None.
    :ivar eligible: the hosts then with instances that could be taken over.
    """

    def __init__(self, clock: abc.Callable[[], float] = time.monotonic
                ) -> None:
        self.seen: peers.View | None = None
        self._clock = clock
        self._backoffs: dict[HostKey, backoff.Backoff] = {}
        self.eligible: frozenset[HostKey] = frozenset()
        self._waiting: frozenset[HostKey] = frozenset()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of :attr:`seen`, as nova spells them."""
        return self.seen.hosts if self.seen else ()

    def due(self, view: peers.View,
            eligible: frozenset[HostKey] = frozenset()
            ) -> frozenset[HostKey]:
        """Return the hosts with nodes that are to be audited now."""
        now = self._clock()
        again = {host for host in {
                     *self._waiting, *(host for host, pause
                                       in self._backoffs.items()
                                       if pause.until <= now)}
                 if _down_state(view, host) is not None}
        return due(self.seen, view) | again | (eligible - self.eligible)

    def done(self, view: peers.View, audited: abc.Iterable[HostKey] = (),
             eligible: frozenset[HostKey] = frozenset(),
             waiting: abc.Iterable[HostKey] = (),
             hindered: abc.Iterable[HostKey] = ()) -> None:
        """Note the result of a poll; without it the next one does the same.

        :param waiting: hosts for the next poll: they have more nodes or
            instances than one poll takes, or a service did not answer.
        :param hindered: hosts with a node that could not be taken: for the
            next poll, then with backoff.
        """
        self.seen = view
        self.eligible = eligible
        self._waiting = frozenset(waiting)
        tried, last, now = frozenset(audited), self._backoffs, self._clock()
        self._backoffs = {
            **{host: pause for host, pause in last.items()
               if host not in tried and _down_state(view, host) is not None},
            # The first backoff has no length.
            **{host: backoff.Backoff(
                now + (last[host].seconds if host in last else 0),
                backoff.longer(last.get(host), False))
               for host in hindered}}


class PeerPoller:
    """Polls the peers, again and again, from one thread.

    :param acquired: called with the audit and the nodes that are now this
        host's, before the tracker takes them.
    :param ending: whether the service stops; a poll then takes nothing more.
    :param to_move: :meth:`.engine.audit.recheck.Recheck.to_move`.
    :param pull: :meth:`.node_moves.Rebalancer.pull`.
    :param note_pulled: of :class:`.DueNodes`; called by the next poll.
    """

    def __init__(self, auditor: auditors.Auditor, tracker: Tracker,
                 acquired: abc.Callable[[Audit, list[str]], None],
                 clock: abc.Callable[[], float] = time.monotonic,
                 ending: abc.Callable[[], bool] = lambda: False,
                 to_move: abc.Callable[
                     [abc.Iterable[str]], abc.Sequence[Record]] = (
                         lambda nodes: ()),
                 recorder: Metrics | None = None,
                 pull: abc.Callable[[list[str]], abc.Iterable[str]] = (
                     lambda nodes: ()),
                 note_pulled: abc.Callable[[abc.Iterable[str]], None] = (
                     lambda nodes: None)) -> None:
        self._auditor = auditor
        self._tracker = tracker
        self._acquired = acquired
        self._to_move = to_move
        self._pull = pull
        self._note_pulled = note_pulled
        self._ending = ending
        self._recorder = recorder or Metrics(clock)
        self._changes = PeerChanges(clock)
        #: The last view, set before the audits of a poll; None at first.
        self.view: peers.View | None = None
        self._eligible: frozenset[HostKey] = frozenset()
        self._pulled: tuple[str, ...] = ()
        #: Whether nodes are being taken; less urgent work can wait.
        self.busy = False
        #: The hosts and reasons of the last log line.
        self._logged: tuple[str, str] | None = None
        self._unanswered = False

    @property
    def eligible(self) -> frozenset[HostKey]:
        """Hosts to take instances over from; new ones when a poll is over."""
        return self._changes.eligible & self._eligible

    def pause(self, settings: Settings) -> float:
        """Seconds between starts of polls; fewer to give up a stopped host."""
        period = settings.heartbeats.period
        over = self._auditor.heartbeats.next_over(settings)
        return period if over is None else min(period, max(1, over))

    def once(self, settings: Settings) -> peers.View:
        """Ask which peers are up, and audit the nodes concerned at once."""
        with self._recorder.turn(Work.PEER_POLL):
            try:
                return self._once(settings)
            except Exception:
                self._recorder.count(Event.PEER_POLL_FAILED)
                raise

    def _once(self, settings: Settings) -> peers.View:
        view = self._read(settings)
        if self._auditor.last is None:
            return view
        eligible = self._auditor.heartbeats.note_down(settings, view)
        self.view, self._eligible = view, eligible
        pulled, self._pulled = self._pulled, ()
        self._note_pulled(pulled)
        due = self._changes.due(view, eligible)
        self.busy = bool(due)
        try:
            hindered, waiting = self._audit_hosts(settings, view, due)
        finally:
            self.busy = False
            # Also after a failure: the minutes of an audit are no gap in the
            # heartbeats that this host has seen.
            late = self._auditor.heartbeats.note_poll(settings)
        if late:
            eligible = frozenset()
        self._changes.done(view, due, eligible, waiting, hindered)
        return view

    def listen(self, settings: Settings) -> None:
        """Note the heartbeats during a long poll, from another thread."""
        if self._auditor.heartbeats.due(settings, self.busy):
            self._auditor.read_view(settings, self._known())

    def may_close(self, settings: Settings) -> bool:
        """Return :func:`.liveness.may_close`, asking nova now."""
        last = self._auditor.last
        return liveness.may_close(
            self._auditor.view_of_nova(settings, self._known()),
            last.preferences.members if last else {})

    def _read(self, settings: Settings) -> peers.View:
        with self._recorder.turn(Work.SERVICES):
            return self._auditor.read_view(settings, self._known())

    def _known(self) -> abc.Iterable[str]:
        """Return the hosts of the last poll and audit, as nova spells them."""
        last = self._auditor.last
        return dict.fromkeys(
            [*self._changes.hosts, *(last.view.hosts if last else ())])

    def _audit_hosts(self, settings: Settings, view: peers.View,
                     hosts: frozenset[HostKey]
                     ) -> tuple[abc.Iterable[HostKey], abc.Iterable[HostKey]]:
        """Audit the nodes of some hosts and take those that are this host's.

        :returns: (hosts with nodes that could not be taken, hosts with nodes
            that wait for their turn or for an answer).
        """
        missed: set[HostKey] = set()
        if not hosts:
            return missed, ()
        #: Node that is not taken yet -> its possible owners.
        left: dict[str, abc.Set[HostKey]] = {}

        def take_batch(audit: Audit, mine: list[str]) -> None:
            self._acquired(audit, mine)
            for node in mine[:BATCH]:
                left.pop(node, None)
            left.update(
                (node, {owner} if (owner := audit.owners[node]) else set())
                for node in mine[BATCH:])
            missed.update(self._take(audit, mine[:BATCH]))

        def audit_batch(now: peers.View, batch: list[str]
                        ) -> abc.Mapping[str, Reason]:
            return self._auditor.audit_hosts(
                settings, [now.services[host].host for host in sorted(hosts)
                           if host in now.services and not now.member(host)],
                take_batch, now.hosts, only=frozenset(batch),
                adoptions=BATCH)

        due = self._changes.due(view, self._eligible)
        names = [view.services[host].host for host in sorted(hosts)]
        reasons = dict(self._auditor.audit_hosts(
            settings, names, take_batch, view.hosts, adoptions=BATCH))
        left.update(dict.fromkeys(
            _waiting(reasons, Reason.ADOPTION_WAITS), hosts))
        while not self._ending():
            free = list(left)[:BATCH] if len(_waiting(
                reasons, Reason.UNANSWERED)) < UNANSWERED else []
            served = _waiting(reasons, Reason.INSTANCE_WAITS)
            batch = free or served[:min(BATCH, settings.takeovers_per_audit)]
            if not batch:
                break
            # Other threads can get the auditor meanwhile.
            now = self.view = self._read(settings)
            if self._changes.due(now, self._eligible) - due:
                # Another host has left.
                break
            if not free:
                LOG.info('%(count)d instances of %(hosts)s wait to be taken '
                         'over here.', {'count': len(served),
                                        'hosts': ', '.join(names)})
            found = audit_batch(now, batch)
            for node in batch:
                # A node that is not found has another owner now.
                del reasons[node]
                # If not this host's, it may be so a moment later.
                missed |= left.pop(node, frozenset())
            reasons.update(found)
            if not free and found and (
                    Reason.TAKEN_OVER not in found.values()):
                # Too many errors, or the host may be alive.
                break
        self._log_reasons(', '.join(names), reasons)
        kinds = frozenset(reasons.values())
        waits = left or ownership.WAITING & kinds or (
            # No host can use the nodes of a stopped host: pull the rest soon.
            Reason.QUEUED in kinds and any(map(view.gone, hosts)))
        return (hosts if ownership.HINDERED & kinds else missed,
                hosts if waits else ())

    def _log_reasons(self, hosts: str, reasons: abc.Mapping[str, Reason]
                    ) -> None:
        counted = operator_news.in_words(ownership.count_reasons(reasons))
        if reasons and (hosts, counted) != self._logged:
            LOG.info('Audited the nodes of %(hosts)s, which left: '
                     '%(counted)s.', {'hosts': hosts, 'counted': counted})
        self._logged = hosts, counted
        unanswered = len(_waiting(reasons, Reason.UNANSWERED))
        if unanswered and not self._unanswered:
            LOG.warning(
                'Placement does not say whether builds were sent to %(count)d '
                'or more nodes of %(hosts)s. Until it does they stay there, '
                'and each poll asks again. See whether placement answers.',
                {'count': unanswered, 'hosts': hosts})
        self._unanswered = bool(unanswered)

    def _take(self, audit: Audit, nodes: list[str]) -> set[HostKey]:
        """Have the tracker take some nodes; return owners of failed ones.

        For free nodes the records are moved, which is all that a build needs.
        Their audits follow (:mod:`.engine.nodes.due_nodes`).
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
            self._recorder.sign(Work.PEER_POLL)
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

        It stops at the first failure. Returns the nodes with a moved record.
        """
        moved: set[str] = set()
        judged: list[Record] = []

        def judge(batch: abc.Sequence[str]) -> abc.Sequence[Record]:
            records = self._to_move(batch)
            judged.extend(records)
            return records

        for first in range(0, len(nodes), AT_ONCE):
            moved.update(self._tracker.move(
                nodes[first:first + AT_ONCE], judge))
            if len(moved) < len(judged):
                break
        return moved


def _waiting(reasons: abc.Mapping[str, Reason], why: Reason) -> list[str]:
    """Return the nodes with one reason of :data:`.ownership.WAITING`."""
    return sorted(node for node, reason in reasons.items() if reason is why)
