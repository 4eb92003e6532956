# SPDX-License-Identifier: Apache-2.0

"""Derive the partitions from the owners of the nodes.

No API shows ``[ironic]conductor_group`` and ``shard`` of a compute service.
But a host owns nodes of its partition only, so hosts that own nodes of one
group and shard share a partition. Hosts that are down count only for groups
and shards without a live owner, as their nodes may have been regrouped.

When a node of a live host gets another group or shard, two partitions look
like one until the node has moved or its server is deleted.
"""

import collections
import dataclasses
import functools
import typing

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules.peers import HostKey

#: Conductor group and shard of nodes, '' for none.
Kind: typing.TypeAlias = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class NodeShare:
    """A partition: hosts, and the groups and shards that they share.

    :ivar whole: it has all nodes.
    """

    hosts: frozenset[HostKey]
    kinds: frozenset[Kind]
    whole: bool = False

    @property
    def label(self) -> str:
        """The name for people: 'all', or its groups and shards."""
        if self.whole:
            return 'all'
        return ' + '.join(map(_words, sorted(self.kinds)))


def _words(kind: Kind) -> str:
    group, shard = kind
    words = ([f'group {group}'] if group else
             [] if shard else ['default group'])
    return ', '.join(words + ([f'shard {shard}'] if shard else []))


@dataclasses.dataclass(frozen=True)
class NodeShares:
    """All partitions; a partition with all hosts also has all nodes."""

    found: tuple[NodeShare, ...]

    @classmethod
    def of(cls, seen: cloud_state.CloudState) -> 'NodeShares':
        """Derive the partitions from the records."""
        owners: dict[Kind, collections.Counter[HostKey]] = {}
        for record in seen.records:
            node = seen.node_of.get(record.node)
            if node is not None:
                owners.setdefault(
                    _kind(node), collections.Counter())[record.key] += 1
        found: list[NodeShare] = []
        for kind, counts in sorted(owners.items()):
            hosts = frozenset(counts)
            hosts = hosts & seen.up_hosts or hosts
            shared = [part for part in found if part.hosts & hosts]
            found = [part for part in found if part not in shared]
            found.append(NodeShare(
                hosts.union(*(part.hosts for part in shared)),
                frozenset({kind}).union(*(part.kinds for part in shared))))
        if len(found) > 1:
            return cls(tuple(_with_others(part, found, owners)
                             for part in found))
        return cls((NodeShare(
            frozenset(seen.service_of).union(*owners.values()),
            frozenset(map(_kind, seen.nodes)), whole=True),))

    @functools.cached_property
    def _of_host(self) -> dict[HostKey, NodeShare]:
        return {host: part for part in self.found for host in part.hosts}

    @functools.cached_property
    def _of_kind(self) -> dict[Kind, NodeShare]:
        return {kind: part for part in self.found for kind in part.kinds}

    def of_host(self, host: HostKey) -> NodeShare | None:
        """Return the partition of a host, None if it is not known."""
        return self._of_host.get(host)

    def of_node(self, node: cloud_state.Node) -> NodeShare | None:
        """Return the partition of a node, None if no host serves it."""
        return self._of_kind.get(_kind(node))


def _with_others(part: NodeShare, found: list[NodeShare],
                 owners: dict[Kind, collections.Counter[HostKey]]
                 ) -> NodeShare:
    """Add hosts without partition that own mostly nodes of this one."""
    most: dict[HostKey, tuple[int, Kind]] = {}
    for kind, counts in owners.items():
        for host, count in counts.items():
            most[host] = max(most.get(host, (0, kind)), (count, kind))
    known = frozenset[HostKey]().union(*(one.hosts for one in found))
    return dataclasses.replace(part, hosts=part.hosts.union(
        host for host, (_, kind) in most.items()
        if host not in known and kind in part.kinds))


def _kind(node: cloud_state.Node) -> Kind:
    return node.conductor_group, node.shard
