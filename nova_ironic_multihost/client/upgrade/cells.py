# SPDX-License-Identifier: Apache-2.0

"""Is each compute service mapped to a cell?

nova's API tells it only for hosts of which it shows a record.
"""

from collections.abc import Iterator

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem

_REMEDY = ('"nova-manage cell_v2 discover_hosts --by-service", on a host with '
           "nova's API database")


def judge(seen: cloud_state.CloudState) -> Iterator[Problem]:
    """Report compute services that are not mapped, or may not be."""
    unmapped = sorted(s.host for s in seen.services if s.mapped is False)
    if unmapped:
        yield Problem(
            f'{problem.some(unmapped)} is not mapped to a cell, so that '
            f'builds that are sent there fail: run {_REMEDY}.', fatal=True)
    doubtful = [s for s in seen.services if s.mapped is None]
    hidden = sum(node.uuid not in seen.owner_of for node in seen.nodes)
    if hidden and doubtful:
        yield Problem(
            f'nova shows no record of {problem.counted(hidden, "node")}, '
            'and those of a host that is not mapped to a cell are not shown. '
            f'Of {_names(doubtful)} it is not known: run {_REMEDY}, and if '
            'that does not help "nova-ironic-multihost check".')
    elif waiting := [s for s in doubtful if s.up and not s.disabled]:
        yield Problem(
            f'{_names(waiting)} has no node, so that the API does not tell '
            'whether it is mapped to a cell, without which it takes none: '
            f'run {_REMEDY}. It does no harm if it is.')


def _names(services: list[cloud_state.Service]) -> str:
    return problem.some(sorted(service.host for service in services))
