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


"""Who owns a node: the decision.

Pure: values in, decision out. Everything the decision needs is gathered
before, everything that follows from it is carried out after.

A node's record (the live row of nova's ``compute_nodes``) says who owns it;
the hash ring says who is preferred. Ownership is sticky: a preference alone
takes nothing from a live owner but an idle node, so that hosts whose views
differ for a while leave the records alone. The rules are tried in this order
for every node that Ironic lists, "me" being the host that decides:

1. a node with an instance of mine is mine;
2. a node with an instance of another live host is not mine;
3. a node with an instance of a dead host is mine if the policy says so and I
   am to have it (take-over), else not;
4. a node whose instance nova has deleted is a leaked machine: mine if I own
   it, or if its owner is none or dead and I am preferred;
5. the same holds for a node with an instance that nova does not know;
6. a free node of mine stays mine, whoever is preferred;
7. a free node without a record is mine if I am preferred (create);
8. a free node of a dead host is mine if I am preferred (adopt), unless a
   build was sent there: when the host returns it goes on with it, or nova
   there ends it, which nobody else can;
9. a free node of a live peer is mine if I am preferred and it is idle (pull);
10. a free node of a live host of another partition is not mine;
11. anything else is not mine.

Only a member is ever preferred, so a host that is disabled, forced down or
cut off keeps what it has (rules 1, 4 to 6) and takes nothing.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum
import typing

from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ring


class Reason(enum.Enum):
    """Why a node is mine or not; the value is for people to read."""

    INSTANCE_HERE = 'with an instance of this compute service'
    TAKEN_OVER = 'with an instance of a dead compute service until now'
    BUILDING = 'held for an instance that is on no compute service'
    LEAKED = 'held for an instance that nova has deleted'
    UNKNOWN = 'held for an instance that nova does not know'
    KEPT = 'free and recorded here'
    CREATED = 'free and recorded nowhere so far'
    ADOPTED = 'free and recorded on a compute service that is down'
    PULLED = 'free and recorded on another compute service until now'
    UNLISTED = 'recorded here and not listed by Ironic'
    INSTANCE_ELSEWHERE = 'with an instance of another compute service'
    INSTANCE_OF_DEAD = 'with an instance of a compute service that is down'
    INSTANCE_WAITS = 'with an instance to be taken over by a later audit'
    OTHER_PREFERRED = 'free and preferred by another compute service'
    AWAITED = 'waits for the compute service that its build was sent to'
    STARTING = 'to be taken when the start of this service is over'
    UNMAPPED = 'to be taken when this host is mapped to a cell'
    UNTESTED = 'to be pulled when this service has been up for some audits'
    ALLOCATED = 'to be pulled when no build is on its way to it'
    QUEUED = 'to be pulled by one of the next audits'
    OTHER_ZONE = 'recorded in another availability zone'
    OTHER_PARTITION = 'recorded on a compute service of another partition'

    @property
    def mine(self):
        """Whether this compute service manages the node."""
        return self in _MINE


_MINE = frozenset({
    Reason.INSTANCE_HERE, Reason.TAKEN_OVER, Reason.BUILDING,
    Reason.LEAKED, Reason.UNKNOWN, Reason.KEPT, Reason.CREATED,
    Reason.ADOPTED, Reason.PULLED, Reason.UNLISTED})


@dataclasses.dataclass(frozen=True)
class Record:
    """A live row of nova's ``compute_nodes``.

    :param node: uuid of the node, which is the uuid of the row.
    :param host: the owner, as nova spells it.
    :param partition: label of the partition that the owner serves, see
        :attr:`.membership.Partition.label`.
    :param row: what nova works with, if it comes from there.
    """

    node: str
    host: str
    partition: str = ''
    row: typing.Any = dataclasses.field(
        default=None, compare=False, repr=False)

    @property
    def owner(self):
        """The owner in lower case."""
        return self.host.lower()


@dataclasses.dataclass(frozen=True)
class InstanceState:
    """An instance that Ironic has on a node, as nova has it.

    :param host: compute service that it is on, as nova spells it, or None.
    :param deleted: nova has its row, and the row is deleted.
    :param node: uuid of the node that nova has it on, or None.
    :param vm_state: nova's vm_state.
    :param task_state: nova's task_state, None if it does nothing.
    """

    host: str | None
    deleted: bool = False
    node: str | None = None
    vm_state: str | None = None
    task_state: str | None = None

    @property
    def host_key(self):
        """The compute service in lower case, or None."""
        return self.host and self.host.lower()


@dataclasses.dataclass(frozen=True)
class Permissions:
    """What this host may do beyond keeping and creating.

    :param settled: its start is over, builds that are sent to it arrive.
    :param mapped: the scheduler can send builds to it, as far as is known.
    :param tested: it has been a member for long enough to pull.
    """

    settled: bool = True
    mapped: bool = True
    tested: bool = True


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that the decision depends on, gathered at one moment.

    :param nodes: node uuid -> uuid of the instance that Ironic has on it, or
        None. Exactly the nodes of the partition.
    :param my_instances: uuids of the instances that nova has on this host.
    :param my_nodes: uuids of the nodes that are recorded on this host.
    :param view: the compute services of this moment.
    :param preferences: who is preferred for which node.
    :param permissions: what this host may do.
    :param partition: the partition that this host serves.
    :param zones: host in lower case -> explicit availability zone.
    :param instance_states: uuid of an instance -> :class:`InstanceState`; at least for
        :func:`foreign_instances`, no entry for an instance that nova does not know.
    :param records: node uuid -> :class:`Record` of another host; at least for
        :func:`candidates`, no entry for a node without a record.
    :param eligible: hosts in lower case whose instances may be taken over,
        see :func:`.takeover.eligible`.
    """

    nodes: Mapping[str, str | None]
    my_instances: Set[str]
    my_nodes: Set[str]
    view: membership.View
    preferences: ring.Preferences
    permissions: Permissions = Permissions()
    partition: membership.Partition = membership.Partition()
    zones: Mapping[str, str] = dataclasses.field(default_factory=dict)
    instance_states: Mapping[str, InstanceState] = dataclasses.field(default_factory=dict)
    records: Mapping[str, Record] = dataclasses.field(default_factory=dict)
    eligible: Set[str] = frozenset()

    @property
    def host(self):
        """This host in lower case."""
        return self.view.host


def foreign_instances(facts):
    """Say of which instances it must be known whose they are.

    :param facts: :class:`Facts`, ``instance_states`` and ``records`` not needed.
    :returns: list of instance uuids: those that are not on this host, on
        nodes that this host owns or might take.
    """
    return [instance for node, instance in facts.nodes.items()
            if instance is not None and instance not in facts.my_instances
            and _concerns_me(node, facts)]


def candidates(facts):
    """Say of which nodes it must be known who owns them.

    :param facts: :class:`Facts`, ``records`` not needed.
    :returns: list of uuids of nodes that this host does not own and would
        take, depending on who does.
    """
    return [node for node, instance in facts.nodes.items()
            if node not in facts.my_nodes
            and instance not in facts.my_instances
            and (instance is None or _is_stray(instance, facts)
                 or facts.instance_states[instance].host_key in facts.eligible)
            and facts.preferences.may_prefer(facts.host, node)]


def decide(facts):
    """Say for each node why it is mine or not.

    Of the nodes that are PULLED it is not yet known whether builds are on
    their way to them: see :func:`pulls`.

    :param facts: :class:`Facts`.
    :returns: dict of node uuid -> :class:`Reason`, one for each node.
    """
    return {node: _reason(node, instance, facts)
            for node, instance in facts.nodes.items()}


def _concerns_me(node, facts):
    return (node in facts.my_nodes
            or facts.preferences.may_prefer(facts.host, node))


def _is_stray(instance, facts):
    """Whether nova has deleted the instance or does not know it."""
    state = facts.instance_states.get(instance)
    return state is None or state.deleted


def _reason(node, instance, facts):
    if instance is None:
        return (Reason.KEPT if node in facts.my_nodes
                else _taking(node, facts))
    if instance in facts.my_instances:
        return Reason.INSTANCE_HERE
    if not _concerns_me(node, facts):
        return Reason.INSTANCE_ELSEWHERE
    state = facts.instance_states.get(instance)
    if state is None or state.deleted:
        return _stray(node, state, facts)
    if state.host_key == facts.host:
        return Reason.INSTANCE_HERE
    if state.host_key is None:
        # Its build has failed or is sent elsewhere, and who built it is
        # about to free the node.
        return (Reason.BUILDING if node in facts.my_nodes
                else Reason.INSTANCE_ELSEWHERE)
    if facts.view.live(state.host_key):
        return Reason.INSTANCE_ELSEWHERE
    return _taking_over(node, state, facts)


def _taking_over(node, state, facts):
    """Why I take over an instance of a dead host, or do not."""
    if state.host_key not in facts.eligible or state.node not in (None, node):
        return Reason.INSTANCE_OF_DEAD
    zone = facts.zones.get(state.host_key)
    if node in facts.my_nodes:
        heir = (facts.preferences.cross_zones
                or facts.zones.get(facts.host) == zone)
    else:
        record = facts.records.get(node)
        if record is not None and (
                record.partition != facts.partition.label
                or not facts.view.peer(record.owner)):
            return Reason.OTHER_PARTITION
        if record is not None and facts.view.live(record.owner):
            # Who owns the node has its instance as well.
            return Reason.INSTANCE_OF_DEAD
        heir = facts.preferences.heir(node, zone) == facts.host
    if not heir:
        return Reason.INSTANCE_OF_DEAD
    return _allowed(facts) or Reason.TAKEN_OVER


def _stray(node, state, facts):
    held = Reason.UNKNOWN if state is None else Reason.LEAKED
    if node in facts.my_nodes:
        return held
    taking = _taking(node, facts)
    if taking in (Reason.CREATED, Reason.ADOPTED):
        return held
    # Its owner is live and does what is to be done.
    return Reason.INSTANCE_ELSEWHERE if taking is Reason.PULLED else taking


def _taking(node, facts):
    """Why I take a node that I do not own, or do not."""
    record = facts.records.get(node)
    if record is None:
        if facts.preferences.prefers(facts.host, node):
            return Reason.CREATED
        return Reason.OTHER_PREFERRED
    zone = facts.zones.get(record.owner)
    if not facts.preferences.prefers(facts.host, node, zone):
        if facts.preferences.prefers(facts.host, node):
            return Reason.OTHER_ZONE
        return Reason.OTHER_PREFERRED
    if facts.view.live(record.owner):
        return _pulling(record, facts)
    return _allowed(facts) or Reason.ADOPTED


def _pulling(record, facts):
    theirs = membership.Partition.from_label(record.partition)
    if facts.partition.excludes(theirs):
        # The node has changed its partition, its owner lets it go.
        return _allowed(facts) or Reason.PULLED
    if (record.partition != facts.partition.label
            or not facts.view.peer(record.owner)):
        return Reason.OTHER_PARTITION
    return _allowed(facts) or (
        Reason.PULLED if facts.permissions.tested else Reason.UNTESTED)


def _allowed(facts):
    """Why I may take nothing from anybody, or None."""
    if not facts.permissions.settled:
        return Reason.STARTING
    if not facts.permissions.mapped:
        return Reason.UNMAPPED
    return None


def pulls(reasons, limit, busy=frozenset()):
    """Say which nodes to pull in this audit.

    :param reasons: what :func:`decide` returned.
    :param limit: the most nodes to pull in one audit.
    :param busy: nodes to which builds were on their way when it was last
        asked; they come last, so that they do not keep others waiting.
    :returns: list of node uuids of which it must be known, before they are
        pulled, whether placement has an allocation.
    """
    wanted = sorted(
        (node for node, reason in reasons.items()
         if reason is Reason.PULLED), key=lambda node: (node in busy, node))
    return wanted[:limit]


def with_pulls(reasons, asked, allocated):
    """Return the reasons with only those nodes taken that are idle.

    :param reasons: what :func:`decide` returned.
    :param asked: what :func:`pulls` returned.
    :param allocated: of those and of the ADOPTED nodes, the ones that have an
        allocation of an instance that nova has.
    """
    asked = set(asked)
    result = dict(reasons)
    for node, reason in reasons.items():
        if reason is Reason.ADOPTED and node in allocated:
            result[node] = Reason.AWAITED
        if reason is Reason.PULLED:
            if node in allocated:
                result[node] = Reason.ALLOCATED
            elif node not in asked:
                result[node] = Reason.QUEUED
    return result


def abandoned_builds(node, builds, facts):
    """Say which builds of a node will never come to an end.

    A dead host had claimed them and had not reserved the machine yet: what
    nova gives up when that host starts again.

    :param node: uuid of a node that is ADOPTED.
    :param builds: uuid -> :class:`InstanceState`, of the instances of nova that have
        an allocation of it.
    :param facts: :class:`Facts`.
    :returns: list of uuids of instances to take over.
    """
    return [uuid for uuid, state in sorted(builds.items())
            if state.host_key in facts.eligible
            and state.vm_state == 'building'
            and state.node in (None, node)
            and facts.preferences.heir(
                node, facts.zones.get(state.host_key)) == facts.host]


def awaited(builds, taken, host):
    """Whether a node has to wait for its host on account of its builds.

    :param builds: as for :func:`abandoned_builds`.
    :param taken: uuids of the instances that were taken over by now.
    :param host: this host in lower case.
    """
    return any(uuid not in taken and state.host_key != host
               for uuid, state in builds.items())


def takeovers(reasons, limit):
    """Say which nodes' instances to take over in this audit.

    :param reasons: what :func:`decide` returned.
    :param limit: the most of them in one audit.
    :returns: list of node uuids.
    """
    return sorted(node for node, reason in reasons.items()
                  if reason is Reason.TAKEN_OVER)[:limit]


def with_takeovers(reasons, asked, taken):
    """Return the reasons with only those instances taken over that were.

    :param reasons: what :func:`decide` returned.
    :param asked: what :func:`takeovers` returned.
    :param taken: of those, the nodes whose instances are on this host now.
    """
    asked = set(asked)
    result = dict(reasons)
    for node, reason in reasons.items():
        if reason is Reason.TAKEN_OVER and node not in taken:
            result[node] = (Reason.INSTANCE_OF_DEAD if node in asked
                            else Reason.INSTANCE_WAITS)
    return result


def was_robbed(facts, owned):
    """Whether others took nodes from me as if I were dead.

    They would, after my heartbeat failed for a while: nodes that I owned and
    am preferred for are recorded on other live hosts.

    :param facts: :class:`Facts`.
    :param owned: uuids of the nodes that I owned at the audit before.
    """
    return any(
        record.node in owned
        and facts.view.live(record.owner)
        and facts.preferences.prefers(
            facts.host, record.node, facts.zones.get(record.owner))
        for record in facts.records.values())


def still_valid(reason, before, now, host, live, state=None):
    """Whether a decision still stands when it is carried out.

    An audit of many nodes lasts minutes, and the tracker moves a record
    whoever owns it by then (nova: ResourceTracker._init_compute_node).

    :param reason: why the node is mine.
    :param before: owner of the node when that was decided, or None.
    :param now: its owner at this moment, or None; in lower case, as all.
    :param host: this host.
    :param live: whether the owner of this moment is up.
    :param state: :class:`InstanceState` of this moment for a node with an instance,
        or None.
    """
    if now in (None, host):
        return True
    if reason in (Reason.INSTANCE_HERE, Reason.TAKEN_OVER):
        return state is not None and (
            state.host_key == host and not state.deleted)
    if now != before:
        return False
    return reason is Reason.PULLED or not live


def tally(reasons):
    """Count the nodes for each reason.

    :param reasons: what :func:`decide` returned.
    :returns: dict of :class:`Reason` -> number of nodes, every reason
        included, in the order of the rules.
    """
    counts = dict.fromkeys(Reason, 0)
    for reason in reasons.values():
        counts[reason] += 1
    return counts
