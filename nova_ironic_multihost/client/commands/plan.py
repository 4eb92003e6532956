# SPDX-License-Identifier: Apache-2.0

"""plan: show which nodes move when compute services come or go."""

import collections
from collections import abc
import dataclasses
import typing

from cliff import lister

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import base
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

COLUMNS = 'From', 'To', 'Free nodes', 'Held nodes'


class Plan(base.CloudCommand, lister.Lister):
    """Show which nodes would change their owner, before you change anything.

    Free nodes move by themselves when a compute service comes, is disabled,
    or is gone. Held nodes have a server, or a leaked machine. Those of a
    removed compute service move when it is stopped and forced down. If To is
    empty, no compute service may take them: they stay without a manager.
    """

    _epilog = """\
examples:
  nova-ironic-multihost plan --add compute-4
  nova-ironic-multihost plan --remove compute-1 --remove compute-2
  nova-ironic-multihost plan --add compute-4 --zone rack-b -f json

exit status: 0, or 2 if there is no such host or partition, or the cloud
cannot be asked
"""

    def add_options(self, parser):
        """Add the options."""
        parser.add_argument(
            '--add', action='append', default=[], metavar='HOST',
            help='a compute service that comes, or is enabled again; may be '
            'given several times')
        parser.add_argument(
            '--remove', action='append', default=[], metavar='HOST',
            help='a compute service that goes for good; may be given several '
            'times')
        parser.add_argument(
            '--zone', metavar='ZONE',
            help='availability zone of those that come (default: as the '
            'host aggregates have it)')
        parser.add_argument(
            '--partition', metavar='PARTITION',
            help='with whom those that come share nodes, as "list" calls it; '
            'needed where there are several')

    def take_action(self, parsed_args):
        """Return the table; print the sums to standard error."""
        report = self.report()
        moves, anyway = plan(report, parsed_args.add, parsed_args.remove,
                             parsed_args.zone, parsed_args.partition)
        moved = sum(move.free + move.held for move in moves)
        left = sum(move.free + move.held for move in moves
                   if not move.target)
        self.tell(
            f'{moved} of {arguments.counted(len(report.seen.nodes), "node")} '
            f'would move ({anyway or "none"} of them anyway)')
        if left:
            self.tell(
                f'nobody would take {arguments.counted(left, "node")}'
                ': no other compute service of the same availability zone '
                'that serves their conductor group and shard is enabled and '
                'up. Enable or start one first, or give them a group and '
                'shard in Ironic that one serves')
        return COLUMNS, moves


class Move(typing.NamedTuple):
    """A number of nodes that move from one compute service to another.

    :param source: '' for nodes without an owner.
    :param target: '' if no host may take them; they stay.
    :param free: free nodes; these move by themselves.
    :param held: nodes with a server or a leaked machine; these move when the
        source is forced down.
    """

    source: str
    target: str
    free: int
    held: int


def plan(report: ownership_report.OwnershipReport, add: abc.Sequence[str] = (),
         remove: abc.Sequence[str] = (), zone: str | None = None,
         partition: str | None = None) -> tuple[list[Move], int]:
    """Return which nodes would move.

    A free node moves to the member that the ring prefers; a server of a host
    that is forced down moves to the takeover target.

    :param report: the present state.
    :param remove: hosts that are removed for good.
    :param zone: availability zone of the added hosts; None for that of the
        host aggregates.
    :param partition: label of their partition; None if there is only one.
    :returns: the moves by source and target; and of how many nodes the owner
        would change without the change of hosts, too, maybe to another host.
    :raises Refused: when the change does not fit the cloud
    """
    seen = report.seen
    added = {host_key(host): host for host in add}
    removed = frozenset(map(host_key, remove))
    for host in remove:
        if host_key(host) not in seen.names:
            raise base.Refused(
                f'nova has no compute service {host} that could be removed. '
                'Look at "nova-ironic-multihost list".')
    # The nodes of removed hosts do not define a partition.
    without = seen.with_fenced(removed)
    shares = ownership_report.partitions(without)
    joined = _partition(shares, partition) if add else None
    before = ownership_report.OwnershipReport(seen, report.settings, shares)
    after = ownership_report.OwnershipReport(
        dataclasses.replace(
            seen, services=(
                *(one for one in without.services if one.key not in added),
                *map(cloud_state.Service, added.values())),
            zones={**seen.zones, **(
                dict.fromkeys(added, zone) if zone else {})}),
        report.settings, tuple(
            dataclasses.replace(part, hosts=part.hosts.union(added))
            if part is joined else part for part in shares))
    moves = collections.defaultdict[tuple[str, str], collections.Counter[bool]
                                    ](collections.Counter)
    anyway = 0
    for node in seen.nodes:
        present = _present(seen, node)
        owner = _final(after, node, present)
        if owner != present:
            anyway += _final(before, node, present) != present
            moves[present or '', owner or ''][
                node.instance_uuid is not None] += 1
    return [Move(*hosts, counts[False], counts[True])
            for hosts, counts in sorted(moves.items())], anyway


def _partition(shares: tuple[ownership_report.NodeShare, ...],
               label: str | None) -> ownership_report.NodeShare:
    """Return the partition of the added hosts."""
    found = {part.label: part for part in shares}
    labels = ', '.join(f'"{label}"' for label in sorted(found))
    if label is None and len(found) == 1:
        return shares[0]
    if label is None:
        raise base.Refused(f'The nodes are shared in {len(found)} partitions. '
                           f'Say --partition with one of {labels}.')
    if label not in found:
        raise base.Refused(f'There is no partition "{label}". '
                           f'Name one of {labels}.')
    return found[label]


def _present(seen: cloud_state.CloudState, node: cloud_state.Node
             ) -> HostKey | None:
    """Return the host of the server on a node; without one, its owner."""
    server = seen.server_on.get(node.uuid)
    if server is not None and server.host_key is not None:
        return server.host_key
    return seen.owner_of.get(node.uuid)


def _final(report: ownership_report.OwnershipReport, node: cloud_state.Node,
           owner: HostKey | None) -> HostKey | None:
    """Return the owner of a node after all moves, None for none."""
    seen = report.seen
    used = node.uuid in seen.server_on
    service = seen.service_of.get(owner) if owner is not None else None
    stays = service is not None and not service.forced_down
    if node.instance_uuid and (stays if used else owner in seen.up_hosts):
        return owner
    found = report.taker(node.uuid, owner, used)
    # No host may take it: it stays with its owner, if that one lives.
    if found is None and stays:
        return owner
    if found is None or node.instance_uuid:
        return found
    # When a zone has no member left, a host without zone takes its free
    # nodes; from there they move on to the member that the ring prefers.
    return report.taker(node.uuid, found)
