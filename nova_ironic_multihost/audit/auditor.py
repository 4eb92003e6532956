# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""An audit: gather what the decision needs, decide, remember.

nova audits a compute service once in ``update_resources_interval``. What one
audit found is an immutable :class:`Audit`, replaced whole by the next. The
sources of the facts are injected: nova and Ironic in a nova-compute, a model
of them in the simulation.
"""

import collections
from collections.abc import Mapping
import dataclasses
import threading
import time
import types
import typing

from oslo_log import log as logging

from nova_ironic_multihost.audit import notices
from nova_ironic_multihost.core import absence
from nova_ironic_multihost.core import aggregates
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost.core import ring
from nova_ironic_multihost.core import takeover

LOG = logging.getLogger(__name__)

#: Nodes whose records are read to learn which partition a member serves.
SAMPLE = 8

#: Audits for which a node that came from another owner counts as recent.
RECENT = 2

#: Nodes in a listing that cost Ironic as much as one that is asked for alone.
TOGETHER = 20


class Sources(typing.Protocol):
    """Where the facts come from; each method asks anew.

    ``records`` that it returns are :class:`.ownership.Record` objects.
    """

    def services(self):
        """Return the enabled services that have an Ironic compute node.

        :returns: list of :class:`.membership.ComputeService`.
        """

    def service(self, host):
        """Return any :class:`.membership.ComputeService`, None if none."""

    def nodes(self, partition):
        """Return {uuid: node object with ``instance_id``}, the whole list.

        :raises VirtDriverNotReady: when Ironic does not give it.
        """

    def node(self, uuid):
        """Return one node object, None when Ironic has no such node.

        :raises Exception: when that cannot be known.
        """

    def instances(self, hosts):
        """Return the set of uuids of the instances on these hosts."""

    def instance_states(self, instances):
        """Return {instance uuid: :class:`.ownership.InstanceState`}."""

    def records_of(self, hosts):
        """Return the records of these hosts."""

    def records(self, nodes):
        """Return the records of these nodes."""

    def consumers(self, node):
        """Return the set of consumers of a node, None if it is not known."""

    def mapped(self, host):
        """Whether the host is mapped to a cell, None if it cannot be known."""

    def aggregates(self):
        """Return (:class:`.aggregates.Aggregate`, ...), None if unknown."""

    def take_over(self, instance, state, host):
        """Make an instance this host's if it is still as it was seen.

        :param instance: uuid.
        :param state: :class:`.ownership.InstanceState`, as it was seen.
        :param host: this host.
        :returns: whether it is this host's now.
        """


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options that audits heed, see :mod:`nova_ironic_multihost.conf`."""

    host: str
    partition: membership.Partition = membership.Partition()
    ring_partitions: int = 1024
    pulls_per_audit: int = 200
    pull_delay_audits: int = 2
    move_across_zones: bool = False
    max_vanished_percent: int = 50
    policy: takeover.Policy = takeover.Policy()
    takeovers_per_audit: int = 50


@dataclasses.dataclass(frozen=True)
class Audit:
    """What one audit found and decided.

    :param view: the compute services, as this host saw them.
    :param preferences: who is preferred for which node.
    :param reasons: node uuid -> :class:`.ownership.Reason`, of all nodes that
        Ironic lists or that are recorded here.
    :param nodes: uuid -> node object, of the nodes that are mine.
    :param owners: uuid -> owner in lower case or None, of the nodes that are
        mine, when that was decided.
    :param records: the records of this host that nova is to know of: of nodes
        that are mine and of nodes that are deleted.
    :param deleted: uuids of the nodes that Ironic has no more.
    :param host_aggregates: nova's host aggregates, as far as they are known.
    :param recent: uuids of the nodes that came from another owner in one of
        the last :data:`RECENT` audits before.
    :param taken_over: instance uuid -> host that it was on before, of those
        that this audit took over.
    """

    view: membership.View
    preferences: ring.Preferences
    reasons: Mapping[str, ownership.Reason]
    nodes: Mapping[str, typing.Any]
    owners: Mapping[str, str | None]
    records: tuple[ownership.Record, ...] = ()
    deleted: frozenset[str] = frozenset()
    host_aggregates: aggregates.Known = aggregates.Known()
    recent: frozenset[str] = frozenset()
    taken_over: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))


@dataclasses.dataclass(frozen=True)
class Memory:
    """What an audit remembers of those before.

    :param audits: number of audits in a row, up to the last one, in which
        this host was a member whom nobody took for dead.
    :param rounds: number of audits in a row in which the partition of some
        member was not known; others are then sampled.
    :param owned: uuids of the nodes that were recorded here.
    :param instance_states: instance uuid -> :class:`.ownership.InstanceState`, as it was.
    :param partitions: host in lower case -> label of its partition.
    :param busy: nodes that could not be pulled for their allocations.
    :param absences: nodes that are not listed.
    :param mapped: this host was found to be mapped.
    :param host_aggregates: nova's host aggregates, as far as they are known.
    :param recent: for each of the last :data:`RECENT` audits the uuids of the
        nodes that came from another owner.
    """

    audits: int = 0
    rounds: int = 0
    owned: frozenset[str] = frozenset()
    instance_states: Mapping[str, ownership.InstanceState] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    partitions: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    busy: frozenset[str] = frozenset()
    absences: absence.Absences = absence.Absences()
    mapped: bool = False
    host_aggregates: aggregates.Known = aggregates.Known()
    recent: tuple[frozenset[str], ...] = ()


@dataclasses.dataclass(frozen=True)
class _Gathered:
    """What an audit has gathered.

    :param facts: :class:`.ownership.Facts`.
    :param listed: uuid -> node object, of the nodes that Ironic lists.
    :param records: the records of this host.
    :param mapped: whether this host is mapped, None if unknown.
    :param audits: see :class:`Memory`, before this audit.
    :param host_aggregates: nova's host aggregates.
    """

    facts: ownership.Facts
    listed: Mapping[str, typing.Any]
    records: tuple[ownership.Record, ...]
    mapped: bool | None
    audits: int
    host_aggregates: aggregates.Known


class Auditor:
    """Audits one compute service, again and again.

    :param sources: :class:`Sources`.
    :param clock: monotonic clock, in seconds.
    :ivar sources: the same.
    :ivar preferences: :class:`.ring.Preferences` when it last looked.
    :ivar last: the last :class:`Audit`, None before the first.
    """

    def __init__(self, sources, clock=time.monotonic):
        self.sources = sources
        self._clock = clock
        self._lock = threading.Lock()
        self._memory = Memory()
        # Host in lower case -> when it was first seen down, of those that
        # have been down ever since.
        self._down_since = types.MappingProxyType({})
        self.preferences = None
        self._notices = notices.Notices()
        self.last = None

    def read_view(self, settings, hosts=(), starting=False):
        """Look who is there.

        One question to nova, and one more for each host that is disabled.

        :param settings: :class:`Settings`.
        :param hosts: those that were there, as nova spells them: nova lists
            them only while they are enabled.
        :param starting: see :class:`.membership.View`.
        :returns: (services, :class:`.membership.View`)
        """
        services = self.sources.services()
        services = services + self._others(services, [settings.host, *hosts])
        label = settings.partition.label
        return services, membership.view(
            services, settings.partition, settings.host,
            other_partition_hosts=(host for host, theirs
                       in self._memory.partitions.items() if theirs != label),
            starting=starting)

    def refresh_ring(self, settings, starting=False, hosts=()):
        """Look who shares the nodes.

        :param settings: :class:`Settings`.
        :param starting: see :class:`.membership.View`.
        :param hosts: see :meth:`read_view`.
        :returns: (services, :class:`.aggregates.Known`,
            :class:`.membership.View`, :class:`.ring.Preferences`)
        """
        services, view = self.read_view(settings, hosts, starting)
        known = self._memory.host_aggregates.after(self.sources.aggregates())
        zones = aggregates.zones(known.aggregates)
        self.preferences = ring.refreshed(
            self.preferences,
            {host: zones.get(host) for host in view.members},
            settings.ring_partitions, settings.move_across_zones)
        return services, known, view, self.preferences

    def records(self, settings):
        """Return the records of this host, by whatever spelling.

        :param settings: :class:`Settings`.
        """
        return self.sources.records_of(
            membership.spellings(self.sources.services(), settings.host))

    def audit(self, settings, settled=True, then=lambda audit: None):
        """Audit once; nothing is remembered of an audit that fails.

        :param settings: :class:`Settings`.
        :param settled: the start of the service is over.
        :param then: called with the :class:`Audit` before anybody audits
            again.
        :returns: the :class:`Audit`, which is also :attr:`last` from now on.
        :raises VirtDriverNotReady: when Ironic gives no whole list.
        """
        # The listing takes long when nodes are many, so it goes first: a
        # build that was claimed meanwhile is then known as an instance of
        # ours, and a compute service that died meanwhile as dead. Nor do the
        # nodes of one that died wait for it.
        listed = self.sources.nodes(settings.partition)
        with self._lock:
            self.last = self._audit(settings, settled, listed)
            then(self.last)
            return self.last

    def audit_hosts(self, settings, hosts, then):
        """Audit the nodes that are recorded on some hosts, and no others.

        By the same rules. What is remembered from audit to audit stays,
        except that nodes which become mine are recent; what the last audit
        found of all other nodes stays, too.

        :param settings: :class:`Settings`.
        :param hosts: others than this, as nova spells them.
        :param then: called before anybody audits again with the
            :class:`Audit`, which is :attr:`last` from now on, and the uuids
            of those of the nodes that are mine.
        :returns: {node: :class:`.ownership.Reason`} of the nodes that this
            host may be preferred for.
        :raises Exception: when something cannot be known; nothing is changed.
        """
        with self._lock:
            facts, fetched = self._gather_hosts(settings, hosts)
            reasons, _, taken = self._decide_and_take(facts, settings)
            mine = sorted(
                node for node, reason in reasons.items() if reason.mine)
            self.last = self._merged(facts, reasons, {
                node: fetched[node] for node in mine}, taken)
            latest, *earlier = self._memory.recent
            self._memory = dataclasses.replace(
                self._memory, recent=(latest.union(mine), *earlier))
            then(self.last, mine)
        return reasons

    def _gather_hosts(self, settings, hosts):
        """Return (:class:`.ownership.Facts`, {uuid: node object})."""
        services, known, view, preferences = self.refresh_ring(settings, hosts=hosts)
        names = [name for host in hosts
                 for name in membership.spellings(services, host)]
        records = {record.node: record
                   for record in self.sources.records_of(names)
                   if preferences.may_prefer(view.host, record.node)}
        fetched = self._fetch(settings.partition, list(records))
        facts = ownership.Facts(
            nodes={node: found.instance_id
                   for node, found in fetched.items()},
            my_instances=frozenset(), my_nodes=frozenset(),
            view=view, preferences=preferences,
            partition=settings.partition,
            zones=aggregates.zones(known.aggregates),
            records={node: records[node] for node in fetched})
        facts = dataclasses.replace(facts, instance_states=self._instance_states(facts))
        return self._judged(settings, True, services, facts)[0], fetched

    def _fetch(self, partition, wanted):
        """Return {uuid: node object} of these nodes, if Ironic has them."""
        if not wanted:
            return {}
        # A node alone does not tell its partition.
        if partition.label or TOGETHER * len(wanted) > len(self.last.reasons):
            listed = self.sources.nodes(partition)
            return {node: listed[node] for node in wanted if node in listed}
        found = {node: self.sources.node(node) for node in wanted}
        return {node: known for node, known in found.items()
                if known is not None}

    def _merged(self, facts, reasons, mine, taken):
        """Return the last audit with what was decided for some nodes."""
        last = self.last
        others = {node: known for node, known in last.nodes.items()
                  if node not in reasons}
        owners = {node: last.owners[node] for node in others}
        owners.update((node, facts.records[node].owner) for node in mine)
        return dataclasses.replace(
            last,
            reasons=types.MappingProxyType({**last.reasons, **reasons}),
            nodes=types.MappingProxyType({**others, **mine}),
            owners=types.MappingProxyType(owners),
            records=(*(record for record in last.records
                       if record.node not in reasons),
                     *(facts.records[node] for node in mine)),
            recent=last.recent.union(mine),
            taken_over=types.MappingProxyType(taken))

    def _audit(self, settings, settled, listed):
        gathered = self._gather(settings, settled, listed)
        facts = gathered.facts
        reasons, busy, taken = self._decide_and_take(facts, settings)
        absences, unlisted = self._absences(
            settings, facts.my_nodes, facts.nodes.keys())
        nodes = {node: gathered.listed[node]
                 for node, reason in reasons.items() if reason.mine}
        nodes.update(unlisted)
        reasons.update(
            dict.fromkeys(absences.counts, ownership.Reason.UNLISTED))
        self._notices.tell(notices.due(
            settings.host, gathered.mapped, reasons, absences,
            gathered.host_aggregates.read))
        owners = {
            node: facts.host if node in facts.my_nodes
            else facts.records[node].owner if node in facts.records
            else None for node in nodes}
        recent = frozenset().union(*self._memory.recent)
        self._remember(gathered, busy, absences, frozenset(
            node for node, owner in owners.items() if owner != facts.host))
        return Audit(
            view=facts.view, preferences=facts.preferences,
            reasons=types.MappingProxyType(reasons),
            nodes=types.MappingProxyType(nodes),
            owners=types.MappingProxyType(owners),
            records=tuple(
                record for record in gathered.records
                if record.node in nodes
                or record.node in absences.confirmed),
            deleted=absences.confirmed,
            host_aggregates=gathered.host_aggregates, recent=recent,
            taken_over=types.MappingProxyType(taken))

    def _gather(self, settings, settled, listed):
        sources = self.sources
        services, known, view, preferences = self.refresh_ring(
            settings, starting=not settled)
        hosts = membership.spellings(services, settings.host)
        records = tuple(sources.records_of(hosts))
        facts = ownership.Facts(
            nodes={node: found.instance_id for node, found in listed.items()},
            my_instances=frozenset(sources.instances(hosts)),
            my_nodes=frozenset(record.node for record in records),
            view=view, preferences=preferences,
            partition=settings.partition,
            zones=aggregates.zones(known.aggregates))
        facts = dataclasses.replace(facts, instance_states=self._instance_states(facts))
        services = services + self._others(services, [
            state.host for state in facts.instance_states.values() if state.host])
        facts = self._with_eligible(facts, services, settings)
        facts = dataclasses.replace(facts, records=self._records(facts))
        facts, mapped, audits = self._judged(
            settings, settled, services, facts)
        return _Gathered(facts, listed, records, mapped, audits, known)

    def _judged(self, settings, settled, services, facts):
        """Complete the facts by who has instances and nodes.

        And by what this host may do.

        :returns: (facts, whether it is mapped, audits as a member)
        """
        services = services + self._others(services, [
            *(record.host for record in facts.records.values()),
            *(state.host for state in facts.instance_states.values()
              if state.host)])
        facts = self._with_eligible(facts, services, settings)
        mapped = self._memory.mapped or self.sources.mapped(settings.host)
        robbed = ownership.was_robbed(facts, self._memory.owned)
        audits = 0 if robbed else self._memory.audits
        facts = dataclasses.replace(facts, permissions=ownership.Permissions(
            settled=settled, mapped=mapped is not False,
            tested=audits >= settings.pull_delay_audits))
        return facts, mapped, audits

    def _decide_and_take(self, facts, settings):
        """Decide, and take over what is to be taken over.

        :returns: ({node: reason}, nodes that could not be pulled, {instance
            that was taken over: host that it was on before}).
        """
        reasons = ownership.decide(facts)
        asked = ownership.pulls(
            reasons, settings.pulls_per_audit, self._memory.busy)
        busy = frozenset(node for node in asked if self.in_use(node))
        builds = self._builds(reasons)
        abandoned_builds = self._take_builds(facts, builds, settings)
        reasons = ownership.with_pulls(reasons, asked, busy.union(
            node for node, some in builds.items()
            if ownership.awaited(some, abandoned_builds, facts.host)))
        reasons, taken = self._take_over(
            facts, reasons, settings.takeovers_per_audit - len(abandoned_builds),
            settings.host)
        return reasons, busy, {**abandoned_builds, **taken}

    def _with_eligible(self, facts, services, settings):
        """Return the facts with these services, and whose instances to take.

        Whoever is not in nova's list, be it disabled or without a node, may
        have instances; so this is asked for as services become known.
        """
        view = dataclasses.replace(
            facts.view, services=membership.by_name(services))
        return dataclasses.replace(
            facts, view=view, eligible=self.eligible(settings, view))

    def eligible(self, settings, view):
        """Return the hosts whose instances may be taken over by now.

        :param settings: :class:`Settings`.
        :param view: :class:`.membership.View` of this moment.
        """
        now = self._clock()
        # A host that this view lacks may be met again.
        self._down_since = types.MappingProxyType({
            **{host: since for host, since in self._down_since.items()
               if not view.live(host)},
            **{host: self._down_since.get(host, now)
               for host, service in view.services.items()
               if not service.up}})
        return takeover.eligible(settings.policy, view, {
            host: now - since for host, since in self._down_since.items()})

    def _take_builds(self, facts, builds, settings):
        """Return {instance: host before} of the builds taken over.

        :param builds: what :meth:`_builds` returned.
        """
        wanted = [(uuid, some[uuid]) for node, some in builds.items()
                  for uuid in ownership.abandoned_builds(node, some, facts)]
        return {uuid: state.host for uuid, state
                in wanted[:settings.takeovers_per_audit]
                if self.sources.take_over(uuid, state, settings.host)}

    def _take_over(self, facts, reasons, limit, host):
        """Return (reasons, {instance: host before}) of those taken over."""
        asked = ownership.takeovers(reasons, limit)
        taken = {}
        for node in asked:
            instance = facts.nodes[node]
            state = facts.instance_states[instance]
            if self.sources.take_over(instance, state, host):
                taken[node] = instance
        reasons = ownership.with_takeovers(reasons, asked, taken.keys())
        return reasons, {instance: facts.instance_states[instance].host
                         for instance in taken.values()}

    def in_use(self, node):
        """Whether placement has an allocation of a node, or may have."""
        consumers = self.sources.consumers(node)
        return consumers is None or bool(consumers)

    def _builds(self, reasons):
        """Return {node: {instance: state}} of builds sent to dead hosts.

        A consumer that nova has deleted is no build: whoever owns the node
        clears that up (ResourceTracker._remove_deleted_instances_allocations).
        """
        consumers = {
            node: self.sources.consumers(node) or frozenset()
            for node, reason in reasons.items()
            if reason is ownership.Reason.ADOPTED}
        every = frozenset().union(*consumers.values())
        instance_states = self.sources.instance_states(sorted(every)) if every else {}
        return {node: {uuid: instance_states[uuid] for uuid in some
                       if uuid in instance_states and not instance_states[uuid].deleted}
                for node, some in sorted(consumers.items())}

    def _remember(self, gathered, busy, absences, acquired):
        facts = gathered.facts
        partitions = self._partitions(facts.view, facts.records.values())
        unknown = (set(facts.preferences.members) - {facts.host}
                   - partitions.keys())
        self._memory = Memory(
            audits=(gathered.audits + 1
                    if facts.view.member(facts.host) else 0),
            rounds=self._memory.rounds + 1 if unknown else 0,
            owned=facts.my_nodes,
            instance_states=facts.instance_states,
            partitions=partitions, busy=busy, absences=absences,
            mapped=bool(gathered.mapped),
            host_aggregates=gathered.host_aggregates,
            recent=(acquired, *self._memory.recent)[:RECENT])

    def _others(self, services, hosts):
        """Return the services of those of the hosts that are not known yet.

        Either they are disabled, or they had no Ironic compute node when
        nova was asked for the services that have one.
        """
        known = {service.host.lower() for service in services}
        missing = {host.lower(): host for host in hosts
                   if host.lower() not in known}
        found = [self.sources.service(host) for host in missing.values()]
        return [dataclasses.replace(service, ironic=False)
                for service in found if service]

    def _instance_states(self, facts):
        """Return whose the instances of :func:`.ownership.foreign_instances` are.

        Those that were on a host that is still live are not asked for again:
        whatever becomes of them there, that host sees to it. Unless their
        nodes are mine: then it is me who sees to what they leave.
        """
        wanted = ownership.foreign_instances(facts)
        on_mine = {facts.nodes.get(node) for node in facts.my_nodes}
        known = {instance: state for instance, state
                 in self._memory.instance_states.items()
                 if not state.deleted and facts.view.live(state.host_key)
                 and instance not in on_mine}
        instance_states = {instance: known[instance]
                   for instance in wanted if instance in known}
        unknown = [instance for instance in wanted if instance not in known]
        if unknown:
            instance_states.update(self.sources.instance_states(unknown))
        return types.MappingProxyType(instance_states)

    def _records(self, facts):
        """Return {node: record} of other hosts: candidates and samples."""
        wanted = dict.fromkeys(ownership.candidates(facts))
        wanted.update(dict.fromkeys(self._samples(facts)))
        if not wanted:
            return {}
        return {record.node: record
                for record in self.sources.records(list(wanted))
                if record.node not in facts.my_nodes}

    def _samples(self, facts):
        """Yield nodes that tell which partition the members serve.

        A member that serves another partition does not see all our nodes, so
        those that it is preferred for would be nobody's.
        """
        members = {member for member in facts.preferences.members
                   if member != facts.host
                   and member not in self._memory.partitions}
        if not members:
            return
        seen = collections.Counter()
        first = self._memory.rounds * SAMPLE
        for node in facts.nodes:
            host = facts.preferences.host_for(node)
            if host in members:
                if first <= seen[host] < first + SAMPLE:
                    yield node
                seen[host] += 1

    def _partitions(self, view, records):
        """Return {host: label} of the partitions of live hosts."""
        partitions = {host: label for host, label
                      in self._memory.partitions.items() if view.live(host)}
        partitions.update(
            (record.owner, record.partition) for record in records)
        return types.MappingProxyType(partitions)

    def _absences(self, settings, mine, listed):
        """Look for the nodes that are recorded here and not listed.

        :returns: (:class:`.absence.Absences`, {uuid: node object} of those
            that are not deleted, as far as there is an object).
        """
        absences = absence.observe(self._memory.absences, mine, listed,
                                   settings.max_vanished_percent)
        gone, found = set(), set()
        last = self.last.nodes if self.last else {}
        nodes = {node: last[node] for node in absences.counts if node in last}
        for node in absence.questions(absences):
            try:
                answer = self.sources.node(node)
            except Exception as exc:  # noqa: BLE001
                # Whatever it is, it is not the answer that there is none.
                LOG.debug('Ironic does not say whether it has node %(node)s: '
                          '%(exc)s', {'node': node, 'exc': exc})
                found.add(node)
                continue
            if answer is None:
                gone.add(node)
            else:
                found.add(node)
                nodes[node] = answer
        absences = absence.answered(absences, mine, gone, found)
        return absences, {node: known for node, known in nodes.items()
                          if node not in absences.confirmed}

    def may_be_gone(self, node):
        """Whether another may have taken a node since the audit began.

        :param node: uuid of a node that was mine then.
        """
        audit = self.last
        if audit is None or audit.reasons.get(node) is not (
                ownership.Reason.KEPT):
            return False
        host = audit.view.host
        return not audit.preferences.prefers(
            host, node, audit.preferences.members.get(host))

    def still_valid(self, node, record=None):
        """Whether a node that is about to become mine still may.

        :param node: uuid of a node.
        :param record: its :class:`.ownership.Record` of this moment, if it
            has been read.
        """
        audit = self.last
        reason = audit and audit.reasons.get(node)
        if reason is None or not reason.mine:
            return False
        record = record or next(iter(self.sources.records([node])), None)
        if record is None or record.owner == audit.view.host:
            return True
        service = self.sources.service(record.host)
        instance = getattr(audit.nodes.get(node), 'instance_id', None)
        state = self.sources.instance_states([instance]).get(
            instance) if instance else None
        return ownership.still_valid(
            reason, audit.owners.get(node), record.owner, audit.view.host,
            bool(service and service.up), state)
