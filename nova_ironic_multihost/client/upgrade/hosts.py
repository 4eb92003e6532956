# SPDX-License-Identifier: Apache-2.0

"""Do the hosts fit: cells, names, availability zones, settings, partitions?

nova's API tells whether a host is mapped to a cell only if it shows a record
of it. This driver treats names that differ only in case as one host. nova
does not everywhere, so a host renamed in case may appear twice. Free nodes do
not move between compute services of different zones.
"""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import itertools

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

_REMEDY = ('"nova-manage cell_v2 discover_hosts --by-service", on a host with '
           "nova's API database")


def judge_cells(seen: cloud_state.CloudState) -> Iterator[Problem]:
    """Report compute services that are not mapped, or may not be."""
    unmapped = sorted(s.host for s in seen.services if s.mapped is False)
    if unmapped:
        yield Problem(
            f'{arguments.some(unmapped)} is not mapped to a cell, so that '
            f'builds that are sent there fail: run {_REMEDY}.', fatal=True)
    doubtful = [s for s in seen.services if s.mapped is None]
    hidden = sum(node.uuid not in seen.owner_of for node in seen.nodes)
    if hidden and doubtful:
        yield Problem(
            f'nova shows no record of {arguments.counted(hidden, "node")}, '
            'and those of a host that is not mapped to a cell are not shown. '
            f'Of {_hosts(doubtful)} it is not known: run {_REMEDY}, and if '
            'that does not help "nova-ironic-multihost check".')
    elif waiting := [s for s in doubtful if s.up and not s.disabled]:
        yield Problem(
            f'{_hosts(waiting)} has no node, so that the API does not tell '
            'whether it is mapped to a cell, without which it takes none: '
            f'run {_REMEDY}. It does no harm if it is.')


def _hosts(those: Iterable[cloud_state.Service | conf_settings.ConfSettings]
           ) -> str:
    return arguments.some(sorted(one.host for one in those))


def judge_names(seen: cloud_state.CloudState) -> Iterator[Problem]:
    """Report hosts with two spellings."""
    services = _services(seen)
    for same in services.values():
        yield from _duplicates(same)
    names = {key: {service.host for service in same}
             for key, same in services.items()}
    for word, hosts in (
            ('record', [record.host for record in seen.records]),
            ('server', [i.host for i in seen.instances
                        if i.host and not i.deleted])):
        others = collections.Counter(
            host for host in hosts
            if host not in names.get(host_key(host), {host}))
        for host, count in sorted(others.items()):
            [name, *_] = sorted(names[host_key(host)])
            yield Problem(
                f'{arguments.counted(count, word)} of {name} spelled {host}: '
                f'set [DEFAULT]host = {host} there, as it was, or leave it '
                'to this driver, which writes them anew when it runs there. '
                "nova's own does not find them where the database tells both "
                'apart.')


def judge_own_name(seen: cloud_state.CloudState,
                   host: str) -> Iterator[Problem]:
    """Compare ``[DEFAULT]host`` with the name of nova's service.

    :param host: as spelled in nova.conf.
    """
    same = sorted(service.host
                  for service in _services(seen).get(host_key(host), []))
    if same and host not in same:
        yield Problem(
            f'nova spells this compute service {same[0]}, and [DEFAULT]host '
            f'is {host}: set [DEFAULT]host = {same[0]}.')


def _services(seen: cloud_state.CloudState
              ) -> dict[HostKey, list[cloud_state.Service]]:
    services: dict[HostKey, list[cloud_state.Service]] = {}
    for service in seen.services:
        services.setdefault(service.key, []).append(service)
    return services


def _duplicates(same: list[cloud_state.Service]) -> Iterator[Problem]:
    up = sorted(service.host for service in same if service.up)
    if len(up) > 1:
        yield Problem(
            f'{" and ".join(up)} are up, and one host to this driver: give '
            'one of them another [DEFAULT]host.', fatal=True)
    elif len(same) > 1:
        names = ' and '.join(sorted(service.host for service in same))
        yield Problem(
            f'{names} are one host: delete the service that is not used any '
            'more when it has neither servers nor nodes, "openstack compute '
            'service delete ID". nova unmaps both: "nova-manage cell_v2 '
            'discover_hosts --by-service" after it.')


_PAGE = 'documentation, page "Scheduling: zones, aggregates, server groups"'


def judge_zones(hosts: Sequence[str],
                zones: Mapping[HostKey, str]) -> Iterator[Problem]:
    """Report zones that keep free nodes from moving.

    :param hosts: the compute services that share nodes.
    :param zones: host -> explicit availability zone.
    """
    if len(hosts) < 2:
        return
    members = collections.defaultdict(list)
    for host in sorted(hosts):
        members[zones.get(host_key(host))].append(host)
    bare = members.pop(None, [])
    if bare and members:
        yield Problem(
            f'{arguments.some(bare)} is in no availability zone and '
            'shares nodes with others that are: the nodes that it takes leave '
            'their zones. Put all of them into zones, or none '
            f'({_PAGE}).')
    for zone, alone in sorted(members.items(), key=str):
        if len(alone) == 1 and not bare:
            yield Problem(
                f'{alone[0]} is alone in availability zone {zone}: while it '
                'is down nobody has its free nodes. Put another compute '
                'service there, or set '
                f'[ironic_multihost]move_across_zones on all ({_PAGE}).')


def judge_options(
    found: Sequence[conf_settings.ConfSettings],
) -> Iterator[Problem]:
    """Compare the settings of several compute services."""
    yield from _names(found)
    yield from _overlaps(found)
    for _, group in itertools.groupby(
            sorted(found, key=_label), key=_label):
        yield from _differences(list(group))


def missing(found: Sequence[conf_settings.ConfSettings],
            hosts: Sequence[str]) -> Iterator[Problem]:
    """Report hosts without collected settings.

    :param hosts: the compute services with Ironic nodes.
    """
    known = {one.key for one in found}
    absent = sorted(host for host in hosts if host_key(host) not in known)
    if absent:
        yield Problem(
            f'The settings of {arguments.some(absent)} are not compared: '
            'collect nova.conf of each compute service into one directory '
            'and name that with --collected.'
            + (_to_compare(found[0]) if len(found) == 1 else ''))


def _to_compare(one: conf_settings.ConfSettings) -> str:
    return f' {one.host} has ' + ', '.join(
        f'{option} = {value}' for option, value in one.shared) + '.'


def _label(one: conf_settings.ConfSettings) -> str:
    return one.partition.label


def _names(found: Sequence[conf_settings.ConfSettings]) -> Iterator[Problem]:
    ordered = sorted(found, key=lambda one: (one.key, one.origin))
    for key, group in itertools.groupby(ordered, key=lambda one: one.key):
        origins = [one.origin for one in group]
        if len(origins) > 1:
            yield Problem(
                f'{arguments.some(origins)} are of one host, {key}: each '
                'compute service needs a [DEFAULT]host of its own.',
                fatal=True)


def _overlaps(
    found: Sequence[conf_settings.ConfSettings],
) -> Iterator[Problem]:
    samples = {_label(one): one for one in found}
    for one, other in itertools.combinations(samples.values(), 2):
        if not one.partition.excludes(other.partition):
            yield Problem(
                f'{one.host} serves {_described(one.partition)} and '
                f'{other.host} {_described(other.partition)}, so that nodes '
                'can belong to both: give each compute service an '
                '[ironic]conductor_group or an [ironic]shard, or none of '
                'them.')


def _described(partition: peers.Partition) -> str:
    if not partition.label:
        return 'all nodes'
    parts = []
    if partition.conductor_group is not None:
        parts.append(f'conductor group "{partition.conductor_group}"')
    if partition.shard:
        parts.append(f'shard "{partition.shard}"')
    return ' and '.join(parts)


def _differences(group: list[conf_settings.ConfSettings]) -> Iterator[Problem]:
    if len(group) > 1 and group[0].partition.label and not any(
            one.partition.peer_list for one in group):
        yield Problem(
            f'{_hosts(group)} serve the same nodes and [ironic]peer_list is '
            'empty, so that each takes itself for the only one: name all of '
            'them in it, on each.', fatal=True)
    for option in dict(group[0].shared):
        values: dict[str | None, list[conf_settings.ConfSettings]] = {}
        for one in group:
            values.setdefault(dict(one.shared)[option], []).append(one)
        # Another check reports invalid values.
        values.pop(None, None)
        if len(values) > 1:
            listed = '; '.join(f'{value or "nothing"} on {_hosts(those)}'
                               for value, those in values.items())
            yield Problem(
                f'{option} is {listed}: set the same on all that share '
                'nodes.', fatal=True)


def judge_peer_list(found: conf_settings.ConfSettings) -> Iterator[Problem]:
    """Report settings without effect; needs no API."""
    if found.partition.peer_list and not found.partition.label:
        yield Problem(
            '[ironic]peer_list has no effect without [ironic]conductor_group '
            'or [ironic]shard: all compute services share all nodes. Unset '
            'it, or set the group or the shard.')


def judge_peers(found: conf_settings.ConfSettings,
                seen: cloud_state.CloudState,
                nodes: Set[str]) -> Iterator[Problem]:
    """Compare a partition with the owners of its nodes.

    :param nodes: uuids of the nodes of the partition.
    """
    peers = found.partition.peers
    if peers is None:
        return
    unknown = sorted(name for name in found.partition.peer_list
                     if host_key(name) not in seen.service_of)
    if unknown:
        yield Problem(
            f'[ironic]peer_list names {arguments.some(unknown)}, and nova '
            'has no compute service of that name: correct it, on each host '
            'of the list, or start that one.')
    others = collections.Counter(
        record.host for record in seen.records
        if record.node in nodes and record.key in seen.up_hosts
        and record.key != found.key and record.key not in peers)
    for host, count in sorted(others.items()):
        yield Problem(
            f'{arguments.counted(count, "node")} of the conductor group or '
            f'shard of {found.host} recorded on {host}, which '
            '[ironic]peer_list does not name: add it to the list on each '
            'host of it, or give it other nodes. Until then those stay '
            'where they are.')
    if not nodes:
        yield Problem(
            'Ironic has no node in the [ironic]conductor_group or '
            f'[ironic]shard of {found.host}: compare how they are spelled, '
            'or put nodes into it.')
