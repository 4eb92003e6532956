# SPDX-License-Identifier: Apache-2.0

"""How nova's own driver fails with several computes, one scenario each.

``tools/compare`` plays them with nova's driver and with ours;
``python -m nova_ironic_multihost.tests.functional.failures NAME`` plays some
with the driver that ``MULTIHOST_COMPARE_DRIVER`` names.
"""

#: The modules, each with one scenario, in the order of the table.
SCENARIOS = (
    # Nodes go to and fro, or are nobody's
    'disabled', 'fenced', 'restarted', 'simultaneous', 'unmapped', 'shard',
    'unmanaged', 'renamed',
    # Servers are lost
    'queued', 'unclaimed', 'reserved', 'lagging', 'rebuilt', 'evacuated',
    # What nova knows is lost
    'blinded', 'broken', 'noisy', 'leaked', 'unlisted', 'threaded',
    # Where servers go
    'aggregates',
)
