# SPDX-License-Identifier: Apache-2.0

"""A single compute: as with stock's driver."""

from nova_ironic_multihost.tests.functional import base

#: What is told of a hypervisor but changes by itself.
_VOLATILE = {'uptime', 'updated_at'}


class SingleComputeTestCase(base.MultiHostTestCase):

    def everything(self):
        """Return what nova and placement tell of the compute's nodes."""
        hypervisors = self.admin_api.api_get(
            '/os-hypervisors/detail?with_servers=true').body['hypervisors']
        return {
            hypervisor['id']: {
                'hypervisor': {
                    key: value for key, value in hypervisor.items()
                    if key not in _VOLATILE},
                'inventory': self._get_provider_inventory(hypervisor['id']),
                'usages': self._get_provider_usages(hypervisor['id']),
                # nova itself since 34.
                'traits': sorted({'OWNER_NOVA', *self._get_provider_traits(
                    hypervisor['id'])}),
            } for hypervisor in hypervisors}

    def test_tells_what_stock_tells(self):
        self.flags(compute_driver=base.STOCK)
        self.ironic.enroll(2)
        gpu, broken = self.ironic.enroll(2, resource_class='gpu')
        self.ironic.client.node.add_trait(gpu, 'CUSTOM_GPU')
        self.ironic.client.node.set_maintenance(broken, True, 'broken')
        self.fleet.start('host1')
        self.settle()
        self.boot()
        self.fleet.audit()
        stock = self.everything()
        self.assertEqual(4, len(stock))
        self.mark_providers()

        self.fleet.stop('host1')
        self.flags(compute_driver=base.OURS)
        self.fleet.start('host1')
        self.settle()

        self.assertEqual(stock, self.everything())
        self.assertProvidersKept(stock)
