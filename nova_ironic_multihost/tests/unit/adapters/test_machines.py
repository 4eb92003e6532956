# SPDX-License-Identifier: Apache-2.0

"""What Ironic makes of the machines of instances."""

import datetime
from unittest import mock

from openstack import exceptions
from oslotest import base as test_base

from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.tests.unit.adapters import base


class MachinesTestCase(test_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.driver = mock.Mock(
            spec=['_get_node', 'ironic_connection'])
        self.machines = ironic.IronicMachines(self.driver)
        self.instance = mock.Mock(uuid='i1', node='n1')

    def test_what_ironic_has_on_the_node(self):
        self.driver._get_node.return_value = mock.Mock(
            provision_state='deploying', instance_id='i1')
        self.assertEqual(
            'deploying', self.machines.provision_state(self.instance))
        self.driver._get_node.assert_called_with('n1')
        self.instance.uuid = 'i2'
        self.assertIsNone(self.machines.provision_state(self.instance))

    def test_a_node_that_is_gone_has_no_state(self):
        self.driver._get_node.side_effect = names.NodeNotFound
        self.assertIsNone(self.machines.provision_state(self.instance))

    def test_an_instance_without_a_node_has_none(self):
        self.instance.node = None
        self.assertIsNone(self.machines.provision_state(self.instance))
        self.driver._get_node.assert_not_called()

    def test_the_state_that_a_machine_speaks_for(self):
        for provision_state, power_state, expected in (
                ('active', 'power on', 'active'),
                ('active', 'power off', 'stopped'),
                ('active', None, None), ('active', 'error', None),
                ('deploy failed', 'power off', None),
                ('rescue', 'power on', None)):
            self.driver._get_node.return_value = mock.Mock(
                provision_state=provision_state, power_state=power_state,
                instance_id='i1')
            self.assertEqual(expected, self.machines.vm_state(self.instance))
        self.instance.uuid = 'i2'
        self.assertIsNone(self.machines.vm_state(self.instance))
        self.assertIn('power_state', names.node_fields())

    def test_whether_it_was_deployed_since_a_moment(self):
        get = self.driver.ironic_connection.get
        noon = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC)
        for changed, error, moment, expected in (
                ('2026-11-22T12:00:05+00:00', None, noon, True),
                ('2026-11-22T12:00:05+00:00', 'No worker', noon, False),
                ('2026-11-22T11:59:55+00:00', None, noon, False),
                (None, None, noon, False),
                ('2026-11-22T12:00:05+00:00', None, None, False)):
            get.return_value = base.response(
                200, {'provision_updated_at': changed, 'last_error': error})
            self.assertIs(expected, self.machines.deployed_since(
                self.instance, moment))
        self.assertEqual('/nodes/n1', get.call_args.args[0])

    def test_ironic_that_does_not_say_when_it_deployed(self):
        self.driver.ironic_connection.get.return_value = base.response(
            503, {})
        self.assertRaises(exceptions.HttpException,
                          self.machines.deployed_since, self.instance,
                          datetime.datetime.now(datetime.UTC))
