# SPDX-License-Identifier: Apache-2.0

"""Does this package support the installed nova?"""

from collections.abc import Iterator

from nova_ironic_multihost.client.upgrade import driver_load
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem

#: Supported releases of nova, and the OpenStack series.
OLDEST, LATEST = 31, 34
SERIES = '2025.1 to 2026.2'

#: The first release in which nova's Ironic driver sets the trait OWNER_NOVA.
MARKS = 34


def number(version: str | None) -> int | None:
    """Return the release of a nova version; None if it is no number."""
    first = (version or '').partition('.')[0]
    return int(first) if first.isdecimal() else None


def judge(probe: driver_load.Probe) -> Iterator[Problem]:
    """Check the nova of an interpreter."""
    if probe.nova is None:
        yield Problem(
            f'{probe.python} has no nova: run this with the Python of '
            'nova-compute.', fatal=True)
        return
    release = number(probe.nova)
    if release is None or not OLDEST <= release <= LATEST:
        yield Problem(
            f'nova is {probe.nova}, and this release of the package is for '
            f'{OLDEST} to {LATEST} ({SERIES}): use the one that is made for '
            'your nova.', fatal=True)
    if probe.lacking:
        yield Problem(
            f'nova {probe.nova} has no '
            f'{problem.some(list(probe.lacking))}, or takes other '
            'parameters there. This package replaces that: nova has been '
            'changed by its packager, or is newer than this release of the '
            'package. Use a release that knows it.',
            fatal=True)
