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


from unittest import mock

from oslo_config import fixture as config_fixture
from oslotest import base

from nova import exception as nova_exception
from nova import objects
from nova_ironic_multihost import driver as multihost
from nova_ironic_multihost import exception
from nova_ironic_multihost import ring as hash_ring

NODES = [f'1be26c0b-03f2-4d2e-ae87-c02d7f33c1{i:02}' for i in range(20)]


class FakeNode:
    """The part of an openstacksdk node that an audit reads."""

    def __init__(self, node_id, instance_id=None):
        self.id = node_id
        self.instance_id = instance_id


class DriverTestCase(base.BaseTestCase):
    """The driver of host compute-1, with nova and Ironic answering by value.

    ``services`` is host -> up, ``ironic`` node -> instance, ``instances`` the
    uuids of the instances that nova has on compute-1.
    """

    def setUp(self):
        super().setUp()
        self.services = {}
        self.ironic = dict.fromkeys(NODES)
        self.instances = []
        self.config = self.useFixture(
            config_fixture.Config(multihost.CONF))
        multihost.CONF([], project='nova', default_config_files=[])
        self.config.config(host='compute-1')
        self.patch(objects.ServiceList, 'get_all_computes_by_hv_type',
                   lambda context, hv_type: [
                       mock.Mock(host=host, up=up)
                       for host, up in self.services.items()])
        self.patch(objects.InstanceList, 'get_uuids_by_host',
                   lambda context, host: list(self.instances))
        self.driver = multihost.IronicMultiHostDriver(None)
        self.driver.servicegroup_api = mock.Mock(
            service_is_up=lambda service: service.up)
        self.connection = mock.Mock()
        self.connection.nodes.side_effect = lambda **kwargs: (
            FakeNode(*item) for item in self.ironic.items())
        self.driver._ironic_connection = self.connection

    def patch(self, target, name, replacement):
        patcher = mock.patch.object(target, name, replacement)
        patcher.start()
        self.addCleanup(patcher.stop)

    def preferred(self, host, *members):
        ring = hash_ring.Ring(members, 1024)
        return {node for node in NODES if ring.prefers(host, node)}


class GetAvailableNodesTestCase(DriverTestCase):

    def test_alone_it_manages_every_node(self):
        self.assertEqual(set(NODES), set(self.driver.get_available_nodes()))

    def test_two_computes_split_the_nodes(self):
        self.services = {'compute-1': True, 'compute-2': True}
        mine = set(self.driver.get_available_nodes())
        self.config.config(host='compute-2')
        theirs = set(self.driver.get_available_nodes())
        self.assertEqual(self.preferred('compute-1', 'compute-1',
                                        'compute-2'), mine)
        self.assertEqual(set(NODES) - mine, theirs)

    def test_a_compute_that_dies_or_returns_is_seen_at_the_next_audit(self):
        self.services = {'compute-1': True, 'compute-2': True}
        with_peer = set(self.driver.get_available_nodes())
        self.services['compute-2'] = False
        self.assertEqual(set(NODES), set(self.driver.get_available_nodes()))
        self.services['compute-2'] = True
        self.assertEqual(with_peer, set(self.driver.get_available_nodes()))

    def test_rules_for_nodes_with_instances(self):
        self.services = {'compute-1': True, 'compute-2': True}
        preferred = self.preferred('compute-1', 'compute-1', 'compute-2')
        theirs, = sorted(preferred)[:1]
        mine, = sorted(set(NODES) - preferred)[:1]
        self.ironic[theirs] = 'instance-of-compute-2'
        self.ironic[mine] = 'instance-of-compute-1'
        self.instances = ['instance-of-compute-1']
        self.assertEqual((preferred - {theirs}) | {mine},
                         set(self.driver.get_available_nodes()))

    def test_host_name_in_upper_case_is_the_same_host(self):
        self.config.config(host='Compute-1')
        self.services = {'COMPUTE-1': True, 'compute-2': True}
        self.assertEqual(
            self.preferred('compute-1', 'compute-1', 'compute-2'),
            set(self.driver.get_available_nodes()))

    def test_partitions_option_shapes_the_ring(self):
        self.config.config(group='ironic_multihost', ring_partitions=7)
        self.driver.get_available_nodes()
        self.assertEqual(7, self.driver._ring.partitions)

    def test_the_cache_of_novas_driver_holds_what_is_managed(self):
        self.services = {'compute-2': True}
        self.ironic[NODES[0]] = 'an-instance'
        self.instances = ['an-instance']
        available = self.driver.get_available_nodes()
        self.assertEqual(set(available), set(self.driver.node_cache))
        self.assertEqual(['an-instance'], self.driver.list_instance_uuids())

    def test_error_in_a_later_page_leaves_what_was_known(self):
        known = set(self.driver.get_available_nodes())

        def broken(**kwargs):
            yield FakeNode(NODES[0])
            raise OSError('connection reset')

        self.connection.nodes.side_effect = broken
        self.assertRaises(nova_exception.VirtDriverNotReady,
                          self.driver.get_available_nodes)
        self.assertEqual(known, set(self.driver.node_cache))

    def test_instances_are_read_after_the_nodes(self):
        # A build that is claimed while Ironic lists is otherwise taken for
        # an instance of somebody else.
        order = []
        self.connection.nodes.side_effect = (
            lambda **kwargs: order.append('nodes') or iter([]))
        self.patch(objects.InstanceList, 'get_uuids_by_host',
                   lambda context, host: order.append('instances') or [])
        self.driver.get_available_nodes()
        self.assertEqual(['nodes', 'instances'], order)

    def test_what_it_manages_is_logged_on_change_only_and_as_counts(self):
        with self.assertLogs(multihost.__name__, 'INFO') as logs:
            self.driver.get_available_nodes()
            self.driver.get_available_nodes()
        line, = logs.output
        self.assertIn('Managing 20 of 20 nodes: 20 free and mapped to this '
                      'compute service.', line)

    def test_only_the_partition_is_listed(self):
        self.config.config(group='ironic', shard='rack1')
        self.patch(self.driver, '_can_send_version', mock.Mock())
        self.driver.get_available_nodes()
        self.assertEqual('rack1',
                         self.connection.nodes.call_args.kwargs['shard'])


class InitHostTestCase(DriverTestCase):

    def test_starts_without_ironic(self):
        self.connection.nodes.side_effect = OSError('connection refused')
        self.driver.init_host('compute-1')
        self.assertEqual({'compute-1'}, self.driver._ring.members)

    def test_contradicting_settings_stop_the_service_with_the_remedy(self):
        self.config.config(update_resources_interval=-1)
        with self.assertLogs(multihost.__name__, 'ERROR') as logs:
            error = self.assertRaises(exception.ConfigurationContradiction,
                                      self.driver.init_host, 'compute-1')
        self.assertIn('update_resources_interval', str(error))
        self.assertIn('update_resources_interval', logs.output[0])
