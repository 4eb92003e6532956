# SPDX-License-Identifier: Apache-2.0

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
