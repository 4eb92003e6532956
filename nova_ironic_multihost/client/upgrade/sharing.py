# SPDX-License-Identifier: Apache-2.0

"""Do the compute services that share nodes have the same settings?

And do the owners of a partition's nodes match ``[ironic]peer_list``?
:mod:`nova_ironic_multihost.conf.validation` checks that the list has this
host.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import itertools

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key


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
            f'The settings of {conf_settings.some(absent)} are not compared: '
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
                f'{conf_settings.some(origins)} are of one host, {key}: each '
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


def _hosts(those: Sequence[conf_settings.ConfSettings]) -> str:
    return conf_settings.some(sorted(one.host for one in those))


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
            f'[ironic]peer_list names {conf_settings.some(unknown)}, and nova '
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
