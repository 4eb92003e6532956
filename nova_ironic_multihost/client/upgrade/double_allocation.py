# SPDX-License-Identifier: Apache-2.0

"""Can placement allocate one node to two servers?"""

from collections.abc import Iterator
import dataclasses
import urllib.parse

from nova_ironic_multihost.client.upgrade.problem import Problem


@dataclasses.dataclass(frozen=True)
class PlacementFacts:
    """Settings of one ``placement.conf``.

    :ivar origin: names of the files, for people.
    :ivar retries: ``[placement]allocation_conflict_retry_count``.
    :ivar connection: URL of the database, with its password; None if it is
        set elsewhere.
    """

    origin: str
    retries: int
    connection: str | None = dataclasses.field(default=None, repr=False)


def judge(found: PlacementFacts) -> Iterator[Problem]:
    """Report settings with which a conflict may end in two allocations."""
    if found.retries == 1 or not _with_snapshots(found.connection):
        return
    yield Problem(
        f'With {found.origin} placement may allocate one node to two servers, '
        'of which one has to go to another: set '
        '[placement]allocation_conflict_retry_count = 1, or READ COMMITTED '
        'in [placement_database]connection where virtual machines share that '
        'placement (documentation, page "Scheduling").')


def _with_snapshots(connection: str | None) -> bool:
    """Return whether a repeated read in a transaction may be stale."""
    if connection is None:
        return True
    kind, _, rest = urllib.parse.unquote_plus(connection).partition(':')
    return (kind.startswith(('mysql', 'mariadb'))
            and 'read committed' not in rest.lower().replace('-', ' '))
