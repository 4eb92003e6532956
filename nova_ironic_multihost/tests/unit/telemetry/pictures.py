# SPDX-License-Identifier: Apache-2.0

"""Pictures of compute services, for tests."""

from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import peers

WELL = health.HealthState(True, 'This compute service is well.')

VIEW = peers.view(
    [peers.ComputeService('Me', True),
     peers.ComputeService('You', True),
     peers.ComputeService('Dead', False)],
    peers.Partition(), 'Me')


def of(turns=None, counts=None, pending=None, **fields):
    """Return one at 100 s, of a process that began at 40 s."""
    return health.StatusSnapshot(
        'Me', 100, **{'begun': 40, 'started': None} | fields,
        counts=dict.fromkeys(Event, 0) | (counts or {}),
        turns=dict.fromkeys(Work, RunStats()) | (turns or {}),
        pending=dict.fromkeys(Pending, {}) | (pending or {}))


#: Turns of a process that has listed and audited.
TURNS = {Work.LISTING: RunStats(1, 1, 1, 1), Work.AUDIT: RunStats(1, 1, 1, 1)}
