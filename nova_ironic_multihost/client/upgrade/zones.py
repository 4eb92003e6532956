# SPDX-License-Identifier: Apache-2.0

"""Do the availability zones allow free nodes to move?

Free nodes do not move between compute services of different zones.
"""

import collections
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

_PAGE = 'documentation, page "Scheduling"'


def judge(hosts: Sequence[str],
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
            f'{problem.some(bare)} is in no availability zone and shares '
            'nodes with others that are: the nodes that it takes leave their '
            'zones. Put all of them into zones, or none '
            f'({_PAGE}).')
    for zone, alone in sorted(members.items(), key=str):
        if len(alone) == 1 and not bare:
            yield Problem(
                f'{alone[0]} is alone in availability zone {zone}: while it '
                'is down nobody has its free nodes. Put another compute '
                'service there, or set '
                f'[ironic_multihost]move_across_zones on all ({_PAGE}).')
