# SPDX-License-Identifier: Apache-2.0

"""Do the hosts fit: their cells, their names, their availability zones?

nova's API tells whether a host is mapped to a cell only if it shows a record
of it. This driver treats names that differ only in case as one host. nova
does not everywhere, so a host renamed in case may appear twice. Free nodes do
not move between compute services of different zones.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

_REMEDY = ('"nova-manage cell_v2 discover_hosts --by-service", on a host with '
           "nova's API database")


def judge_cells(seen: cloud_state.CloudState) -> Iterator[Problem]:
    """Report compute services that are not mapped, or may not be."""
    unmapped = sorted(s.host for s in seen.services if s.mapped is False)
    if unmapped:
        yield Problem(
            f'{conf_settings.some(unmapped)} is not mapped to a cell, so that '
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


def _hosts(services: list[cloud_state.Service]) -> str:
    return conf_settings.some(sorted(service.host for service in services))


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
            f'{conf_settings.some(bare)} is in no availability zone and '
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
