# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
