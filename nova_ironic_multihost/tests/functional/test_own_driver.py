# SPDX-License-Identifier: Apache-2.0

"""Operators have drivers of their own, and ours goes in front of them."""

import collections

from nova.virt.ironic import driver as ironic_driver

from nova_ironic_multihost import exception
from nova_ironic_multihost.tests.functional import dead


class OwnDriver(ironic_driver.IronicDriver):
    """It does something of its own, and has nova's do the rest.

    :ivar asked: how often for what: (method, uuid of the node or instance).
    """

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self.asked = collections.Counter()

    def spawn(self, context, instance, *args, **kwargs):
        self.asked['spawn', instance.uuid] += 1
        return super().spawn(context, instance, *args, **kwargs)

    def get_available_resource(self, nodename):
        self.asked['get_available_resource', nodename] += 1
        resource = super().get_available_resource(nodename)
        resource['hypervisor_version'] = 4711
        return resource

    def power_off(self, instance, timeout=0, retry_interval=0):
        self.asked['power_off', instance.uuid] += 1
        super().power_off(instance, timeout, retry_interval)


class OwnDriverTestCase(dead.DeadComputeTestCase):

    def configure(self):
        self.flags(base_driver=f'{OwnDriver.__module__}.OwnDriver',
                   group='ironic_multihost')

    def asked(self, host, method, uuid):
        return self.fleet.manager(host).driver.asked[method, uuid]

    def versions(self):
        listed = self.admin_api.api_get(
            '/os-hypervisors/detail').body['hypervisors']
        return {hypervisor['hypervisor_version'] for hypervisor in listed}

    def test_each_has_its_turn(self):
        self.assertEqual(1, self.asked('host1', 'spawn', self.server['id']))
        self.assertEqual({4711}, self.versions())
        for node, host in self.owners().items():
            self.assertTrue(
                self.asked(host, 'get_available_resource', node))
        self.assertEqual(set(self.nodes), set(self.owners()))

    def test_take_over(self):
        self.die()
        self.audit()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual('host2', self.owners()[self.node])
        self.admin_api.post_server_action(
            self.server['id'], {'os-stop': None})
        self.wait_for_status(self.server, 'SHUTOFF')
        self.assertEqual(1, self.asked(
            'host2', 'power_off', self.server['id']))
        self.delete(self.server)
        self.assertIsNone(self.machine().instance_uuid)

    def test_the_gate_is_first(self):
        driver = self.fleet.manager('host1').driver
        instance = self.instance()
        moved = self.instance()
        moved.host = 'host2'
        moved.save()
        self.assertRaises(
            exception.InstanceElsewhere, driver.power_off, instance)
        self.assertEqual(0, self.asked(
            'host1', 'power_off', instance.uuid))
        self.assertEqual('power on', self.machine().power_state)
