# SPDX-License-Identifier: Apache-2.0

"""The auditor: collects facts, decides, and remembers the result.

nova audits a compute service once in ``update_resources_interval``. The result
of an audit is an immutable :class:`.audit_state.Audit`, which the next one
replaces.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
from concurrent import futures
import dataclasses
import functools
import itertools
import threading
import time
import types

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.audit.audit_state import RECENT
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import collect
from nova_ironic_multihost.engine.audit import decide
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base import operator_log
from nova_ironic_multihost.engine.base.ports import Sources
from nova_ironic_multihost.engine.base.ports import Writes
from nova_ironic_multihost.engine.listing.lister import Lister
from nova_ironic_multihost.engine.listing.lister import Wanted
from nova_ironic_multihost.rules import absence
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.liveness import Outages
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules.stop_marker import StopMarkers
from nova_ironic_multihost.rules import takeover

#: Why a free node will be this host's in a moment.
_COMING = frozenset({Reason.ADOPTION_WAITS, Reason.UNANSWERED})

LOG = logging.getLogger(__name__)

#: Nodes that are kept before it is known whether they are this host's.
UNDECIDED = 5000


class Auditor:
    """Audits one compute service, again and again.

    nova's audits, the polls between them and nova's calls of the driver come
    in threads of their own. A thread that replaces ``_memory`` or ``last``
    holds ``_lock`` from the first question to the end. ``_outages_lock``
    guards only ``_outages``, ``_heard`` and ``_stop_markers``. It is never
    held during a question, so that a poll that finds nothing waits for no
    audit. All values are immutable, and reading them needs no lock.

    Only polls note which hosts are down. Each audit reads other services, so
    an audit cannot measure how long a host has been down.

    :param sources: reads the facts.
    :param writes: makes the changes of an audit.
    :param reader: reads Ironic's nodes.
    :param clock: monotonic clock, in seconds.
    :param executor: runs things beside.
    :param recorder: counts and times what is done.
    :ivar last: the last :class:`.audit_state.Audit`, None before the first.
    """

    def __init__(self, sources: Sources, writes: Writes, reader: Lister,
                 clock: Callable[[], float] = time.monotonic,
                 executor: Callable[[], futures.Executor] = (
                     lambda: futures.ThreadPoolExecutor(1)),
                 recorder: Metrics | None = None) -> None:
        self.sources = sources
        self.last: Audit | None = None
        self._writes = writes
        self._reader = reader
        self._clock = clock
        self._executor = executor
        self._recorder = recorder or Metrics(clock)
        self._lock = threading.Lock()
        self._memory = AuditState()
        self._outages_lock = threading.Lock()
        self._outages = Outages()
        # When the heartbeats were noted last.
        self._heard: float | None = None
        self._stop_markers = StopMarkers()
        # Replaced whole, by each look.
        self._seen: tuple[str, ...] = ()
        self._notices = operator_log.Notices(clock)
        # When others may have taken this host's nodes, None if never.
        self._doubted: float | None = None
        # Replaced whole.
        self._met: frozenset[str] = frozenset()
        # When a look last saw it as no member, or found a pause.
        self._missed: float | None = None

    def bar(self, node: str) -> None:
        """Note that a node's record cannot become this host's.

        The database refuses it for good. It is tried again when all records of
        this host are read anew. Any thread may call this.
        """
        self._met |= {node}

    def is_barred(self, node: str) -> bool:
        """Whether a node's record cannot become this host's."""
        return node in self._met or node in self._memory.barred

    def doubt(self) -> None:
        """Note that peers may have taken nodes of this host.

        They may have seen it disabled, fenced or silent for a moment. Until
        all its records are read anew no node counts as its own without a
        check.
        """
        self._doubted = self._clock()

    @property
    def in_doubt(self) -> bool:
        """Whether all records of this host are still to be read anew."""
        return incremental.in_doubt(self._memory.recorded, self._doubted)

    @property
    def absences(self) -> absence.Absences:
        """The nodes that are not listed, by the last audit of all nodes."""
        return self._memory.absences

    @property
    def preferences(self) -> ring.Preferences | None:
        """The preferred member of each node, as of the last read."""
        return self._memory.preferences

    @property
    def recorded(self) -> frozenset[str] | None:
        """The nodes that are recorded on this host, as far as is known.

        None before the first audit. Nodes that a poll has taken are added by
        the next audit.
        """
        last = self.last
        if last is None:
            return None
        host = last.view.host
        return frozenset(node for node in self._memory.records
                         if last.owners.get(node, host) == host)

    def reason(self, node: str) -> Reason | None:
        """Return why a node is mine or not; None for one not audited yet."""
        return self.last.reasons.get(node) if self.last else None

    def is_mine(self, node: str) -> bool:
        """Whether a node is mine by the last audit."""
        reason = self.reason(node)
        return reason is not None and reason.mine

    def read_view(self, settings: Settings, hosts: Iterable[str] = ()
                  ) -> peers.View:
        """Read the compute services, and note their heartbeats.

        :param hosts: known hosts, as nova spells them: nova lists them only
            while they are enabled.
        """
        begun = self._clock()
        known = collect.services(self.sources, settings, hosts)
        host = host_key(settings.host)
        with self._outages_lock:
            # Else the answer is older than what another thread has noted.
            if self._heard is None or begun >= self._heard:
                self._heard = self._clock()
                self._outages = self._outages.read(
                    known, host, self._heard, settings.heartbeats)
            outages = self._outages
        view = collect.view(outages.judged(known, host),
                           self._memory_now(settings), settings)
        if outages.paused or not view.member(host):
            self.doubt()
            if outages.own is not None:
                self._missed = self._doubted
        return view

    def listen(self, settings: Settings, hosts: Iterable[str]) -> None:
        """Note the heartbeats while a poll is at work.

        A poll may take minutes when services do not answer. For this host the
        heartbeats would seem to have paused, and no other host would ever
        count as dead.

        :param hosts: as for :meth:`read_view`.
        """
        heard = self._heard
        if heard is not None and (
                self._clock() - heard > 1.5 * settings.heartbeats.period):
            self.read_view(settings, hosts)

    def view_of_nova(self, settings: Settings, hosts: Iterable[str]
                     ) -> peers.View:
        """Read the compute services as nova's scheduler sees them.

        :param hosts: as for :meth:`read_view`.
        """
        return collect.view(
            collect.services(self.sources, settings, hosts),
            self._memory_now(settings), settings)

    def live(self, host: str,
             ask: Callable[[str], peers.ComputeService | None] | None
             = None) -> bool:
        """Whether another host lives at this moment; False if nova lacks it.

        :param host: as nova spells it.
        :param ask: returns its service, None to ask nova.
        """
        service = (ask or self.sources.service)(host)
        return service is not None and self._outages.lives(service)

    def preferences_now(self, settings: Settings,
                        like: ring.Preferences | None) -> ring.Preferences:
        """Read the compute services and return the preferences of now.

        Nothing is remembered.

        :param like: preferences that are likely the same.
        """
        starting = self.last is not None and self.last.view.starting
        return collect.preferences_now(
            self.sources, self._memory_now(settings), settings, self._outages,
            self._known(), starting, like)

    def note_down(self, settings: Settings, view: peers.View
                  ) -> frozenset[HostKey]:
        """Note which hosts are down or stopping, by a poll.

        :param view: the compute services of this moment.
        :returns: the hosts with instances that may be taken over by now.
        """
        now = self._clock()
        self._seen = view.hosts
        with self._outages_lock:
            self._outages = outages = self._outages.after(
                view, now, settings.heartbeats)
            self._stop_markers = self._stop_markers.after(view, now)
        return takeover.eligible(
            settings.policy, view, outages.lengths(now, settings.heartbeats))

    def next_over(self, settings: Settings) -> float | None:
        """Return the seconds until a stopping host is no member any more.

        None if there is none.
        """
        return self._stop_markers.next_over(
            self._clock(), settings.heartbeats.down_time)

    def note_look(self, settings: Settings) -> bool:
        """Note the end of a poll and of what it led to.

        :returns: whether it took so long that its audit may have seen no host
            as dead.
        """
        now = self._clock()
        with self._outages_lock:
            late = self._outages.overdue(now, settings.heartbeats)
            self._outages = self._outages.looked(now, settings.heartbeats)
        return late

    def refresh_ring(self, settings: Settings, starting: bool = False
                     ) -> None:
        """Read the compute services and make the hash ring of the members.

        :param starting: see :class:`.peers.View`.
        """
        with self._lock:
            # nova-compute must come up whoever is away.
            self._seen_peers(settings, starting=starting, zones=False)

    def audit(self, settings: Settings, settled: bool = True,
              then: Callable[[Audit], None] = lambda audit: None,
              has: Callable[[str], bool] = lambda node: False) -> Audit:
        """Audit all nodes; a failed audit changes nothing.

        :param settled: the start of the service is over.
        :param then: called before the next audit may begin.
        :param has: returns whether nova's tracker has a node.
        :returns: the new :attr:`last`.
        :raises ListingError: Ironic does not answer.
        """
        with self._recorder.turn(Work.AUDIT):
            audit = self._audit(settings, settled, then, has)
        self._notices.count(audit.reasons)
        return audit

    def _audit(self, settings: Settings, settled: bool,
               then: Callable[[Audit], None], has: Callable[[str], bool]
               ) -> Audit:
        # That takes long when all nodes have to be listed, and the nodes of
        # a host that dies are not to wait for the audit.
        self.read(settings, settled)
        with self._lock:
            self._remove_providers()
            begun = self._clock()
            seen_peers = self._seen_peers(
                settings, self._known(), starting=not settled)
            gathered = collect.all_nodes(
                self.sources, _with_taken(self._memory_now(settings), has),
                settings, seen_peers, self._reader,
                settled, self.last, self._clock(), self._doubted)
            decided = decide.decide(
                self.sources, self._writes, gathered.facts, settings,
                functools.partial(self._eligible, settings),
                self._memory.busy, self._memory.refused)
            audit = self._audit_of(gathered, decided)
            self._notices.tell(operator_log.due(
                settings.host, gathered.mapped, audit.reasons,
                gathered.absences, gathered.host_aggregates.read,
                gathered.barred))
            self._remember(gathered, decided, audit, begun)
            if self.last is None:
                # Its records were read before Ironic was asked.
                self.doubt()
            self.last = audit
            self._note_waiting(audit)
            then(audit)
        return audit

    def _remove_providers(self) -> None:
        """Delete the providers of nodes that are gone, where nova did not.

        nova tries that once, and placement may be away then.
        """
        leaving = self._memory.leaving - self._reader.mirror.nodes.keys()
        if leaving:
            leaving -= {record.node for record
                        in self.sources.records(sorted(leaving))}
        try:
            for node in sorted(leaving):
                # It may have been enrolled anew since all were listed.
                if (self._reader.node(node) is None
                        and self._writes.remove_provider(node)):
                    leaving -= {node}
        except Exception as exc:  # noqa: BLE001
            LOG.debug('Resource providers of %(count)d nodes that are gone '
                      'are deleted later: %(exc)s',
                      {'count': len(leaving), 'exc': exc})
        self._memory = dataclasses.replace(self._memory, leaving=leaving)

    def _eligible(self, settings: Settings, hosts: Set[str]
                  ) -> frozenset[HostKey]:
        """Read again which hosts have instances that may be taken over."""
        return collect.eligible(
            self.sources, self._memory_now(settings), settings, hosts,
            self._known(), self._outages, self._clock())

    def _note_waiting(self, audit: Audit) -> None:
        """Note the instances that are still to be taken over."""
        self._recorder.note_pending(Pending.TURN, {
            node for node, reason in audit.reasons.items()
            if reason in (Reason.INSTANCE_WAITS, Reason.TAKEOVER_FAILED)})

    def audit_hosts(self, settings: Settings, hosts: Iterable[str],
                    then: Callable[[Audit, list[str]], None],
                    known: Iterable[str] = (),
                    only: Set[str] | None = None,
                    builds: Set[str] = frozenset(),
                    adoptions: int | None = None) -> Mapping[str, Reason]:
        """Audit only the nodes that are recorded on some other hosts.

        By the same rules. All that is known of other nodes stays; nodes that
        become mine are recent.

        :param hosts: as nova spells them.
        :param then: called before the next audit may begin, with the new
            :attr:`last` and the uuids of the nodes in question that are mine.
        :param known: other hosts that were seen, as nova spells them.
        :param only: uuids of the nodes in question, None for all.
        :param builds: ``arrived`` of :func:`.decide.decide`.
        :param adoptions: as for that.
        :returns: {node: reason} of the nodes that this host may be preferred
            for; empty before the first audit of all nodes.
        :raises Exception: something cannot be known; nothing is changed.
        """
        hosts = list(hosts)
        with self._lock:
            last = self.last
            if last is None:
                return {}
            # Nor do they wait for a listing of all nodes that is under way.
            self.read(settings, brief=True)
            gathered = collect.nodes_of_hosts(
                self.sources, self._memory_now(settings), settings,
                self._seen_peers(settings, [*hosts, *known]), hosts,
                self._reader, self._clock(), only)
            decided = decide.decide(
                self.sources, self._writes, gathered.facts, settings,
                functools.partial(self._eligible, settings),
                self._memory.busy, self._memory.refused, builds, adoptions)
            mine = sorted(node for node, reason in decided.reasons.items()
                          if reason.mine)
            latest, *earlier = self._memory.recent
            self._memory = dataclasses.replace(
                self._memory, busy=decided.busy, refused=decided.refused,
                standing=_unsettled(self._memory.standing, decided.reasons),
                recent=(latest.union(mine), *earlier))
            # What nova's tracker takes by the audit before stays mine.
            found = {node: reason for node, reason in decided.reasons.items()
                     if reason not in _COMING or not self.is_mine(node)}
            reasons = {**last.reasons, **found}
            self.last = _merged(
                last, found, gathered.facts.records, self._rows(
                    gathered.mirror, mine,
                    {*last.nodes, *mine, *_coming(reasons)},
                    _served(reasons)),
                decided.taken_over, decided.at_rest)
            self._note_waiting(self.last)
            then(self.last, mine)
        return decided.reasons

    def audit_changed(self, settings: Settings, nodes: Iterable[str],
                      then: Callable[[Audit, list[str]], None]) -> None:
        """Audit some nodes that have changed and concern no other host.

        Nothing is taken from others. All that is known of other nodes stays.

        :param then: as for :meth:`audit_hosts`.
        :raises Exception: something cannot be known; nothing is changed.
        """
        with self._lock:
            last = self.last
            if last is None:
                return
            gathered = collect.changed_nodes(
                self.sources, self._memory, settings,
                self._seen_peers(settings, self._known()), nodes, self._reader,
                self._clock())
            reasons = {
                node: reason for node, reason
                in ownership.decide(gathered.facts).items()
                if reason in incremental.AT_ONCE}
            mine = sorted(reasons)
            served = _served(last.reasons) - reasons.keys()
            self._memory = dataclasses.replace(
                self._memory,
                standing=_unsettled(self._memory.standing, mine))
            self.last = _merged(
                last, reasons, {record.node: record
                                for record in gathered.records},
                self._rows(gathered.mirror, mine, {
                    *last.nodes, *mine, *_coming(last.reasons)}, served))
            then(self.last, mine)

    @property
    def serial(self) -> int:
        """The :attr:`.mirror.Mirror.serial` of the last audit of all nodes."""
        standing = self._memory.standing
        return standing.serial if standing else 0

    def read(self, settings: Settings, settled: bool = True,
             brief: bool = False, often: bool = False) -> Mirror:
        """Ask Ironic what has changed, with the full body of my nodes.

        :param settled: as for :meth:`audit`.
        :param brief: as for :meth:`.engine.listing.lister.Lister.read`, as is
            ``often``.
        :returns: the mirror by now.
        :raises ListingError: Ironic does not answer.
        """
        def ask(wanted: Wanted) -> Mirror:
            return self._reader.read(
                settings.partition, settings.audit_interval, wanted, brief,
                often)

        last = self.last
        return (ask(lambda node, instance: node in last.nodes
                    or last.reasons.get(node) in _COMING)
                if last is not None else self._read_first(
                    settings, settled, ask))

    def _read_first(self, settings: Settings, settled: bool,
                    ask: Callable[[Wanted], Mirror]) -> Mirror:
        """Read Ironic's nodes and, at the same time, this host's records.

        The first audit uses them. Nodes that peers take meanwhile are in doubt
        until this service has started (:meth:`doubt`).

        :param ask: asks Ironic, with the nodes that will most likely be mine.
        """
        with self._lock:
            seen_peers = self._seen_peers(settings, starting=not settled)
        hosts = peers.spellings(seen_peers.services, settings.host)
        instances = frozenset(self.sources.instances(hosts))

        def wanted(node: str, instance: str | None) -> bool:
            if instance is not None:
                return instance in instances
            if seen_peers.preferences.may_prefer(seen_peers.view.host, node):
                return True
            # As long as the records are not known it may be any.
            if not reading.done() and next(undecided) == UNDECIDED:
                futures.wait([reading])
            return not reading.done() or node in recorded

        undecided, now = itertools.count(), self._clock()
        records: list[Record] = []
        recorded: set[str] = set()

        def read_records() -> None:
            # The reader waits for it: it takes no lock.
            records.extend(self.sources.records_of(hosts))
            recorded.update(record.node for record in records)

        with self._executor() as pool:
            reading = pool.submit(read_records)
            mirror = ask(wanted)
            reading.result()
        found, barred = collect.without_second(records)
        with self._lock:
            if self.last is None:
                self._memory = dataclasses.replace(
                    self._memory, recorded=now, barred=barred,
                    records=types.MappingProxyType(
                        {record.node: record for record in found}))
        return mirror

    def _seen_peers(self, settings: Settings, hosts: Iterable[str] = (),
                starting: bool = False, zones: bool = True) -> collect.Peers:
        """Read the compute services, and remember the ring at once."""
        seen_peers = collect.read_peers(
            self.sources, self._memory_now(settings), settings,
            self._outages, hosts, starting, zones)
        self._memory = dataclasses.replace(
            self._memory, preferences=seen_peers.preferences)
        return seen_peers

    def _known(self) -> list[str]:
        """Return the known hosts, as nova spells them.

        Not only those of the last audit: a host that has got its first node
        since, and is told to stop now, keeps it.
        """
        audited = self.last.view.hosts if self.last else ()
        return [*dict.fromkeys([*self._seen, *audited])]

    def _memory_now(self, settings: Settings) -> AuditState:
        """Return the state of the last audit with what was seen since.

        By polls, and of records that the database refuses.
        """
        memory = self._memory
        return dataclasses.replace(
            memory, over=self._stop_markers.over(
                self._clock(), settings.heartbeats.down_time),
            audits=(0 if incremental.in_doubt(memory.begun, self._missed)
                    else memory.audits),
            barred=types.MappingProxyType({
                **dict.fromkeys(self._met, ''), **memory.barred}))

    def _audit_of(self, gathered: collect.Collected,
                  decided: decide.Decision) -> Audit:
        """Put the result of an audit of all nodes together."""
        facts, last = gathered.facts, self.last
        confirmed = gathered.absences.confirmed
        reasons = _reasons(last, gathered.mirror, decided.reasons)
        mine = frozenset(
            node for node, reason in reasons.items() if reason.mine)
        owners = {node: facts.host if node in facts.my_nodes
                  else facts.records[node].owner if node in facts.records
                  else None for node in mine}
        nodes = {**self._rows(gathered.mirror, mine, mine),
                 **gathered.unlisted}
        reasons.update(dict.fromkeys(
            gathered.absences.counts, Reason.UNLISTED))
        return Audit(
            view=facts.view, preferences=facts.preferences,
            reasons=types.MappingProxyType(reasons),
            nodes=types.MappingProxyType(nodes),
            owners=types.MappingProxyType({
                **owners, **dict.fromkeys(gathered.unlisted, facts.host)}),
            records=tuple(
                record for record in gathered.records
                if record.node in nodes or record.node in confirmed),
            deleted=frozenset(confirmed),
            host_aggregates=gathered.host_aggregates,
            recent=frozenset[str]().union(*self._memory.recent),
            taken_over=types.MappingProxyType(dict(decided.taken_over)),
            at_rest=decided.at_rest)

    def _rows(self, mirror: Mirror, nodes: Iterable[str], mine: Set[str],
              later: Set[str] = frozenset()) -> dict[str, NodeRow]:
        """Return {uuid: node} with the full body, if it is known.

        :param mirror: that of the decision; there may be a later one.
        :param mine: nodes of which the body is kept.
        :param later: as for :meth:`.engine.listing.lister.Lister.complete`.
        """
        known = self._reader.complete(mine, later)

        def body(node: str) -> bytes | None:
            # A later one does not go with what was decided by.
            return (known.bodies.get(node)
                    if known.nodes.get(node) == mirror.nodes[node] else None)

        return {node: NodeRow(node, mirror.nodes[node], body(node))
                for node in nodes}

    def _remember(self, gathered: collect.Collected,
                  decided: decide.Decision, audit: Audit, begun: float
                  ) -> None:
        facts = gathered.facts
        labels = {host: label for host, label
                  in self._memory.partition_labels.items()
                  if facts.view.live(host)}
        # The label of a dead one may be another when it is back.
        labels.update((record.owner, record.partition)
                      for record in facts.records.values()
                      if facts.view.live(record.owner))
        unknown = (set(facts.preferences.members) - {facts.host}
                   - labels.keys())
        acquired = frozenset(node for node, owner in audit.owners.items()
                             if owner != facts.host)
        before, basis = self._memory.standing, gathered.basis
        assert basis is not None
        if gathered.recorded != self._memory.recorded:
            self._met = frozenset()
        self._memory = AuditState(
            preferences=facts.preferences,
            audits=(gathered.audits + 1
                    if facts.view.member(facts.host) else 0),
            begun=begun,
            rounds=self._memory.rounds + 1 if unknown else 0,
            records=types.MappingProxyType(
                {record.node: record for record in gathered.records}),
            recorded=gathered.recorded,
            barred=gathered.barred,
            leaving=self._memory.leaving | gathered.absences.confirmed,
            standing=incremental.LastAudit(
                basis, gathered.mirror.serial, frozenset(facts.my_nodes),
                frozenset(facts.my_instances),
                frozenset(node for node, reason in decided.reasons.items()
                          if not incremental.settled(node, reason, facts)),
                before.turn + 1 if before else 0),
            partition_labels=types.MappingProxyType(labels),
            busy=_known(decided.busy, decided),
            refused=_known(decided.refused, decided),
            absences=gathered.absences,
            mapped=bool(gathered.mapped),
            host_aggregates=gathered.host_aggregates,
            recent=(acquired, *self._memory.recent)[:RECENT])


def _reasons(last: Audit | None, mirror: Mirror,
             decided: Mapping[str, Reason]) -> dict[str, Reason]:
    """Return the reasons of all nodes, with as few copies as possible.

    :param last: the audit before; its reasons of other nodes stay.
    :param decided: those of some nodes.
    """
    reasons = dict(last.reasons) if last else {}
    for node in [node for node in reasons if node not in mirror.nodes]:
        del reasons[node]
    reasons.update(decided)
    return reasons


def _with_taken(memory: AuditState, has: Callable[[str], bool]) -> AuditState:
    """Return the state with the nodes that were taken since.

    Only those that nova's tracker has: placement may have refused others.

    :param has: as for :meth:`Auditor.audit`.
    """
    standing = memory.standing
    if standing is None or not memory.recent:
        return memory
    return dataclasses.replace(memory, standing=dataclasses.replace(
        standing, my_nodes=standing.my_nodes.union(
            filter(has, memory.recent[0]))))


def _served(reasons: Mapping[str, Reason]) -> frozenset[str]:
    """Return the nodes with servers of this host.

    After a take-over a thousand of them may not be read in full, and no build
    needs them.
    """
    return frozenset(node for node, reason in reasons.items()
                     if reason in ownership.SERVED)


def _coming(reasons: Mapping[str, Reason]) -> Iterator[str]:
    """Return the nodes that will be this host's in a moment.

    Ironic shows all of them at once for the cost of a few alone.
    """
    return (node for node, reason in reasons.items()
            if reason in _COMING)


def _known(nodes: tuple[str, ...], decided: decide.Decision
           ) -> tuple[str, ...]:
    """Return those of the nodes that still exist."""
    return tuple(node for node in nodes if node in decided.reasons)


def _unsettled(standing: incremental.LastAudit | None, nodes: Iterable[str]
               ) -> incremental.LastAudit | None:
    """Have some nodes decided by the next audit."""
    return standing and dataclasses.replace(
        standing, unsettled=standing.unsettled.union(nodes))


def _merged(last: Audit, reasons: Mapping[str, Reason],
            records: Mapping[str, Record], mine: Mapping[str, NodeRow],
            taken_over: Mapping[str, str | None] | None = None,
            at_rest: frozenset[str] = frozenset()) -> Audit:
    """Return the last audit with the decisions on some nodes.

    :param records: node uuid -> record, as far as there is one.
    :param mine: those of them that are mine.
    """
    others = {node: known for node, known in last.nodes.items()
              if node not in reasons}
    return dataclasses.replace(
        last,
        reasons=types.MappingProxyType({**last.reasons, **reasons}),
        nodes=types.MappingProxyType({**others, **mine}),
        owners=types.MappingProxyType({
            **{node: last.owners[node] for node in others},
            **{node: records[node].owner if node in records else None
               for node in mine}}),
        records=(*(record for record in last.records
                   if record.node not in reasons),
                 *(records[node] for node in mine if node in records)),
        # It may have been enrolled anew.
        deleted=last.deleted.difference(reasons),
        recent=last.recent.union(
            node for node in mine if node in records
            and records[node].owner != last.view.host),
        taken_over=types.MappingProxyType(dict(taken_over or {})),
        at_rest=at_rest)
