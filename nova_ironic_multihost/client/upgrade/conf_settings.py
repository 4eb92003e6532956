# SPDX-License-Identifier: Apache-2.0

"""The settings of one ``nova.conf``, and a problem that a check reports.

:mod:`.upgrade.conf_files` reads the settings.
"""

from collections.abc import Iterator
import dataclasses

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


class Unknown(Exception):
    """An input of a check is not known; the message names the remedy."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A real or possible problem: a sentence with the remedy.

    :param fatal: it stops an upgrade, or a switch to this driver.
    """

    sentence: str
    fatal: bool = False


def some(names: list[str], shown: int = 5) -> str:
    """Return names in words, only the first few of many."""
    more = len(names) - shown
    return ', '.join(names[:shown]) + (f' and {more} more' if more > 0
                                       else '')


#: The right value of ``[DEFAULT]compute_driver``.
OURS = 'ironic_multihost.IronicMultiHostDriver'

#: nova's own driver for Ironic.
STOCK = 'ironic.IronicDriver'


@dataclasses.dataclass(frozen=True)
class ConfSettings:
    """The options of one compute service, or of a controller.

    Times are in seconds.

    :ivar origin: names of the files, for people.
    :ivar compute_driver: usually None on a controller.
    :ivar shared: (option, value) of the options that must be equal on all
        compute services that share nodes; an invalid value is None.
    :ivar contradictions: sentences; the driver refuses to start with any.
    :ivar graceful_shutdown_timeout: 0 for no limit.
    :ivar manager_shutdown_timeout: None if nova does not have the option.
    :ivar base_driver: the class that this driver extends, None for nova's.
    :ivar policy: of takeovers.
    :ivar host_subset_size: of ``[filter_scheduler]``.
    :ivar ironic_retries: (option, the seconds that it lets one request to
        Ironic be repeated).
    :ivar ironic_project: the project of nova's account in Ironic; None with
        another scope.
    """

    origin: str
    host: str
    compute_driver: str | None = OURS
    partition: peers.Partition = peers.Partition()
    shared: tuple[tuple[str, str | None], ...] = ()
    contradictions: tuple[str, ...] = ()
    move_across_zones: bool = False
    service_down_time: int = 60
    graceful_shutdown_timeout: int = 60
    manager_shutdown_timeout: int | None = None
    base_driver: str | None = None
    policy: takeover.Policy = takeover.Policy()
    terms: health.LeaseTiming = health.LeaseTiming(60, 60)
    host_subset_size: int = 1
    ironic_retries: tuple[tuple[str, float], ...] = ()
    ironic_project: str | None = None

    @property
    def key(self) -> HostKey:
        """The host in lower case."""
        return host_key(self.host)

    @property
    def of_compute(self) -> bool:
        """Whether these are settings of a compute service."""
        return self.compute_driver is not None


#: The first release with oslo.policy 6.
ENFORCED = 34


def judge_scope(found: ConfSettings, release: int | None) -> Iterator[Problem]:
    """Report an account that may see no node of Ironic after the upgrade."""
    if found.ironic_project and release is not None and release < ENFORCED:
        yield Problem(
            'nova asks Ironic with the scope of project '
            f'{found.ironic_project} ([ironic]project_name). Since 2026.2 '
            'scope is always enforced (oslo.policy 6): Ironic then shows all '
            'nodes only to the role service in its service_project_name, or '
            'to system scope. Before the upgrade give the account that role, '
            'or the role admin with system_scope = all in place of '
            'project_name.')


def judge(found: ConfSettings) -> Iterator[Problem]:
    """Report contradictions, and retries for which every audit waits."""
    for sentence in found.contradictions:
        yield Problem(sentence, fatal=True)
    for option, seconds in found.ironic_retries:
        if seconds > found.service_down_time:
            yield Problem(
                f'[ironic]{option} lets each request wait {seconds:.0f} s for '
                'an Ironic that does not answer, audits and takeovers '
                f'included: remove [ironic]{option} and '
                f'[ironic]{option.removesuffix("ies")}y_delay. The driver '
                'repeats requests itself (documentation, page on outages).')
