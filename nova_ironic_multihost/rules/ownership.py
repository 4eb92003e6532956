# SPDX-License-Identifier: Apache-2.0

"""Who owns a node: the decision.

The record of a node (the live row of nova's ``compute_nodes``) names its
owner; the hash ring names the preferred member. A host takes only idle nodes
from a live owner, so hosts with different views leave records alone.
"""

from collections import abc
import dataclasses
import enum
import random

from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


@dataclasses.dataclass(frozen=True)
class Rule:
    """A row of the documentation's table; pages use the emphasised word."""

    instance: str
    owner: str
    preferred: str
    outcome: str


#: Number -> rule, tried in order; "I" is the host that decides. Only members
#: are preferred, so a host that is disabled, forced down or cut off keeps its
#: nodes (rules 1 and 4 to 6) and takes nothing.
RULES = {
    1: Rule('an instance of mine', 'any', 'any', 'mine'),
    2: Rule('an instance of another live compute service', 'any', 'any',
            'not mine'),
    3: Rule('an instance of a compute service that is down',
            'any but a live one that takes it itself',
            'I am its takeover target',
            'mine: *take over*, if ``[ironic_multihost]instance_takeover`` '
            'says so; else not mine'),
    4: Rule('an instance that nova has deleted',
            'me; or none, or a dead one', 'any; or yes',
            "mine, *leaked*: in use, and named to nova's reaper"),
    5: Rule('an instance that nova does not know',
            'me; or none, or a dead one', 'any; or yes',
            'mine, in use, never touched, warned about'),
    6: Rule('none, or one that is on no compute service', 'me', 'any',
            'mine: *keep*'),
    7: Rule('none', 'no record', 'yes', 'mine: *create*'),
    8: Rule('none', 'a dead one', 'yes',
            'mine: *adopt*, unless a build was sent there: it waits for that '
            'compute service, or for the request of the build to be '
            'forwarded to me'),
    9: Rule('none',
            'a live one of this partition, or of one that cannot have the '
            'node', 'yes',
            'mine: *pull*, if the node is idle'),
    10: Rule('none',
             'a live one of another partition that may have the node', 'any',
             'not mine, warned about'),
    11: Rule('anything else', '', '', 'not mine'),
}


class Reason(enum.Enum):
    """Why a node is mine or not, with the numbers of its rules."""

    INSTANCE_HERE = True, 'with an instance of this compute service', 1
    TAKEN_OVER = (
        True, 'with an instance of a dead compute service until now', 3)
    BUILDING = True, 'held for an instance that is on no compute service', 6
    LEAKED = True, 'held for an instance that nova has deleted', 4
    UNKNOWN = True, 'held for an instance that nova does not know', 5
    KEPT = True, 'free and recorded here', 6
    CREATED = True, 'free and recorded nowhere so far', 7
    ADOPTED = True, 'free and recorded on a dead compute service', 8
    PULLED = True, 'free and recorded on another compute service until now', 9
    UNLISTED = True, 'recorded here and not listed by Ironic', 6
    INSTANCE_ELSEWHERE = (
        False, 'with an instance of another compute service', 2)
    INSTANCE_OF_DEAD = (
        False, 'with an instance of a dead compute service', 3)
    INSTANCE_WAITS = (
        False, 'with an instance to be taken over by a later audit', 3)
    TAKEOVER_FAILED = (
        False, 'with an instance or a build that could not be taken over yet',
        3, 8)
    ADOPTION_WAITS = (
        False, 'recorded on a dead compute service, to be taken later',
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
        """Make the text the value."""
        reason = object.__new__(cls)
        reason._value_ = text
        reason.mine = mine
        reason.rules = rules
        return reason


#: The node is mine because of an instance of this host.
SERVED = frozenset({Reason.INSTANCE_HERE, Reason.TAKEN_OVER})

#: Reasons of free nodes that this host will own in a moment.
COMING = frozenset({Reason.ADOPTION_WAITS, Reason.UNANSWERED})

#: The node will be mine as soon as a limit allows it or placement answers.
WAITING = frozenset({
    Reason.ADOPTION_WAITS, Reason.INSTANCE_WAITS, Reason.UNANSWERED})

#: Something about the node or its instance hinders me, which can last.
HINDERED = frozenset({Reason.TAKEOVER_FAILED, Reason.AWAITED})


def foreign_instances(facts: Facts) -> list[str]:
    """Return instances of other hosts on nodes that I own or might take."""
    return [instance for node, instance in facts.nodes.items()
            if instance is not None
            and instance not in facts.my_instances
            and facts.concerns_me(node)]


def candidates(facts: Facts) -> list[str]:
    """Return the nodes that I take if their owner, to be read, allows it."""
    def may_be_taken(node: str) -> bool:
        state = _instance_in_nova(node, facts)
        return state is None or (
            state.host_key is not None and not facts.view.live(state.host_key))

    return [node for node, instance in facts.nodes.items()
            if node not in facts.my_nodes
            and instance not in facts.my_instances
            and facts.preferences.may_prefer(facts.host, node)
            and may_be_taken(node)]


def _instance_in_nova(node: str, facts: Facts) -> InstanceState | None:
    instance = facts.nodes.get(node)
    state = (facts.instance_states.get(instance)
             if instance is not None else None)
    return None if state is None or state.deleted else state


def decide(facts: Facts) -> dict[str, Reason]:
    """Return the reason of each node."""
    # confirmed() has to confirm PULLED, ADOPTED and TAKEN_OVER.
    return {node: _reason(node, instance, facts)
            for node, instance in facts.nodes.items()}


def _reason(node: str, instance: str | None, facts: Facts) -> Reason:
    if instance is None:
        return (Reason.KEPT if node in facts.my_nodes
                else _reason_to_take(node, facts))
    if instance in facts.my_instances:
        return Reason.INSTANCE_HERE
    if not facts.concerns_me(node):
        return Reason.INSTANCE_ELSEWHERE
    state = facts.instance_states.get(instance)
    if state is None or state.deleted:
        return _reason_without_instance(node, state, facts)
    if state.host_key == facts.host:
        return Reason.INSTANCE_HERE
    if state.host_key is None:
        # The build failed or is rescheduled; its last host will free the node.
        return (Reason.BUILDING if node in facts.my_nodes
                else Reason.INSTANCE_ELSEWHERE)
    if facts.view.live(state.host_key):
        return Reason.INSTANCE_ELSEWHERE
    return _reason_to_take_over(node, state, state.host_key, facts)


def _reason_to_take_over(node: str, state: InstanceState,
                         dead_host: HostKey, facts: Facts) -> Reason:
    if dead_host not in facts.eligible or state.node not in (None, node):
        return Reason.INSTANCE_OF_DEAD
    record = facts.records.get(node)
    owner = (facts.host if node in facts.my_nodes
             else record.owner if record is not None else None)
    zone = facts.zones.get(dead_host)
    if owner is None or not facts.preferences.may_keep(owner, zone):
        owner = facts.preferences.takeover_target(node, zone)
    if owner != facts.host:
        return Reason.INSTANCE_OF_DEAD
    return _refusal(node, facts) or Reason.TAKEN_OVER


def _reason_without_instance(node: str, state: InstanceState | None,
                             facts: Facts) -> Reason:
    held = Reason.UNKNOWN if state is None else Reason.LEAKED
    if node in facts.my_nodes:
        return held
    reason = _reason_to_take(node, facts)
    if reason in (Reason.CREATED, Reason.ADOPTED):
        return held
    # The live owner of the node handles the instance.
    return Reason.INSTANCE_ELSEWHERE if reason is Reason.PULLED else reason


def _reason_to_take(node: str, facts: Facts) -> Reason:
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
        return _reason_to_pull(record, facts)
    return _refusal(node, facts) or Reason.ADOPTED


def _reason_to_pull(record: Record, facts: Facts) -> Reason:
    owner_partition = peers.Partition.from_label(record.partition)
    if facts.partition.excludes(owner_partition):
        # The node has moved to my partition, and its owner lets it go.
        return _refusal(record.node, facts) or Reason.PULLED
    if (record.partition != facts.partition.label
            or not facts.view.peer(record.owner)):
        return Reason.OTHER_PARTITION
    return _refusal(record.node, facts) or (
        Reason.PULLED if facts.member_long_enough
        else Reason.UNTESTED)


def _refusal(node: str, facts: Facts) -> Reason | None:
    if node in facts.barred:
        return Reason.BARRED
    if not facts.settled:
        return Reason.STARTING
    if not facts.mapped:
        return Reason.UNMAPPED
    return None


def some_of(reasons: abc.Mapping[str, Reason], wanted: Reason,
            limit: int | None) -> list[str]:
    """Return the nodes with a reason, or so many of them, in random order."""
    # So nodes that are busy, or that failed before, do not block others.
    nodes = sorted(node for node, reason in reasons.items()
                   if reason is wanted)
    return random.sample(nodes, len(nodes))[:limit]


def confirmed(reasons: abc.Mapping[str, Reason],
              allocated: abc.Mapping[str, bool | None],
              taken: abc.Container[str], failed: abc.Container[str]
             ) -> dict[str, Reason]:
    """Return the reasons with only those nodes taken that may be taken.

    :param allocated: asked node -> whether an instance that nova has, has an
        allocation of it; None without an answer.
    :param taken: nodes with an instance that was taken over.
    :param failed: nodes with an instance or a build that was not: it changes
        hosts or has a migration, or a service is silent.
    """
    def after(node: str, reason: Reason) -> Reason:
        if reason is Reason.TAKEN_OVER and node not in taken:
            return (Reason.TAKEOVER_FAILED if node in failed
                    else Reason.INSTANCE_WAITS)
        if reason not in (Reason.ADOPTED, Reason.PULLED):
            return reason
        pulled = reason is Reason.PULLED
        if node not in allocated:
            return Reason.QUEUED if pulled else Reason.ADOPTION_WAITS
        if allocated[node] is None:
            return Reason.UNANSWERED
        if not allocated[node]:
            return reason
        if pulled:
            return Reason.ALLOCATED
        return Reason.TAKEOVER_FAILED if node in failed else Reason.AWAITED

    return {node: after(node, reason) for node, reason in reasons.items()}


def abandoned_builds(node: str, builds: abc.Mapping[str, InstanceState],
                     facts: Facts) -> list[str]:
    """Return builds and deletes on an ADOPTED node that will never finish."""
    # A dead host, of any zone, had claimed the node and not reserved the
    # machine, or had torn down the machine and not deleted the instance.
    return [uuid for uuid, state in sorted(builds.items())
            if state.host_key is not None
            and state.host_key in facts.eligible
            and takeover.needs_no_machine(state.vm_state, state.task_state)
            and state.node in (None, node)]


def awaited(builds: abc.Mapping[str, InstanceState], taken: abc.Container[str],
            host: HostKey) -> bool:
    """Return whether a node with a dead owner waits for a build sent there."""
    # nova reschedules a build in ERROR without a host if its request arrives.
    return any(uuid not in taken and state.host_key != host
               and (state.host_key, state.vm_state) != (None, 'error')
               for uuid, state in builds.items())


def lost_nodes_to_peers(facts: Facts, owned: abc.Set[str]) -> bool:
    """Return whether other hosts took nodes from me as if I were dead."""
    # They do so after my heartbeat has failed for a while. The sign: unused
    # nodes that I owned and am preferred for are recorded on other live hosts.
    return any(
        record.node in owned and record.owner != facts.host
        and facts.view.live(record.owner)
        and _instance_in_nova(record.node, facts) is None
        and facts.preferences.prefers(
            facts.host, record.node, facts.zones.get(record.owner))
        for record in facts.records.values())


def still_valid(reason: Reason, before: HostKey | None, now: HostKey | None,
                host: HostKey, live: abc.Callable[[], bool],
                state: abc.Callable[[], InstanceState | None]) -> bool:
    """Return whether a decision still holds; ``before`` was the owner then."""
    # An audit of many nodes lasts minutes, and nova's tracker moves a record
    # from any owner (ResourceTracker._init_compute_node).
    if now in (None, host):
        return True
    if reason in SERVED:
        return is_here(state(), host)
    if now != before:
        return False
    return reason is Reason.PULLED or not live()


def is_here(state: InstanceState | None, host: HostKey) -> bool:
    """Return whether an instance is on a host; None is not."""
    return (state is not None and state.host_key == host
            and not state.deleted)


#: The node is mine because the ring prefers me.
_AS_PREFERRED = frozenset({
    Reason.CREATED, Reason.LEAKED, Reason.UNKNOWN, Reason.ADOPTED,
    Reason.PULLED})


def may_create(reason: Reason, preferred: abc.Callable[[], bool]) -> bool:
    """Return whether I may create the record of a node that has none."""
    if reason in _AS_PREFERRED:
        return preferred()
    return reason.mine


def count_reasons(reasons: abc.Mapping[str, Reason]) -> dict[Reason, int]:
    """Count the nodes for each reason, in the order of :class:`Reason`."""
    counts = dict.fromkeys(Reason, 0)
    for reason in reasons.values():
        counts[reason] += 1
    return counts
