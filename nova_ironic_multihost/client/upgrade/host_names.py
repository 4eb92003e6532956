# SPDX-License-Identifier: Apache-2.0

"""Does each host have one spelling?

This driver treats names that differ only in case as one host. nova does not
everywhere, so a host renamed in case may appear twice.
"""

import collections
from collections.abc import Iterator

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey


def judge(seen: cloud_state.CloudState) -> Iterator[Problem]:
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
                f'{problem.counted(count, word)} of {name} spelled {host}: '
                f'set [DEFAULT]host = {host} there, as it was, or leave it '
                'to this driver, which writes them anew when it runs there. '
                "nova's own does not find them where the database tells both "
                'apart.')


def judge_setting(seen: cloud_state.CloudState,
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
