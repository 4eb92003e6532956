# SPDX-License-Identifier: Apache-2.0

"""Can nova-compute load this driver, with a supported nova, on all hosts?

No API shows the driver of a compute service. Its nova.conf does. Before nova
34 the trait OWNER_NOVA of its nodes does, too: only this driver sets it.

And is nova-compute stopped and ended in time? The stop timeout is that of
systemd, or of a container runtime. The watchdog ends a compute service that
is cut off before others take over its instances.
"""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import math
import re

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover


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

#: Names of the unit in distributions and in devstack.
UNITS = ('nova-compute.service', 'openstack-nova-compute.service',
         'devstack@n-cpu.service')

#: The least stop timeout of container runtimes, in seconds.
LEAST = 30

#: The least seconds between the end of nova-compute and SIGKILL.
MARGIN = 5

#: The release of nova that waits at each stop, even when it is idle.
ALWAYS_WAITS = 33

_STOP_PAGE = 'documentation, page "Stop and restart nova-compute: timeouts"'

_SECONDS = {'us': 1e-6, 'ms': 1e-3, 's': 1, 'min': 60, 'h': 3600, 'd': 86400,
            'w': 604800, 'month': 2629800, 'y': 31557600}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit of systemd.

    :ivar seconds: TimeoutStopSec, from SIGTERM to SIGKILL; may be infinite.
    :ivar watchdog: WatchdogSec; 0 without a watchdog. With a watchdog
        nova-compute extends its stop timeout while it ends.
    """

    name: str
    seconds: float
    watchdog: float = 0


def loaded(shown: str) -> list[Unit]:
    """Return the loaded units in the output of ``systemctl show``.

    :param shown: paragraphs of lines ``NAME=VALUE`` with Id, LoadState,
        TimeoutStopUSec and WatchdogUSec.
    """
    found = []
    for paragraph in shown.split('\n\n'):
        fields = dict(line.partition('=')[::2]
                      for line in paragraph.splitlines())
        seconds = _seconds(fields.get('TimeoutStopUSec', ''))
        if fields.get('LoadState') == 'loaded' and seconds is not None:
            watchdog = _seconds(fields.get('WatchdogUSec', '')) or 0
            found.append(Unit(
                fields['Id'], seconds, watchdog if watchdog < math.inf else 0))
    return found


def _seconds(text: str) -> float | None:
    """Return the seconds of a time like "1min 30s", or "infinity"."""
    if text == 'infinity':
        return math.inf
    parts = re.findall(r'(\d+)([a-z]+)', text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def judge_stop(found: conf_settings.ConfSettings, release: int | None,
               running: list[Unit] | None) -> Iterator[Problem]:
    """Compare nova's shutdown timeouts with the stop timeouts of its units.

    :param release: of nova; None if it is not known.
    :param running: units of nova-compute; None without systemd.
    """
    if not found.of_compute:
        return
    limit = found.graceful_shutdown_timeout or math.inf
    for unit in running or ():
        if not unit.watchdog and unit.seconds < limit + MARGIN:
            yield Problem(
                f'{unit.name} is killed {unit.seconds:.0f} s after it is '
                f'told to end, and nova {_takes(limit)}: '
                f'{_longer(limit)}or set shorter times in nova.conf '
                f'({_STOP_PAGE}).')
    if not running and limit + MARGIN > LEAST:
        yield Problem(
            ('There is no systemd here' if running is None else
             'systemd has no unit of nova-compute that is known (--unit '
             'names another)')
            + f', and nova {_takes(limit)} to end: see that what runs it is '
            'more patient (docker_graceful_timeout, '
            'terminationGracePeriodSeconds), or set shorter times in '
            f'nova.conf ({_STOP_PAGE}).')
    waits = found.manager_shutdown_timeout
    if release == ALWAYS_WAITS and waits is not None and (
            min(waits, limit) >= found.service_down_time):
        yield Problem(
            f'nova {ALWAYS_WAITS} takes {min(waits, limit):.0f} s for each '
            'stop, and after service_down_time, '
            f'{found.service_down_time} s, the free nodes move to others '
            'and back: set [DEFAULT]manager_shutdown_timeout to 40 and '
            f'[DEFAULT]graceful_shutdown_timeout to 50 ({_STOP_PAGE}).')


def _takes(limit: float) -> str:
    if limit == math.inf:
        return ('may take for ever ([DEFAULT]graceful_shutdown_timeout is '
                '0)')
    return (f'may take {limit:.0f} s '
            '([DEFAULT]graceful_shutdown_timeout)')


def _longer(limit: float) -> str:
    return ('' if limit == math.inf
            else f'set TimeoutStopSec={limit + 10:.0f} there, ')


_WATCHDOG_PAGE = 'documentation, page "A watchdog instead of fencing"'


def judge_watchdog(
    found: conf_settings.ConfSettings, running: list[Unit] | None
) -> Iterator[Problem]:
    """Compare takeover_after with the time until a unit is dead for certain.

    :param running: units of nova-compute; None without systemd.
    """
    if not found.of_compute or found.policy.when != takeover.DOWN:
        return
    watched = [unit for unit in running or () if unit.watchdog]
    if not watched:
        yield Problem(
            'With [ironic_multihost]instance_takeover = down instances are '
            'taken over from a compute service that may only be cut off, and '
            'no unit of systemd here has a watchdog that ends it: see that '
            'something does, or set it to forced_down and fence '
            f'({_WATCHDOG_PAGE}).')
    for unit in watched:
        dead_after = found.terms.over_after(unit.watchdog)
        if found.policy.after < dead_after:
            yield Problem(
                f'[ironic_multihost]takeover_after is {found.policy.after:.0f}'
                f' s, and {unit.name} may take {dead_after:.0f} s until it is '
                f'dead, with WatchdogSec={unit.watchdog:.0f}: nova-compute '
                'does not start. Make takeover_after no shorter '
                f'({_WATCHDOG_PAGE}).', fatal=True)
        if unit.seconds > unit.watchdog:
            yield Problem(
                f'{unit.name} has {unit.seconds:.0f} s to end, during which '
                'it has no watchdog: set TimeoutStopSec to no more than '
                f'WatchdogSec, {unit.watchdog:.0f} s; nova-compute asks for '
                f'more time as long as it may ({_WATCHDOG_PAGE}).')
