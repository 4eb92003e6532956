# SPDX-License-Identifier: Apache-2.0

"""Do the settings of schedulers and placement suit the cloud's hypervisors?"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Set
import dataclasses
import urllib.parse

from nova_ironic_multihost.client.upgrade import conf_settings
from nova_ironic_multihost.client.upgrade.conf_settings import Problem
from nova_ironic_multihost.rules.peers import HostKey

_ONE_TRY = '[placement]allocation_conflict_retry_count = 1'

#: The isolation level without a copy of the password.
READ_COMMITTED = (
    '[placement_database]connection_parameters = init_command='
    'SET+SESSION+TRANSACTION+ISOLATION+LEVEL+READ+COMMITTED')

#: The largest host_subset_size of a deployment tool (openstack-ansible) for
#: virtual machines.
MOST = 10

_PAGE = 'documentation, page "Scheduling: zones, aggregates, server groups"'


@dataclasses.dataclass(frozen=True)
class PlacementFacts:
    """Settings of one ``placement.conf``.

    :ivar origin: names of the files, for people.
    :ivar retries: ``[placement]allocation_conflict_retry_count``.
    :ivar connection: URL of the database, with its password; None if it is
        set elsewhere.
    :ivar parameters: query parameters that oslo.db adds to the URL.
    """

    origin: str
    retries: int
    connection: str | None = dataclasses.field(default=None, repr=False)
    parameters: str = dataclasses.field(default='', repr=False)


def judge(found: Iterable[conf_settings.ConfSettings],
          others: Set[HostKey]) -> Iterator[Problem]:
    """Report a host_subset_size that turns off weighers of virtual machines.

    :param found: settings of nova.conf files.
    :param others: hosts with hypervisors that are not Ironic's.
    """
    for one in found:
        if others and one.host_subset_size > MOST:
            yield Problem(
                f'{one.origin} has [filter_scheduler]host_subset_size = '
                f'{one.host_subset_size}, and nova has hypervisors of virtual '
                f'machines ({conf_settings.some(sorted(others))}), for which '
                'weighers hardly count then: remove the option on the '
                f'schedulers ({_PAGE}).')


def judge_placement(found: PlacementFacts,
                    others: Set[HostKey] | None) -> Iterator[Problem]:
    """Report settings with which a conflict may end in two allocations.

    :param others: as for :func:`judge`; None if they are not known.
    """
    if found.retries == 1:
        if others:
            yield Problem(
                f'{found.origin} has {_ONE_TRY}, and builds of virtual '
                f'machines ({conf_settings.some(sorted(others))}) conflict '
                f'often: remove it and set {READ_COMMITTED} ({_PAGE}).')
    elif _with_snapshots(found):
        either = (f'{_ONE_TRY}, or {READ_COMMITTED} in a cloud with virtual '
                  'machines')
        remedy = (either if others is None
                  else READ_COMMITTED if others else _ONE_TRY)
        yield Problem(
            f'With {found.origin} placement may allocate one node to two '
            f'servers, of which one has to go to another: set {remedy} '
            f'({_PAGE}).')


def _with_snapshots(found: PlacementFacts) -> bool:
    """Return whether a repeated read in a transaction may be stale."""
    url = urllib.parse.unquote_plus(
        f'{found.connection or "mysql:"}?{found.parameters}').lower()
    return (url.startswith(('mysql', 'mariadb'))
            and 'read committed' not in url.replace('-', ' '))
