# SPDX-License-Identifier: Apache-2.0


"""The decision: who owns a node, and why.

The record of a node (its live row in nova's ``compute_nodes``) says which host
owns it; the hash ring says which host is preferred. Ownership is sticky: for a
preference alone a host takes only idle nodes from a live owner, so hosts whose
views differ for a while leave the records alone. The rules have the numbers of
:mod:`.reasons`; "me" is the host that decides.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import enum

from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Inventory
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


class Reason(enum.Enum):
    """Why a node is mine or not; the value is for people to read.

    :ivar rules: numbers of the rules of :mod:`.reasons` behind it.
    :ivar mine: whether this compute service manages the node.
    """

    INSTANCE_HERE = True, 'with an instance of this compute service', 1
    TAKEN_OVER = (
        True, 'with an instance of a dead compute service until now', 3)
    BUILDING = True, 'held for an instance that is on no compute service', 6
    LEAKED = True, 'held for an instance that nova has deleted', 4
    UNKNOWN = True, 'held for an instance that nova does not know', 5
    KEPT = True, 'free and recorded here', 6
    CREATED = True, 'free and recorded nowhere so far', 7
    ADOPTED = True, 'free and recorded on a compute service that is down', 8
    PULLED = True, 'free and recorded on another compute service until now', 9
    UNLISTED = True, 'recorded here and not listed by Ironic', 6
    INSTANCE_ELSEWHERE = (
        False, 'with an instance of another compute service', 2)
    INSTANCE_OF_DEAD = (
        False, 'with an instance of a compute service that is down', 3)
    INSTANCE_WAITS = (
        False, 'with an instance to be taken over by a later audit', 3)
    TAKEOVER_FAILED = (
        False, 'with an instance or a build that could not be taken over yet',
        3, 8)
    ADOPTION_WAITS = (
        False, 'recorded on a compute service that is down, to be taken later',
        8)
    OTHER_PREFERRED = (
        False, 'free and preferred by another compute service', 11)
    AWAITED = (
        False, 'waits for the compute service that its build was sent to', 8)
    UNANSWERED = (
        False, 'to be taken when placement says whether a build was sent to '
        'it', 8, 9)
    STARTING = (
        False, 'to be taken when the start of this service is over',
        3, 4, 5, 8, 9)
    BARRED = (
        False, 'to be taken when the database lets its record become this '
        "host's", 3, 4, 5, 7, 8, 9)
    UNMAPPED = (
        False, 'to be taken when this host is mapped to a cell', 3, 4, 5, 8, 9)
    UNTESTED = (
        False, 'to be pulled when this service has been up for some audits', 9)
    ALLOCATED = False, 'to be pulled when no build is on its way to it', 9
    QUEUED = False, 'to be pulled by one of the next audits', 9
    OTHER_ZONE = False, 'recorded in another availability zone', 8, 9
    OTHER_PARTITION = (
        False, 'recorded on a compute service of another partition', 10)

    mine: bool
    rules: tuple[int, ...]

    def __new__(cls, mine: bool, text: str, *rules: int) -> 'Reason':
        """Take the text for the value."""
        reason = object.__new__(cls)
        reason._value_ = text
        reason.mine = mine
        reason.rules = rules
        return reason


#: Why a node is mine that has, or comes with, an instance of this host.
SERVED = frozenset({Reason.INSTANCE_HERE, Reason.TAKEN_OVER})

#: Why a node is still to be taken: it can be as soon as its turn comes, or
#: as somebody answers who is asked for all nodes alike.
WAITING = frozenset({
    Reason.ADOPTION_WAITS, Reason.INSTANCE_WAITS, Reason.UNANSWERED})

#: The same on account of what is up with that node, which may last.
HINDERED = frozenset({Reason.TAKEOVER_FAILED, Reason.AWAITED})


def foreign_instances(inventory: Inventory) -> list[str]:
    """Return the instances for which the host must be looked up.

    :returns: uuids of instances that are not on this host, on nodes that this
        host owns or might take.
    """
    return [instance for node, instance in inventory.nodes.items()
            if instance is not None
            and instance not in inventory.my_instances
            and inventory.concerns_me(node)]


def candidates(inventory: Inventory, states: Mapping[str, InstanceState],
               view: peers.View) -> list[str]:
    """Return the nodes for which the owner must be looked up.

    :param states: uuid -> :class:`InstanceState`, of the
        :func:`foreign_instances`.
    :param view: the compute services, with the hosts of those instances.
    :returns: uuids of nodes that this host does not own and, depending on the
        owner, would take.
    """
    def may_be_had(instance: str | None) -> bool:
        state = _user(instance, states)
        return state is None or (
            state.host_key is not None and not view.live(state.host_key))

    return [node for node, instance in inventory.nodes.items()
            if node not in inventory.my_nodes
            and instance not in inventory.my_instances
            and inventory.preferences.may_prefer(inventory.host, node)
            and may_be_had(instance)]


def _user(instance: str | None, states: Mapping[str, InstanceState]
          ) -> InstanceState | None:
    """Return the instance that nova has on a node, None if it has none."""
    state = states.get(instance) if instance is not None else None
    return None if state is None or state.deleted else state


def decide(facts: Facts) -> dict[str, Reason]:
    """Return node uuid -> :class:`Reason`, for each node.

    Builds may still be on their way to nodes that are PULLED (:func:`pulls`).
    """
    return {node: _reason(node, instance, facts)
            for node, instance in facts.nodes.items()}


def _reason(node: str, instance: str | None, facts: Facts) -> Reason:
    if instance is None:
        return (Reason.KEPT if node in facts.my_nodes
                else _taking(node, facts))
    if instance in facts.my_instances:
        return Reason.INSTANCE_HERE
    if not facts.concerns_me(node):
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
    return _taking_over(node, state, state.host_key, facts)


def _taking_over(node: str, state: InstanceState, home: HostKey, facts: Facts
                 ) -> Reason:
    """Return why I take over an instance of ``home``, a dead host, or not."""
    if home not in facts.eligible or state.node not in (None, node):
        return Reason.INSTANCE_OF_DEAD
    record = facts.records.get(node)
    owner = (facts.host if node in facts.my_nodes
             else record.owner if record is not None else None)
    zone = facts.zones.get(home)
    if owner is None or not facts.preferences.may_keep(owner, zone):
        owner = facts.preferences.takeover_target(node, zone)
    if owner != facts.host:
        return Reason.INSTANCE_OF_DEAD
    return _refused(node, facts) or Reason.TAKEN_OVER


def _stray(node: str, state: InstanceState | None, facts: Facts) -> Reason:
    held = Reason.UNKNOWN if state is None else Reason.LEAKED
    if node in facts.my_nodes:
        return held
    taking = _taking(node, facts)
    if taking in (Reason.CREATED, Reason.ADOPTED):
        return held
    # Its owner is live and does what is to be done.
    return Reason.INSTANCE_ELSEWHERE if taking is Reason.PULLED else taking


def _taking(node: str, facts: Facts) -> Reason:
    """Return why I take a node that I do not own, or not."""
    record = facts.records.get(node)
    if record is None:
        if facts.preferences.prefers(facts.host, node):
            return (Reason.BARRED if node in facts.barred
                    else Reason.CREATED)
        return Reason.OTHER_PREFERRED
    zone = facts.zones.get(record.owner)
    if not facts.preferences.prefers(facts.host, node, zone):
        if facts.preferences.prefers(facts.host, node):
            return Reason.OTHER_ZONE
        return Reason.OTHER_PREFERRED
    if facts.view.live(record.owner):
        return _pulling(record, facts)
    return _refused(node, facts) or Reason.ADOPTED


def _pulling(record: Record, facts: Facts) -> Reason:
    theirs = peers.Partition.from_label(record.partition)
    if facts.partition.excludes(theirs):
        # The node has changed its partition, its owner lets it go.
        return _refused(record.node, facts) or Reason.PULLED
    if (record.partition != facts.partition.label
            or not facts.view.peer(record.owner)):
        return Reason.OTHER_PARTITION
    return _refused(record.node, facts) or (
        Reason.PULLED if facts.permissions.tested else Reason.UNTESTED)


def _refused(node: str, facts: Facts) -> Reason | None:
    """Return why I may not take a node from any owner, or None."""
    if node in facts.barred:
        return Reason.BARRED
    if not facts.permissions.settled:
        return Reason.STARTING
    if not facts.permissions.mapped:
        return Reason.UNMAPPED
    return None


def pulls(reasons: Mapping[str, Reason], limit: int,
          busy: Sequence[str] = ()) -> list[str]:
    """Return the nodes to pull in this audit.

    Before they are pulled, placement must say whether they have an allocation.

    :param reasons: result of :func:`decide`.
    :param limit: the most nodes to pull in one audit.
    :param busy: result of :func:`still_busy` after the audit before; these
        nodes come last, so that they keep no others waiting.
    """
    return _in_turn(reasons, Reason.PULLED, busy)[:limit]


def still_busy(reasons: Mapping[str, Reason], busy: Sequence[str],
               asked: Sequence[str], allocated: Set[str]) -> tuple[str, ...]:
    """Return the nodes to be pulled that had an allocation when last asked.

    The one that was asked for longest ago comes first.

    :param busy: result of the audit before.
    :param asked: result of :func:`pulls`.
    :param allocated: those of them that have an allocation.
    """
    return _turns(reasons, {Reason.PULLED}, busy, asked, allocated)


def _in_turn(reasons: Mapping[str, Reason], wanted: Reason,
             last: Sequence[str]) -> list[str]:
    """Return the nodes with a reason, those of ``last`` last."""
    turns = {node: turn for turn, node in enumerate(last, 1)}
    return sorted(
        (node for node, reason in reasons.items() if reason is wanted),
        key=lambda node: (turns.get(node, 0), node))


def _turns(reasons: Mapping[str, Reason], wanted: Set[Reason],
           last: Sequence[str], tried: Sequence[str], failed: Set[str]
           ) -> tuple[str, ...]:
    """Return which nodes come last the next time, in order.

    A node that is not decided on, as in an audit of some nodes, keeps its
    turn.
    """
    return (*(node for node in last if node not in tried and (
                  node not in reasons or reasons[node] in wanted)),
            *(node for node in tried if node in failed))


def with_pulls(reasons: Mapping[str, Reason], asked: Iterable[str],
               allocated: Set[str], unanswered: Set[str] = frozenset()
               ) -> Mapping[str, Reason]:
    """Return the reasons, with only idle nodes taken.

    :param asked: result of :func:`pulls`.
    :param allocated: of these and of the ADOPTED nodes, those with an
        allocation of an instance that nova has.
    :param unanswered: those for which placement did not answer.
    """
    asked = frozenset(asked)
    others = {}
    for node, reason in reasons.items():
        if reason in (Reason.ADOPTED, Reason.PULLED) and node in unanswered:
            others[node] = Reason.UNANSWERED
        elif reason is Reason.ADOPTED and node in allocated:
            others[node] = Reason.AWAITED
        elif reason is Reason.PULLED:
            if node in allocated:
                others[node] = Reason.ALLOCATED
            elif node not in asked:
                others[node] = Reason.QUEUED
    return _with(reasons, others)


def _with(reasons: Mapping[str, Reason], others: Mapping[str, Reason]
          ) -> Mapping[str, Reason]:
    # A copy of all nodes is megabytes.
    return {**reasons, **others} if others else reasons


def adoptions(reasons: Mapping[str, Reason],
              refused: Sequence[str] = ()) -> list[str]:
    """Return the nodes for which builds are to be looked up, in order.

    :param refused: as for :func:`takeovers`.
    """
    return _in_turn(reasons, Reason.ADOPTED, refused)


def with_adoptions(reasons: Mapping[str, Reason], asked: Iterable[str]
                   ) -> Mapping[str, Reason]:
    """Return the reasons, with only those nodes adopted that were asked for.

    :param asked: those of :func:`adoptions` for which builds were looked up.
    """
    asked = frozenset(asked)
    return _with(reasons, {
        node: Reason.ADOPTION_WAITS for node, reason in reasons.items()
        if reason is Reason.ADOPTED and node not in asked})


def abandoned_builds(node: str, builds: Mapping[str, InstanceState],
                     facts: Facts) -> list[str]:
    """Return the builds and deletes of a node that will never end.

    The dead host had claimed the node for a build and not yet reserved the
    machine, which nova gives up when that host starts; or it had torn down the
    machine and not deleted the instance. The host that adopts the node ends
    them, whatever the zone of the dead host.

    :param node: uuid of a node that is ADOPTED.
    :param builds: uuid -> :class:`InstanceState`, of nova's instances with an
        allocation of the node.
    :returns: uuids of instances to take over.
    """
    return [uuid for uuid, state in sorted(builds.items())
            if state.host_key is not None
            and state.host_key in facts.eligible
            and takeover.needs_no_machine(state.vm_state, state.task_state)
            and state.node in (None, node)]


def awaited(builds: Mapping[str, InstanceState], taken: Container[str],
            host: HostKey) -> bool:
    """Whether a node must wait for its host because of its builds.

    A build that ended in ERROR before it had a host does not count: the host
    that gets its message finds the node elsewhere, and nova reschedules it.

    :param builds: as for :func:`abandoned_builds`.
    :param taken: uuids of the instances that were taken over by now, or whose
        build has arrived here.
    :param host: this host.
    """
    return any(uuid not in taken and state.host_key != host
               and (state.host_key, state.vm_state) != (None, 'error')
               for uuid, state in builds.items())


def takeovers(reasons: Mapping[str, Reason], limit: int,
              refused: Sequence[str] = ()) -> list[str]:
    """Return the nodes with instances to take over in this audit.

    :param limit: the most of them in one audit.
    :param refused: result of :func:`still_refused` after the audit before;
        these nodes come last, so that they keep no others waiting.
    """
    return _in_turn(reasons, Reason.TAKEN_OVER, refused)[:limit]


def still_refused(reasons: Mapping[str, Reason], refused: Sequence[str],
                  asked: Sequence[str], taken: Container[str]
                  ) -> tuple[str, ...]:
    """Return the nodes with instances or builds that could not be taken over.

    They change hands, or have a migration in progress, or nova or placement
    does not answer. The node that was tried longest ago comes first.

    :param refused: result of the audit before.
    :param asked: nodes that were tried, of :func:`takeovers` and
        :func:`adoptions`.
    :param taken: those of them with instances that are on this host now.
    """
    return _turns(
        reasons, {Reason.TAKEN_OVER, Reason.ADOPTED}, refused, asked,
        frozenset(node for node in asked if node not in taken))


def with_takeovers(reasons: Mapping[str, Reason], refused: Container[str],
                   taken: Container[str]) -> Mapping[str, Reason]:
    """Return the reasons, with only those instances taken over that were.

    :param refused: result of :func:`still_refused`.
    :param taken: nodes with instances that are on this host now.
    """
    return _with(reasons, {
        node: (Reason.TAKEOVER_FAILED if node in refused
               else Reason.INSTANCE_WAITS)
        for node, reason in reasons.items()
        if reason is Reason.TAKEN_OVER and node not in taken
        or reason is Reason.AWAITED and node in refused})


def lost_nodes_to_peers(
    inventory: Inventory,
    states: Mapping[str, InstanceState],
    records: Mapping[str, Record],
    zones: Mapping[HostKey, str],
    owned: Set[str],
) -> bool:
    """Whether peers have taken nodes from me as if I were dead.

    They do when my heartbeat fails for a while. It shows by nodes that I owned
    and am preferred for, without an instance, that are recorded on live hosts.

    :param states: uuid -> :class:`InstanceState`, of the
        :func:`foreign_instances`.
    :param records: node uuid -> record of another host.
    :param zones: host -> explicit availability zone.
    :param owned: uuids of the nodes that I owned at the audit before.
    """
    return any(
        record.node in owned and inventory.view.live(record.owner)
        and _user(inventory.nodes.get(record.node), states) is None
        and inventory.preferences.prefers(
            inventory.host, record.node, zones.get(record.owner))
        for record in records.values())


def still_valid(reason: Reason, before: HostKey | None, now: HostKey | None,
                host: HostKey, live: Callable[[], bool],
                state: Callable[[], InstanceState | None]) -> bool:
    """Whether a decision still holds when it is carried out.

    An audit of many nodes takes minutes, and nova's tracker moves a record
    whatever its owner is by then (ResourceTracker._init_compute_node).

    :param reason: why the node is mine.
    :param before: owner of the node at the decision, or None.
    :param now: its owner at this moment, or None.
    :param live: returns whether the owner of this moment is up; not always
        called.
    :param state: returns the :class:`InstanceState` of this moment, or None;
        not always called.
    """
    if now in (None, host):
        return True
    if reason in SERVED:
        return is_here(state(), host)
    if now != before:
        return False
    return reason is Reason.PULLED or not live()


def is_here(state: InstanceState | None, host: HostKey) -> bool:
    """Whether an instance is on a host; None is one that nova lacks."""
    return (state is not None and state.host_key == host
            and not state.deleted)


#: Reasons for which a node is mine because I am preferred for it.
_AS_PREFERRED = frozenset({
    Reason.CREATED, Reason.LEAKED, Reason.UNKNOWN, Reason.ADOPTED,
    Reason.PULLED})


def may_create(reason: Reason, preferred: Callable[[], bool]) -> bool:
    """Whether I may create the record of a node that has none.

    :param preferred: returns whether I am preferred for it at this moment; not
        always called.
    """
    if reason in _AS_PREFERRED:
        return preferred()
    return reason.mine


def count_reasons(reasons: Mapping[str, Reason]) -> dict[Reason, int]:
    """Count the nodes for each reason, in the order of the rules."""
    counts = dict.fromkeys(Reason, 0)
    for reason in reasons.values():
        counts[reason] += 1
    return counts
