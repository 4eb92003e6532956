# SPDX-License-Identifier: Apache-2.0

"""Can nova-compute load this driver, and does nova.conf name it?"""

from collections.abc import Iterator
import dataclasses

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade import problem
from nova_ironic_multihost.client.upgrade.problem import Problem


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


def judge(probe: Probe) -> Iterator[Problem]:
    """Report why nova-compute cannot load the driver."""
    if not probe.registered:
        yield Problem(
            f'os-vif of {probe.python} has no plug-in "ironic_multihost", by '
            'which nova-compute finds the driver: install the package there, '
            f'{probe.python} -m pip install nova-ironic-multihost. In the '
            'place of a repackaged nova-compute start '
            'nova-compute-ironic-multihost.', fatal=True)
    elif probe.error:
        yield Problem(
            f'{probe.python} cannot load the driver: '
            f'{probe.error.rstrip(".")}. Mend that, then ask again.',
            fatal=True)
    elif probe.shadowed:
        yield Problem(
            f'{problem.some(list(probe.shadowed))} of '
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
