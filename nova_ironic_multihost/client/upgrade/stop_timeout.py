# SPDX-License-Identifier: Apache-2.0

"""Does systemd, or a container runtime, let nova-compute end in time?"""

from collections.abc import Iterator
import dataclasses
import math
import re

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.problem import Problem

#: Names of the unit in distributions and in devstack.
UNITS = ('nova-compute.service', 'openstack-nova-compute.service',
         'devstack@n-cpu.service')

#: The least stop timeout of container runtimes, in seconds.
LEAST = 30

#: The least seconds between the end of nova-compute and SIGKILL.
MARGIN = 5

#: The release of nova that waits at each stop, even when it is idle.
ALWAYS_WAITS = 33

_PAGE = 'documentation, page "Stopping and restarting nova-compute"'

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


def units(shown: str) -> list[Unit]:
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


def judge(found: conf_settings.ConfSettings, release: int | None,
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
                f'({_PAGE}).')
    if not running and limit + MARGIN > LEAST:
        yield Problem(
            ('There is no systemd here' if running is None else
             'systemd has no unit of nova-compute that is known (--unit '
             'names another)')
            + f', and nova {_takes(limit)} to end: see that what runs it is '
            'more patient (docker_graceful_timeout, '
            'terminationGracePeriodSeconds), or set shorter times in '
            f'nova.conf ({_PAGE}).')
    waits = found.manager_shutdown_timeout
    if release == ALWAYS_WAITS and waits is not None and (
            min(waits, limit) >= found.service_down_time):
        yield Problem(
            f'nova {ALWAYS_WAITS} takes {min(waits, limit):.0f} s for each '
            'stop, and after service_down_time, '
            f'{found.service_down_time} s, the free nodes move to others '
            'and back: set [DEFAULT]manager_shutdown_timeout to 40 and '
            f'[DEFAULT]graceful_shutdown_timeout to 50 ({_PAGE}).')


def _takes(limit: float) -> str:
    if limit == math.inf:
        return ('may take for ever ([DEFAULT]graceful_shutdown_timeout is '
                '0)')
    return (f'may take {limit:.0f} s '
            '([DEFAULT]graceful_shutdown_timeout)')


def _longer(limit: float) -> str:
    return ('' if limit == math.inf
            else f'set TimeoutStopSec={limit + 10:.0f} there, ')
