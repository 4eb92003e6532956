# SPDX-License-Identifier: Apache-2.0

"""Values that decisions depend on, gathered at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import typing

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

if typing.TYPE_CHECKING:
    from nova_ironic_multihost.rules import ring


@dataclasses.dataclass(frozen=True)
class Record:
    """A live row of nova's ``compute_nodes``.

    :param node: uuid of the node, which is the uuid of the row.
    :param host: the owner, as nova spells it.
    :param partition: label of the owner's partition
        (:attr:`.peers.Partition.label`).
    :param row: nova's object, if it comes from there.
    :param second: uuid of the row if that differs from the node's, else ''.
        nova uses the row with the node's uuid; a host can have only one of
        both.
    """

    node: str
    host: str
    partition: str = ''
    second: str = ''
    row: typing.Any = dataclasses.field(
        default=None, compare=False, repr=False)

    @property
    def owner(self) -> HostKey:
        """The owner."""
        return host_key(self.host)


def second_record(node: str, row: str) -> str:
    """Return what an operator has to do about a second record of a node.

    :param row: uuid of the second one.
    """
    return (
        f'the row with uuid {row} in compute_nodes. '  # noqa: S608
        f"The node's own is the row with uuid {node}, which cannot become "
        'that of this host meanwhile. '
        "Delete the second one in the database of nova's cell: UPDATE "
        'compute_nodes SET deleted = id, deleted_at = CURRENT_TIMESTAMP WHERE '
        f"uuid = '{row}' AND deleted = 0; "
        f'and its provider, if placement has one: "openstack resource '
        f'provider delete {row}". No restart is needed.')


@dataclasses.dataclass(frozen=True)
class InstanceState:
    """An instance that Ironic has on a node, as nova has it.

    :param host: its compute service, as nova spells it, or None.
    :param deleted: its row is deleted.
    :param node: uuid of its node in nova, or None.
    """

    host: str | None
    deleted: bool = False
    node: str | None = None
    vm_state: str | None = None
    task_state: str | None = None

    @property
    def host_key(self) -> HostKey | None:
        """The compute service, or None."""
        return host_key(self.host) if self.host else None


@dataclasses.dataclass(frozen=True)
class Permissions:
    """What this host may do beyond keeping and creating.

    :param settled: its start is over, and builds arrive.
    :param mapped: the scheduler can send builds to it, as far as is known.
    :param tested: it has been a member for long enough to pull.
    """

    settled: bool = True
    mapped: bool = True
    tested: bool = True


@dataclasses.dataclass(frozen=True)
class Inventory:
    """The nodes to decide on, and what this host has so far.

    :param nodes: node uuid -> uuid of the instance that Ironic has on it, or
        None. Exactly the nodes of the partition.
    :param my_instances: uuids of the instances that nova has on this host.
    :param my_nodes: uuids of the nodes that are recorded on this host.
    :param view: the compute services of this moment.
    :param preferences: the preferred member of each node.
    """

    nodes: Mapping[str, str | None]
    my_instances: Set[str]
    my_nodes: Set[str]
    view: peers.View
    preferences: ring.Preferences

    @property
    def host(self) -> HostKey:
        """This host."""
        return self.view.host

    def concerns_me(self, node: str) -> bool:
        """Whether this host owns the node or might take it."""
        return (node in self.my_nodes
                or self.preferences.may_prefer(self.host, node))


@dataclasses.dataclass(frozen=True)
class Facts(Inventory):
    """All that the decision depends on, gathered at one moment.

    :param permissions: what this host may do.
    :param partition: the partition that this host serves.
    :param zones: host -> explicit availability zone.
    :param instance_states: uuid of an instance -> :class:`InstanceState`, at
        least for :func:`.ownership.foreign_instances`; no entry if nova does
        not know it.
    :param records: node uuid -> :class:`Record` of another host, at least for
        :func:`.ownership.candidates`; no entry without a record.
    :param eligible: hosts with instances that may be taken over
        (:func:`.takeover.eligible`).
    :param barred: uuids of nodes with records that cannot become this host's.
    """

    permissions: Permissions = Permissions()
    partition: peers.Partition = peers.Partition()
    zones: Mapping[HostKey, str] = dataclasses.field(default_factory=dict)
    instance_states: Mapping[str, InstanceState] = dataclasses.field(
        default_factory=dict)
    records: Mapping[str, Record] = dataclasses.field(default_factory=dict)
    eligible: Set[HostKey] = frozenset()
    barred: Set[str] = frozenset()
