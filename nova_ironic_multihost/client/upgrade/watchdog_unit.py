# SPDX-License-Identifier: Apache-2.0

"""Does a watchdog end a compute service that is cut off before a takeover?"""

from collections.abc import Iterator

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.problem import Problem
from nova_ironic_multihost.client.upgrade import stop_timeout
from nova_ironic_multihost.rules import takeover

_PAGE = 'documentation, page "A watchdog instead of fencing"'


def judge(
    found: conf_settings.ConfSettings, running: list[stop_timeout.Unit] | None
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
            f'({_PAGE}).')
    for unit in watched:
        dead_after = found.terms.over_after(unit.watchdog)
        if found.policy.after < dead_after:
            yield Problem(
                f'[ironic_multihost]takeover_after is {found.policy.after:.0f}'
                f' s, and {unit.name} may take {dead_after:.0f} s until it is '
                f'dead, with WatchdogSec={unit.watchdog:.0f}: nova-compute '
                f'does not start. Make takeover_after no shorter ({_PAGE}).',
                fatal=True)
        if unit.seconds > unit.watchdog:
            yield Problem(
                f'{unit.name} has {unit.seconds:.0f} s to end, during which '
                'it has no watchdog: set TimeoutStopSec to no more than '
                f'WatchdogSec, {unit.watchdog:.0f} s; nova-compute asks for '
                f'more time as long as it may ({_PAGE}).')
