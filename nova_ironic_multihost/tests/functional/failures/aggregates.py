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

"""A host is added to an availability zone."""

from nova_ironic_multihost.tests.functional.failures import base


class Aggregates(base.FailureTestCase):
    """An aggregate or availability zone holds for one node of a host only.

    nova mirrors the first node of the host into placement, and the scheduler
    asks placement.
    """

    def test(self):
        nodes = self.ironic.enroll(8)
        self.fleet.start('host1')
        self.settle()

        zone = self.admin_api.post_aggregate({'aggregate': {
            'name': 'rack', 'availability_zone': 'zone1'}})
        self.admin_api.add_host_to_aggregate(zone['id'], 'host1')
        self.watch(2)

        there = [
            provider for provider in self._get_all_providers()
            if zone['uuid'] in self._get_provider_aggregates(provider['uuid'])]
        if len(there) < len(nodes):
            self.failure_shown(
                f'{len(there)} of 8 nodes of the host were in its zone.')
        self.failure_absent('All 8 nodes of the host were in its zone.')
