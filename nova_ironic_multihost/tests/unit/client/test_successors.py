# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests import views

NODES = [f'n-{i}' for i in range(50)]


class OpenTestCase(base.BaseTestCase):

    def test_who_is_enabled_and_up(self):
        services = tuple(
            cloud_state.Service(host, **state) for host, state in (
                ('a', {}), ('b', {'up': False}), ('c', {'disabled': True}),
                ('d', {'disabled': True, 'stop_marker': 'bye'}), ('e', {})))
        self.assertEqual(['a', 'e'], [
            s.host for s in forecast.open_for_builds(services)])


class HeirsTestCase(base.BaseTestCase):
    """Of compute-2."""

    def setUp(self):
        super().setUp()
        self.seen = views.consistent()

    def heirs(self, points=8, cross_zones=False):
        return forecast.Successors(
            self.seen,
            'Compute-2',
            ownership_report.SharedSettings(points, cross_zones),
        )

    def zones(self, *zones):
        self.seen = dataclasses.replace(self.seen, zones=tuple(
            (f'compute-{i}', zone) for i, zone in enumerate(zones, 1)
            if zone))

    def of_nodes(self, **settings):
        return {self.heirs(**settings).of_node(node) for node in NODES}

    def of_servers(self, **settings):
        return {self.heirs(**settings).of_server(node) for node in NODES}

    def test_whom_the_ring_prefers_without_it(self):
        expected = ring.Ring(('compute-1', 'compute-3'), 8)
        for node in NODES:
            self.assertEqual(expected.host_for(node),
                             self.heirs().of_node(node))
            self.assertEqual(expected.host_for(node),
                             self.heirs().of_server(node))

    def test_a_ring_of_other_size(self):
        self.assertNotEqual(
            [self.heirs().of_node(node) for node in NODES],
            [self.heirs(points=64).of_node(node) for node in NODES])

    def test_it_may_be_down_already(self):
        before = [self.heirs().of_node(node) for node in NODES]
        self.seen = views.changed(self.seen, 'services', 1, up=False,
                                  forced_down=True, disabled=True)
        self.assertEqual(before,
                         [self.heirs().of_node(node) for node in NODES])

    def test_nobody(self):
        for index in 0, 2:
            self.seen = views.changed(self.seen, 'services', index, up=False)
        self.assertEqual(({None}, {None}),
                         (self.of_nodes(), self.of_servers()))

    def test_zones(self):
        self.zones('here', 'here', 'there')
        self.assertEqual(({'compute-1'}, {'compute-1'}),
                         (self.of_nodes(), self.of_servers()))
        both = {'compute-1', 'compute-3'}
        self.assertEqual(
            (both, both), (self.of_nodes(cross_zones=True),
                           self.of_servers(cross_zones=True)))

    def test_servers_stay_in_their_zone_and_free_nodes_may_leave_any(self):
        self.zones(None, 'here', 'there')
        self.assertEqual(({'compute-1'}, {None}),
                         (self.of_nodes(), self.of_servers()))

    def test_shards(self):
        for index, shard in enumerate(('a', 'b', 'b') * 2):
            self.seen = views.changed(self.seen, 'nodes', index, shard=shard)
        self.assertEqual('compute-3', self.heirs().of_node('node-4'))
        self.assertTrue(self.heirs().served('node-4'))
        self.seen = views.changed(self.seen, 'nodes', 4, shard='c')
        self.assertFalse(self.heirs().served('node-4'))
        self.assertIsNone(self.heirs().of_node('node-4'))
        self.assertIsNone(self.heirs().of_server('node-4'))

    def test_one_without_nodes(self):
        for index in 1, 4:
            self.seen = views.changed(self.seen, 'records', index,
                                      host='compute-1')
        self.assertEqual({'compute-1', 'compute-3'}, self.of_nodes())

    def test_one_whose_records_have_moved_and_servers_have_not(self):
        for index, shard in enumerate(('a', 'b', 'b') * 2):
            self.seen = views.changed(self.seen, 'nodes', index, shard=shard)
        for index in 1, 4:
            self.seen = views.changed(self.seen, 'records', index,
                                      host='compute-3')
        self.assertEqual('compute-3', self.heirs().of_server('node-1'))
        self.assertEqual('compute-3', self.heirs().of_node('node-1'))
