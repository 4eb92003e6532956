# SPDX-License-Identifier: Apache-2.0

"""Pictures of compute services, for tests."""

from nova_ironic_multihost.rules import counters
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules import health as picture
from nova_ironic_multihost.rules import peers

WELL = health.HealthState(True, 'This compute service is well.')

VIEW = peers.view(
    [peers.ComputeService('Me', True),
     peers.ComputeService('You', True),
     peers.ComputeService('Dead', False)],
    peers.Partition(), 'Me')


def of(some=None, verdict=WELL, **fields):
    """Return one at 100 s, of a process that began at 40 s."""
    return picture.StatusSnapshot(
        'Me', 100, some or counters.Counters(begun=40), verdict, **fields)
