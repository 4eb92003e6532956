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
