# SPDX-License-Identifier: Apache-2.0

"""Do all compute services run this driver, or some nova's own?

No API shows the driver of a compute service. Its nova.conf does. Before nova
34 the trait OWNER_NOVA of its nodes does, too: only this driver sets it.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade import nova_release
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem
from nova_ironic_multihost.rules.peers import host_key


def judge_settings(
    found: Sequence[conf_settings.ConfSettings],
) -> Iterator[Problem]:
    """Report compute services with another driver than the others."""
    stock = sorted(
        one.host
        for one in found
        if one.of_compute and one.compute_driver != conf_settings.OURS)
    ours = [one for one in found if one.compute_driver == conf_settings.OURS]
    if stock and ours:
        yield Problem(
            f'{problem.some(stock)} is not set to this driver, and '
            f'{problem.some(sorted(one.host for one in ours))} is: with '
            "nova's own a compute service takes the free nodes of others "
            'without asking. Switch it in the same maintenance window, and '
            'do not restart or disable it before (documentation, page "From '
            'one compute service to several, and back").')


def judge_marks(seen: cloud_state.CloudState,
                marked: Set[str]) -> Iterator[Problem]:
    """Report hosts with nodes without the trait OWNER_NOVA.

    :param marked: uuids of the resource providers with the trait OWNER_NOVA.
    """
    bare = collections.Counter(
        record.host for record in seen.records
        if record.key in seen.up_hosts and record.node in seen.provider_of
        and record.node not in marked)
    for host, count in sorted(bare.items()):
        yield Problem(
            f'{problem.counted(count, "node")} of {host} without the trait '
            f"OWNER_NOVA: {host} runs nova's own driver, or has not audited "
            'all nodes since it runs this one. Switch it, and wait for an '
            'audit of all nodes ([DEFAULT]update_resources_interval) before '
            'the last compute service is upgraded to nova 34 (2026.2), whose '
            'scheduler finds no node without it.')


def missing(found: Sequence[conf_settings.ConfSettings], hosts: Sequence[str],
            nova: int | None) -> Iterator[Problem]:
    """Report hosts with an unknown driver.

    :param hosts: the compute services with Ironic nodes.
    :param nova: its release, None if it is not known.
    """
    if nova is not None and nova < nova_release.MARKS:
        # Only this driver sets the trait, see judge_marks.
        return
    known = {one.key for one in found}
    absent = sorted(host for host in hosts if host_key(host) not in known)
    if absent:
        yield Problem(
            f'Which driver {problem.some(absent)} runs is not known: '
            f'with nova {nova_release.MARKS} nothing but its nova.conf '
            'tells. Collect that, and name the directory with --collected.')
