# SPDX-License-Identifier: Apache-2.0

"""Do systemd's units of nova-compute stop it, and end it, in time?

The stop timeout is that of systemd, or of a container runtime. The watchdog
ends a compute service that is cut off before others take over its instances.
"""

from collections.abc import Iterator
import dataclasses
import math
import re

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules import takeover

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
