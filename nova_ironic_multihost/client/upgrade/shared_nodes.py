# SPDX-License-Identifier: Apache-2.0

"""Do the owners of a partition's nodes match ``[ironic]peer_list``?

:mod:`nova_ironic_multihost.conf.validation` checks that the list has this
host.
"""

import collections
from collections.abc import Iterator
from collections.abc import Set

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem
from nova_ironic_multihost.rules.peers import host_key


def judge_settings(found: conf_settings.ConfSettings) -> Iterator[Problem]:
    """Report settings without effect; needs no API."""
    if found.partition.peer_list and not found.partition.label:
        yield Problem(
            '[ironic]peer_list has no effect without [ironic]conductor_group '
            'or [ironic]shard: all compute services share all nodes. Unset '
            'it, or set the group or the shard.')


def judge(found: conf_settings.ConfSettings, seen: cloud_state.CloudState,
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
            f'[ironic]peer_list names {problem.some(unknown)}, and nova '
            'has no compute service of that name: correct it, on each host '
            'of the list, or start that one.')
    others = collections.Counter(
        record.host for record in seen.records
        if record.node in nodes and record.key in seen.up_hosts
        and record.key != found.key and record.key not in peers)
    for host, count in sorted(others.items()):
        yield Problem(
            f'{problem.counted(count, "node")} of the conductor group or '
            f'shard of {found.host} recorded on {host}, which '
            '[ironic]peer_list does not name: add it to the list on each '
            'host of it, or give it other nodes. Until then those stay '
            'where they are.')
    if not nodes:
        yield Problem(
            'Ironic has no node in the [ironic]conductor_group or '
            f'[ironic]shard of {found.host}: compare how they are spelled, '
            'or put nodes into it.')
