# SPDX-License-Identifier: Apache-2.0

"""Is nova-compute given the time that it takes to end?"""

from collections.abc import Iterator
import dataclasses
import math
import re

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.problem import Problem

#: Names that the service has with distributions and with devstack.
UNITS = ('nova-compute.service', 'openstack-nova-compute.service',
         'devstack@n-cpu.service')

#: The least that anything that runs containers gives a service to end.
LEAST = 30

#: Seconds that are left between the end of a service and its SIGKILL.
MARGIN = 5

#: The release of nova that waits at each stop, also when it does nothing.
ALWAYS_WAITS = 33

_PAGE = 'documentation, page "Stopping and restarting nova-compute"'

_SECONDS = {'us': 1e-6, 'ms': 1e-3, 's': 1, 'min': 60, 'h': 3600, 'd': 86400,
            'w': 604800, 'month': 2629800, 'y': 31557600}


@dataclasses.dataclass(frozen=True)
class Unit:
    """A unit of systemd.

    :ivar seconds: between SIGTERM and SIGKILL, infinite if there is none.
    :ivar watchdog: seconds without a sign of life until SIGKILL, 0 if there is
        no watchdog. With one nova-compute asks for more time as it ends.
    """

    name: str
    seconds: float
    watchdog: float = 0


def units(shown: str) -> list[Unit]:
    """Read what ``systemctl show`` prints of some units.

    :param shown: paragraphs of lines ``NAME=VALUE`` with Id, LoadState,
        TimeoutStopUSec and WatchdogUSec.
    :returns: those that exist.
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
    """Read a time as systemd writes it: "1min 30s", "infinity"."""
    if text == 'infinity':
        return math.inf
    parts = re.findall(r'(\d+)([a-z]+)', text)
    if not parts or any(unit not in _SECONDS for _, unit in parts):
        return None
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)


def judge(found: conf_settings.ConfSettings, release: int | None,
          running: list[Unit] | None) -> Iterator[Problem]:
    """Compare how long nova takes with how long it is given.

    :param release: of nova; None if it is not known.
    :param running: units of nova-compute; None where there is no systemd.
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
