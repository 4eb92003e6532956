# SPDX-License-Identifier: Apache-2.0


"""Which nodes an audit decides again, and which keep their reason.

With another view of the services, other preferences or zones all nodes are
decided again. Otherwise: the nodes that have changed, those with a reason that
may change without a sign, and some of all others in turn, since not every
change gives a sign.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import zlib

from nova_ironic_multihost.rules.mirror import Mirror
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring

#: Why a node that has changed is audited at once: it is here, or to be
#: created, and no other host is concerned.
AT_ONCE = frozenset({
    Reason.KEPT, Reason.CREATED, Reason.INSTANCE_HERE, Reason.BUILDING,
    Reason.LEAKED, Reason.UNKNOWN})

#: Audits in which each node is decided again, whatever is known.
TURNS = 10


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the reasons of all nodes depend on.

    :param view: the compute services, with those of all owners and of all
        hosts of instances.
    :param zones: host -> explicit availability zone.
    :param partition: the partition that this host serves.
    """

    view: peers.View
    preferences: ring.Preferences
    zones: Mapping[HostKey, str]
    partition: peers.Partition


@dataclasses.dataclass(frozen=True)
class LastAudit:
    """State at the last audit of all nodes.

    :param basis: the inputs of its reasons.
    :param serial: :attr:`.mirror.Mirror.serial` of the mirror that it read.
    :param my_nodes: uuids of the nodes that were recorded on this host.
    :param my_instances: uuids of the instances on this host.
    :param unsettled: uuids of the nodes that are decided again the next time.
    :param turn: number of the audit.
    """

    basis: Inputs
    serial: int
    my_nodes: frozenset[str]
    my_instances: frozenset[str]
    unsettled: frozenset[str]
    turn: int = 0


def due(before: LastAudit | None, basis: Inputs, mirror: Mirror,
        my_nodes: Set[str], my_instances: Set[str]) -> Set[str]:
    """Return the nodes that an audit decides.

    :param before: the audit before, or None.
    :param basis: the inputs of this moment.
    :param my_nodes: uuids of the nodes that are recorded on this host.
    :param my_instances: uuids of the instances on this host.
    """
    if before is None or before.basis != basis:
        return mirror.nodes.keys()
    moved = my_instances ^ before.my_instances
    turn = before.turn % TURNS
    return mirror.nodes.keys() & {
        *mirror.changed_since(before.serial), *before.unsettled,
        *(my_nodes ^ before.my_nodes),
        *(node for node, instance in mirror.nodes.items()
          if instance in moved or zlib.crc32(node.encode()) % TURNS == turn)}


def uncertain(before: LastAudit | None, basis: Inputs, mirror: Mirror,
              recorded: Set[str], mine: Iterable[str]) -> set[str] | None:
    """Return the nodes for which records are read again in an audit.

    nova's conductor returns 1.6 kB for each record, and cannot list owners. A
    live host loses nodes only to the member that the ring prefers, and gains
    them by this package. All other changes, such as an operator's write to the
    database, show in one audit of :data:`TURNS`.

    :param before: the audit before, or None.
    :param basis: the inputs of this moment.
    :param recorded: uuids of the nodes that were recorded on this host.
    :param mine: uuids of this host's nodes by the last decision.
    :returns: uuids; None if all records of this host are to be read.
    """
    if (before is None or before.basis != basis
            or before.turn % TURNS == 0):
        return None
    host, members = basis.view.host, basis.preferences.members
    changed = mirror.changed_since(before.serial) | before.unsettled
    return {*(node for node in recorded
              if node in changed or node not in mirror.nodes
              or mirror.nodes[node] not in before.my_instances
              and not basis.preferences.prefers(
                  host, node, members.get(host))),
            *(node for node in mine if node not in recorded)}


def in_doubt(recorded: float | None, doubted: float | None) -> bool:
    """Whether peers may have taken nodes since all records were read.

    :param recorded: time of that read, or None.
    :param doubted: when this host last looked like no member, or None.
    """
    return doubted is not None and (recorded is None or doubted >= recorded)


def settled(node: str, reason: Reason, facts: Facts) -> bool:
    """Whether a reason stands until a change that gives a sign.

    :param reason: why the node is mine or not.
    :param facts: the facts of the decision.
    """
    instance = facts.nodes[node]
    if node in facts.my_nodes:
        return reason is Reason.KEPT or (
            reason is Reason.INSTANCE_HERE and instance in facts.my_instances)
    if reason is Reason.INSTANCE_ELSEWHERE:
        state = (facts.instance_states.get(instance)
                 if instance is not None else None)
        return (state is not None and not state.deleted
                and facts.view.live(state.host_key)
                or not facts.concerns_me(node))
    if reason is Reason.OTHER_PREFERRED:
        record = facts.records.get(node)
        return (record is not None and facts.view.live(record.owner)
                or not facts.concerns_me(node))
    return False
