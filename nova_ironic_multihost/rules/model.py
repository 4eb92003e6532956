# SPDX-License-Identifier: Apache-2.0

"""What a decision depends on: values, gathered at one moment."""

from __future__ import annotations

from collections import abc
import dataclasses
import typing

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

if typing.TYPE_CHECKING:
    from nova_ironic_multihost.rules import ring


@dataclasses.dataclass(frozen=True)
class Record:
    """A live row of nova's ``compute_nodes``."""

    node: str
    #: The owner, as nova spells it; ``partition``: its Partition.label.
    host: str
    partition: str = ''
    #: uuid of a row with another uuid for the same node, else ''. nova uses
    #: the node's uuid; a host can have only one of both.
    second: str = ''
    row: typing.Any = dataclasses.field(
        default=None, compare=False, repr=False)

    @property
    def owner(self) -> HostKey:
        """The key of the owner."""
        return host_key(self.host)


def second_record(node: str, row: str) -> str:
    """Return what an operator has to do with a second record of a node."""
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
    """The instance that Ironic has on a node, as nova has it."""

    host: str | None
    deleted: bool = False
    node: str | None = None
    vm_state: str | None = None
    task_state: str | None = None

    @property
    def host_key(self) -> HostKey | None:
        """The key of its host, or None."""
        return host_key(self.host) if self.host else None


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that a decision depends on."""

    #: Nodes of the partition to decide -> their instances.
    nodes: abc.Mapping[str, str | None]
    my_instances: abc.Set[str]
    my_nodes: abc.Set[str]
    view: peers.View
    preferences: ring.Preferences
    #: The start of this host is over, so builds that are sent to it arrive.
    settled: bool = True
    #: The scheduler can send builds to this host, as far as is known.
    mapped: bool = True
    #: This host may pull nodes.
    member_long_enough: bool = True
    partition: peers.Partition = peers.Partition()
    zones: abc.Mapping[HostKey, str] = dataclasses.field(default_factory=dict)
    #: At least :func:`.ownership.foreign_instances`.
    instance_states: abc.Mapping[str, InstanceState] = dataclasses.field(
        default_factory=dict)
    #: At least of :func:`.ownership.candidates` that have one.
    records: abc.Mapping[str, Record] = dataclasses.field(default_factory=dict)
    eligible: abc.Set[HostKey] = frozenset()
    #: uuids of nodes with records that cannot become this host's.
    barred: abc.Set[str] = frozenset()

    @property
    def host(self) -> HostKey:
        """This host."""
        return self.view.host

    def concerns_me(self, node: str) -> bool:
        """Return whether this host owns the node or might take it."""
        return (node in self.my_nodes
                or self.preferences.may_prefer(self.host, node))
