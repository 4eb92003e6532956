# SPDX-License-Identifier: Apache-2.0

"""Can nova-compute load this driver, with a supported nova, on all hosts?

No API shows the driver of a compute service. Its nova.conf does. Before nova
34 the trait OWNER_NOVA of its nodes does, too: only this driver sets it.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import dataclasses

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules.peers import host_key


@dataclasses.dataclass(frozen=True)
class Probe:
    """Result of loading the driver in a separate process.

    :ivar python: path of nova-compute's interpreter.
    :ivar nova: version of nova, None without nova.
    :ivar registered: os-vif finds the plug-in of this package.
    :ivar error: why the driver cannot be loaded, None if it can.
    :ivar lacking: names that this package replaces in nova, and that this
        nova does not have.
    :ivar shadowed: methods of ``[ironic_multihost]base_driver`` that are not
        called, or not always.
    """

    python: str
    nova: str | None = None
    registered: bool = False
    error: str | None = None
    lacking: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()


def judge_load(probe: Probe) -> Iterator[Problem]:
    """Report why nova-compute cannot load the driver."""
    if not probe.registered:
        yield Problem(
            f'os-vif of {probe.python} has no plug-in "ironic_multihost", by '
            'which nova-compute finds the driver: install the package there, '
            f'{probe.python} -m pip install ./nova_ironic_multihost-*.whl. In '
            'the place of a repackaged nova-compute start '
            'nova-compute-ironic-multihost.', fatal=True)
    elif probe.error:
        yield Problem(
            f'{probe.python} cannot load the driver: '
            f'{probe.error.rstrip(".")}. Mend that, then ask again.',
            fatal=True)
    elif probe.shadowed:
        yield Problem(
            f'{arguments.some(list(probe.shadowed))} of '
            '[ironic_multihost]base_driver are not called, or not always: see '
            'that nothing depends on them (documentation, page "A driver of '
            'your own").')


def judge_setting(found: conf_settings.ConfSettings) -> Iterator[Problem]:
    """Report another driver than ours in nova.conf."""
    driver = found.compute_driver
    wanted = f'compute_driver = {conf_settings.OURS}'
    if driver is None:
        yield Problem(
            f'{found.origin} sets no compute_driver, so that no compute '
            'service is judged: ask again with the nova.conf of each one.')
    elif driver == conf_settings.STOCK:
        yield Problem(
            f"compute_driver is nova's own, {driver}. To switch, set "
            f'[DEFAULT]{wanted} in {found.origin}.')
    elif driver != conf_settings.OURS:
        yield Problem(
            f'compute_driver is {driver}, which is not this driver: set '
            f'[DEFAULT]{wanted} in {found.origin}. If it is a driver of your '
            "own that extends nova's for Ironic, name it in "
            '[ironic_multihost]base_driver.', fatal=True)


#: Supported releases of nova, and the OpenStack series.
OLDEST, LATEST = 31, 34
SERIES = '2025.1 to 2026.2'

#: The first release in which nova's Ironic driver sets the trait OWNER_NOVA.
MARKS = 34


def release_of(version: str | None) -> int | None:
    """Return the release of a nova version; None if it is no number."""
    first = (version or '').partition('.')[0]
    return int(first) if first.isdecimal() else None


def judge_release(probe: Probe) -> Iterator[Problem]:
    """Check the nova of an interpreter."""
    if probe.nova is None:
        yield Problem(
            f'{probe.python} has no nova: run this with the Python of '
            'nova-compute.', fatal=True)
        return
    release = release_of(probe.nova)
    if release is None or not OLDEST <= release <= LATEST:
        yield Problem(
            f'nova is {probe.nova}, and this release of the package is for '
            f'{OLDEST} to {LATEST} ({SERIES}): use the one that is made for '
            'your nova.', fatal=True)
    if probe.lacking:
        yield Problem(
            f'nova {probe.nova} has no '
            f'{arguments.some(list(probe.lacking))}, or takes other '
            'parameters there. This package replaces that: nova has been '
            'changed by its packager, or is newer than this release of the '
            'package. Use a release that knows it.',
            fatal=True)


def judge_others(
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
            f'{arguments.some(stock)} is not set to this driver, and '
            f'{arguments.some(sorted(one.host for one in ours))} is: with '
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
            f'{arguments.counted(count, "node")} of {host} without the trait '
            f"OWNER_NOVA: {host} runs nova's own driver, or has not audited "
            'all nodes since it runs this one. Switch it, and wait for an '
            'audit of all nodes ([DEFAULT]update_resources_interval) before '
            'the last compute service is upgraded to nova 34 (2026.2). The '
            'scheduler of nova 34 finds no node without the trait.')


def missing(found: Sequence[conf_settings.ConfSettings], hosts: Sequence[str],
            nova: int | None) -> Iterator[Problem]:
    """Report hosts with an unknown driver.

    :param hosts: the compute services with Ironic nodes.
    :param nova: its release, None if it is not known.
    """
    if nova is not None and nova < MARKS:
        # Only this driver sets the trait, see judge_marks.
        return
    known = {one.key for one in found}
    absent = sorted(host for host in hosts if host_key(host) not in known)
    if absent:
        yield Problem(
            f'Which driver {arguments.some(absent)} runs is not known: '
            f'with nova {MARKS} nothing but its nova.conf '
            'tells. Collect that, and name the directory with --collected.')
