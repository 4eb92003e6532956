# SPDX-License-Identifier: Apache-2.0

"""The audit: collect facts, decide, remember."""

from collections import abc
import dataclasses
import functools
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.audit.audit_state import RECENT
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit import collect
from nova_ironic_multihost.engine.audit import decide
from nova_ironic_multihost.engine.audit.lister import Lister
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.engine.audit import peer_services
from nova_ironic_multihost.engine.audit.peer_services import HeartbeatLog
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Cloud
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules import mirror as mirrors
from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.mirror import NodeRow
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)


class Auditor:
    """Audits all nodes once in ``update_resources_interval``, some in between.

    nova's audits, its calls of the driver and the peer poll are different
    threads. ``_lock`` is held from the first read that a new ``last`` or
    ``_state`` depends on until both are replaced, but for the listing of
    Ironic. The values are immutable, so readers need no lock.
    """

    def __init__(self, cloud: Cloud, reader: Lister,
                 clock: abc.Callable[[], float] = time.monotonic,
                 recorder: Metrics | None = None) -> None:
        self.cloud = cloud
        self.heartbeats = HeartbeatLog(cloud, clock)
        self.last: Audit | None = None
        #: The hash ring as any thread has read it last.
        self.preferences: ring.Preferences | None = None
        # When the services of that ring were asked for.
        self._ring_begun = 0.0
        self._reader = reader
        self._clock = clock
        self._recorder = recorder or Metrics(clock)
        self._lock = threading.Lock()
        self._state = AuditState()
        self._notices = operator_news.Notices()
        # When peers may last have taken nodes of this host.
        self._doubted: float | None = None
        self._refused_records: frozenset[str] = frozenset()
        # When this host was last seen paused or not a member.
        self._disturbed: float | None = None

    def bar(self, node: str) -> None:
        """Note that the database refuses this host as owner of a node.

        Until all records of this host are read again. Any thread may call it.
        """
        self._refused_records |= {node}

    def is_barred(self, node: str) -> bool:
        """Whether the database refuses this host as owner of a node."""
        return node in self._refused_records or node in self._state.barred

    def doubt(self) -> None:
        """Have all records read again, as peers may have taken nodes."""
        self._doubted = self._clock()

    @property
    def in_doubt(self) -> bool:
        """Whether all records of this host must be read again."""
        return incremental.in_doubt(self._state.records_read_at, self._doubted)

    @property
    def absences(self) -> mirrors.Absences:
        """Recorded nodes that Ironic did not list, by the last full audit."""
        return self._state.absences

    @property
    def recorded(self) -> frozenset[str] | None:
        """Nodes recorded here at the last audit; None before the first."""
        last = self.last
        if last is None:
            return None
        host = last.view.host
        return frozenset(node for node in self._state.records
                         if last.owners.get(node, host) == host)

    @property
    def nodes(self) -> abc.Mapping[str, NodeRow]:
        """The rows of the nodes that this host owns, by the last audit."""
        return self.last.nodes if self.last else {}

    def reason(self, node: str) -> Reason | None:
        """Return why this host owns a node or not, None if not audited."""
        return self.last.reasons.get(node) if self.last else None

    def is_mine(self, node: str) -> bool:
        """Whether this host owns a node by the last audit."""
        reason = self.reason(node)
        return reason is not None and reason.mine

    def read_view(self, settings: Settings, hosts: abc.Iterable[str] = ()
                  ) -> peers.View:
        """Read the compute services and note their heartbeats."""
        begun = self._clock()
        known, outages = self.heartbeats.read(settings, hosts)
        _, view = peer_services.judged(
            known, outages, self._state_now(settings), settings)
        self.heartbeats.note_member(view, begun)
        if outages.paused or not view.member(view.host):
            self.doubt()
            if outages.own is not None:
                self._disturbed = self._doubted
        return view

    def view_of_nova(self, settings: Settings, hosts: abc.Iterable[str]
                     ) -> peers.View:
        """Read the compute services as nova's scheduler sees them."""
        _, view = peer_services.judged(
            peer_services.services(self.cloud, settings, hosts), None,
            self._state_now(settings), settings)
        return view

    def refresh_ring(self, settings: Settings) -> ring.Preferences:
        """Read the compute services and make the hash ring of them."""
        # Zones are left out: nova-compute must start without them.
        return self._read_peers(
            settings, self._known_hosts(),
            self.last is None or self.last.view.starting, zones=False
        ).preferences

    def audit(self, settings: Settings, settled: bool = True,
              then: abc.Callable[[Audit], None] = lambda audit: None,
              has: abc.Callable[[str], bool] = lambda node: False) -> Audit:
        """Audit all nodes; if that fails, ``last`` stays as it was.

        :param settled: the start of the service is over.
        :param then: called with the audit under the lock.
        :param has: whether nova's tracker holds a node.
        :raises ListingError: Ironic did not answer.
        """
        with self._recorder.turn(Work.AUDIT):
            return self._audit(settings, settled, then, has)

    def _audit(self, settings: Settings, settled: bool,
               then: abc.Callable[[Audit], None],
               has: abc.Callable[[str], bool]) -> Audit:
        # Without the lock: a listing is slow, and failover must not wait.
        self.read(settings)
        with self._lock:
            self._state = dataclasses.replace(
                self._state, providers_to_delete=decide.remove_providers(
                    self.cloud, self._reader,
                    self._state.providers_to_delete,
                    self._state.records.keys(),
                    settings.max_vanished_percent))
            begun = self._clock()
            collected = self._collector(
                settings, self._known_hosts(), not settled, has).all_nodes(
                    settled, self._doubted)
            decided = self._decide(settings, collected)
            audit = self._audit_of(collected, decided)
            self._notices.tell(settings.host, audit.reasons, collected.state)
            self._remember(collected, decided, audit, begun)
            self.last = audit
            self._note_waiting(audit)
            then(audit)
        return audit

    def _collector(self, settings: Settings, hosts: abc.Iterable[str],
                   starting: bool = False,
                   has: abc.Callable[[str], bool] = lambda node: False
                   ) -> collect.Collector:
        """Read the compute services, and return the reader of other facts."""
        seen_peers = self._read_peers(settings, hosts, starting)
        return collect.Collector(
            self.cloud, self._reader, settings, seen_peers,
            self._state_now(settings).with_taken(has), self.last,
            self._clock())

    def _decide(self, settings: Settings, collected: collect.Collected,
                builds: abc.Set[str] = frozenset(),
                adoptions: int | None = None) -> decide.Decision:
        return decide.decide(
            self.cloud, self._reader, collected.facts,
            settings, functools.partial(self._eligible, settings), builds,
            adoptions)

    def _eligible(self, settings: Settings, hosts: abc.Set[str]
                  ) -> frozenset[HostKey]:
        begun, outages = self._clock(), self.heartbeats.outages
        _, view = peer_services.judged(
            peer_services.services(
                self.cloud, settings, [*hosts, *self._known_hosts()]),
            outages, self._state_now(settings), settings)
        self.heartbeats.note_member(view, begun)
        return takeover.eligible(
            settings.policy, view, outages.lengths(begun, settings.heartbeats),
            map(host_key, hosts))

    def _note_waiting(self, audit: Audit) -> None:
        self._recorder.note_pending(Pending.TURN, {
            node for node, reason in audit.reasons.items()
            if reason in (Reason.INSTANCE_WAITS, Reason.TAKEOVER_FAILED)})

    def audit_hosts(self, settings: Settings, hosts: abc.Iterable[str],
                    then: abc.Callable[[Audit, list[str]], None],
                    known: abc.Iterable[str] = (),
                    only: abc.Set[str] | None = None,
                    builds: abc.Set[str] = frozenset(),
                    adoptions: int | None = None) -> abc.Mapping[str, Reason]:
        """As :meth:`audit`, for nodes of some hosts; other results stay.

        :param then: called under the lock with the new audit and the audited
            nodes that this host owns.
        :param known: more hosts that were seen.
        :param only: these nodes alone; None for all.
        :param builds: ``arrived`` of :func:`.decide.decide`; see there for
            ``adoptions``.
        :returns: {node: reason} of nodes that the ring may give to this host;
            empty before the first audit of all nodes.
        """
        hosts = list(hosts)
        with self._lock:
            last = self.last
            if last is None:
                return {}
            # Failover does not wait for a listing of all nodes.
            self.read(settings, brief=True)
            collected = self._collector(
                settings, [*hosts, *known]).nodes_of_hosts(hosts, only)
            decided = self._decide(settings, collected, builds, adoptions)
            latest, *earlier = self._state.recent
            self._state = dataclasses.replace(
                self._state, recent=(latest.union(
                    node for node, reason in decided.reasons.items()
                    if reason.mine), *earlier))
            self._merge(last, collected, decided, then)
        return decided.reasons

    def audit_changed(self, settings: Settings, nodes: abc.Iterable[str]
                     ) -> None:
        """Audit changed nodes that no peer owns; see :meth:`audit_hosts`."""
        with self._lock:
            last = self.last
            if last is None:
                return
            collected = self._collector(
                settings, self._known_hosts()).changed_nodes(nodes)
            self._merge(last, collected, decide.Decision({
                node: reason for node, reason
                in ownership.decide(collected.facts).items()
                if reason in incremental.AT_ONCE}, {}))

    def _merge(self, last: Audit, collected: collect.Collected,
               decided: decide.Decision,
               then: abc.Callable[[Audit, list[str]], None] = (
                   lambda audit, mine: None)) -> None:
        """Replace the results of some nodes; audits decide them again."""
        reasons = decided.reasons
        mine = sorted(node for node, reason in reasons.items() if reason.mine)
        self._state = self._state.with_unsettled(reasons)
        # The tracker may be about to take nodes by the last audit.
        found = {node: reason for node, reason in reasons.items()
                 if reason not in ownership.COMING or not self.is_mine(node)}
        self.last = last.merged(
            found, collected.facts.records, self._rows(
                collected.mirror, mine, {*last.nodes, *mine}),
            decided.taken_over, decided.at_rest)
        self._note_waiting(self.last)
        then(self.last, mine)

    @property
    def serial(self) -> int:
        """:attr:`.mirror.Mirror.serial` of the last audit of all nodes."""
        return self._state.standing.serial

    def read(self, settings: Settings, brief: bool = False) -> Mirror:
        """Ask Ironic for changes and own bodies, see :meth:`.Lister.read`."""
        if self.last is not None:
            wanted = self.last.nodes.__contains__
        else:
            # The bodies of likely nodes; the audit reads the others.
            seen_peers = self._read_peers(
                settings, self._known_hosts(), starting=True)
            wanted = functools.partial(
                seen_peers.preferences.may_prefer, seen_peers.view.host)
        return self._reader.read(
            settings.partition, settings.audit_interval, wanted, brief)

    def _read_peers(self, settings: Settings, hosts: abc.Iterable[str],
                    starting: bool = False, zones: bool = True
                    ) -> peer_services.Peers:
        """Read the compute services; remember the hash ring at once."""
        begun = self._clock()
        seen_peers = peer_services.read_peers(
            self.cloud, self._state_now(settings), settings,
            self.heartbeats.outages, hosts, self.preferences, starting, zones)
        # Another thread may have read a newer one: an answer may take minutes.
        if self.preferences is None or begun >= self._ring_begun:
            self._ring_begun, self.preferences = begun, seen_peers.preferences
        self.heartbeats.note_member(seen_peers.view, begun)
        return seen_peers

    def _known_hosts(self) -> list[str]:
        """Return the hosts seen by the last peer poll or audit.

        A new peer that is stopping would lose its nodes if left out.
        """
        audited = self.last.view.hosts if self.last else ()
        return [*dict.fromkeys([*self.heartbeats.hosts, *audited])]

    def _state_now(self, settings: Settings) -> AuditState:
        """Return the state, with what other threads have noted since."""
        state = self._state
        return dataclasses.replace(
            state, over=self.heartbeats.over(settings),
            audits=(0 if incremental.in_doubt(state.begun, self._disturbed)
                    else state.audits),
            barred={**dict.fromkeys(self._refused_records, ''),
                    **state.barred})

    def _audit_of(self, collected: collect.Collected,
                  decided: decide.Decision) -> Audit:
        facts, state, last = collected.facts, collected.state, self.last
        confirmed = state.absences.confirmed
        reasons = {
            **{node: reason for node, reason
               in (last.reasons if last else {}).items()
               if node in collected.mirror.nodes}, **decided.reasons}
        mine = frozenset(
            node for node, reason in reasons.items() if reason.mine)
        owners = {node: facts.host if node in facts.my_nodes
                  else facts.records[node].owner if node in facts.records
                  else None for node in mine}
        nodes = {**self._rows(collected.mirror, mine, mine),
                 **collected.unlisted}
        reasons.update(dict.fromkeys(state.absences.counts, Reason.UNLISTED))
        return Audit(
            view=facts.view, preferences=facts.preferences,
            reasons=reasons, nodes=nodes,
            owners={**owners,
                    **dict.fromkeys(collected.unlisted, facts.host)},
            records=tuple(
                record for record in state.records.values()
                if record.node in nodes or record.node in confirmed),
            deleted=frozenset(confirmed),
            host_aggregates=state.host_aggregates,
            recent=frozenset[str]().union(*self._state.recent),
            taken_over=decided.taken_over, at_rest=decided.at_rest)

    def _rows(self, mirror: Mirror, nodes: abc.Iterable[str],
              mine: abc.Set[str]) -> dict[str, NodeRow]:
        """Return {uuid: row} of the mirror, with bodies as far as known."""
        known = self._reader.complete(mine)

        def body(node: str) -> bytes | None:
            # A newer body does not match the decision.
            return (known.bodies.get(node)
                    if known.nodes.get(node) == mirror.nodes[node] else None)

        return {node: NodeRow(node, mirror.nodes[node], body(node))
                for node in nodes}

    def _remember(self, collected: collect.Collected,
                  decided: decide.Decision, audit: Audit, begun: float
                  ) -> None:
        facts, state = collected.facts, collected.state
        labels = {host: label for host, label
                  in state.partition_labels.items() if facts.view.live(host)}
        # A dead host may come back with another label.
        labels.update((record.owner, record.partition)
                      for record in facts.records.values()
                      if facts.view.live(record.owner))
        acquired = frozenset(node for node, owner in audit.owners.items()
                             if owner != facts.host)
        if state.records_read_at != self._state.records_read_at:
            self._refused_records = frozenset()
        self._state = dataclasses.replace(
            state,
            audits=state.audits + 1 if facts.view.member(facts.host) else 0,
            begun=begun,
            providers_to_delete=(self._state.providers_to_delete
                                 | state.absences.confirmed),
            standing=incremental.LastAudit(
                incremental.Inputs(facts.view, facts.preferences, facts.zones,
                                   facts.partition),
                collected.mirror.serial,
                frozenset(facts.my_nodes), frozenset(facts.my_instances),
                frozenset(
                    node for node, reason in decided.reasons.items()
                    if not incremental.reason_lasts(node, reason, facts)),
                self._state.standing.turn + 1),
            partition_labels=labels,
            recent=(acquired, *self._state.recent)[:RECENT])
