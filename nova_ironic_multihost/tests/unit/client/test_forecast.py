# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests import views

SETTINGS = ownership_report.SharedSettings(1024)

FENCED = {'up': False, 'forced_down': True, 'disabled': True,
          'reason': fencing.REASON}

NODES = [f'n-{i}' for i in range(50)]


def report(seen, points=8, cross_zones=False):
    """The report if compute-2 is down."""
    return ownership_report.OwnershipReport(
        seen.with_fenced({'compute-2'}),
        ownership_report.SharedSettings(points, cross_zones))


def takes(targets):
    """Host -> the number that it takes."""
    return {host: len(names) for host, names in targets.items()
            if isinstance(host, str)}


def stays(targets):
    """Obstacle -> names."""
    return {obstacle: names for obstacle, names in targets.items()
            if isinstance(obstacle, forecast.Obstacle)}


class HeirsTestCase(base.BaseTestCase):
    """Of compute-2."""

    def setUp(self):
        super().setUp()
        self.seen = views.consistent()
        self.seen = dataclasses.replace(self.seen, nodes=self.seen.nodes + (
            *map(cloud_state.Node, NODES),))

    def taker(self, node, used=False, points=8, cross_zones=False):
        return report(self.seen, points, cross_zones).taker(
            node, 'compute-2', used)

    def zones(self, *zones):
        self.seen = dataclasses.replace(self.seen, zones={
            f'compute-{i}': zone for i, zone in enumerate(zones, 1) if zone})

    def of_nodes(self, **settings):
        return {self.taker(node, **settings) for node in NODES}

    def of_servers(self, **settings):
        return self.of_nodes(used=True, **settings)

    def test_whom_the_ring_prefers_without_it(self):
        expected = ring.Ring(('compute-1', 'compute-3'), 8)
        for node in NODES:
            self.assertEqual(expected.host_for(node),
                             self.taker(node))
            self.assertEqual(expected.host_for(node),
                             self.taker(node, used=True))

    def test_a_ring_of_other_size(self):
        self.assertNotEqual(
            [self.taker(node) for node in NODES],
            [self.taker(node, points=64) for node in NODES])

    def test_it_may_be_down_already(self):
        before = [self.taker(node) for node in NODES]
        self.seen = views.changed(self.seen, 'services', 1, up=False,
                                  forced_down=True, disabled=True)
        self.assertEqual(before,
                         [self.taker(node) for node in NODES])

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
        self.assertEqual('compute-3', self.taker('node-4'))
        self.seen = views.changed(self.seen, 'nodes', 4, shard='c')
        self.assertIsNone(self.taker('node-4'))
        self.assertIsNone(self.taker('node-4', used=True))

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
        self.assertEqual('compute-3', self.taker('node-1', used=True))
        self.assertEqual('compute-3', self.taker('node-1'))


class FencedTestCase(base.BaseTestCase):
    """Of compute-2, which has node-1 with server-1, and node-4."""

    def setUp(self):
        super().setUp()
        self.seen = views.changed(
            views.consistent(), 'nodes', 1, instance_uuid='server-1',
            provision_state='active')
        self.add('server-1', 'node-1')
        self.seen = views.changed(self.seen, 'services', 1, **FENCED)

    def taker(self, node, used=False):
        return report(self.seen, 1024).taker(node, 'compute-2', used)

    def add(self, uuid, node, **more):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                'compute-2', node=node, uuid=uuid, name=f'{uuid}-name',
                **more))

    def change(self, field, index, **changes):
        self.seen = views.changed(self.seen, field, index, **changes)

    def zones(self, *zones):
        self.seen = dataclasses.replace(self.seen, zones={
            f'compute-{i}': zone for i, zone in enumerate(zones, 1) if zone})

    def plan(self, *migrating, settings=SETTINGS):
        return forecast.of_host(self.seen, 'Compute-2', settings,
                                frozenset(migrating))

    def taken(self):
        return takes(self.plan().servers), takes(self.plan().nodes)

    def told(self, *migrating):
        found = self.plan(*migrating)
        return [*found.sentences(), *found.obstacles()]

    def stuck(self, found, obstacle, *names):
        self.assertEqual({obstacle: names}, found.servers)

    def test_all_is_taken_by_whom_the_ring_prefers(self):
        found = self.plan()
        self.assertEqual({self.taker('node-1', used=True): 1},
                         takes(found.servers))
        self.assertEqual({self.taker('node-4'): 1},
                         takes(found.nodes))
        self.assertFalse(found.stuck)
        self.assertTrue(found.moves)
        self.assertFalse(found.empty)
        self.assertEqual('1 server and 1 free node', found.all)

    def test_it_is_the_same_before_it_is_fenced(self):
        fenced = self.plan()
        self.change('services', 1, up=True, forced_down=False,
                    disabled=False)
        self.assertEqual(fenced, self.plan())

    def test_who_takes_what_is_told(self):
        self.change('services', 2, up=False)
        self.change('services', 0, host='Compute-1')
        self.assertEqual(['Compute-1 takes 1 server and 1 free node'],
                         self.told())

    def test_nothing_is_left(self):
        self.change('records', 1, host='compute-1')
        self.change('records', 4, host='compute-1')
        self.change('instances', 1, host='compute-1')
        found = self.plan()
        self.assertTrue(found.empty)
        self.assertFalse(found.moves)
        self.assertEqual([], self.told())
        self.assertEqual('0 servers and 0 free nodes', found.all)

    def test_nodes_alone_are_something(self):
        self.change('instances', 1, deleted=True)
        self.change('nodes', 1, instance_uuid=None)
        self.assertFalse(self.plan().empty)
        self.assertTrue(self.plan().moves)

    def test_a_machine_whose_server_is_deleted_goes_like_a_free_node(self):
        self.change('instances', 1, deleted=True)
        self.assertEqual('0 servers and 2 free nodes', self.plan().all)

    def test_a_server_that_has_moved_draws_its_record_after_it(self):
        self.change('records', 4, host='compute-1')
        for host in 'compute-1', 'compute-3':
            self.change('instances', 1, host=host)
            self.assertEqual(({}, {host: 1}),
                             self.taken())

    def test_a_server_whose_node_has_moved_goes_there(self):
        for host in 'compute-1', 'compute-3':
            self.change('records', 1, host=host)
            self.assertEqual({host: 1}, takes(self.plan().servers))

    def test_the_node_of_a_server_went_to_another_zone(self):
        self.zones('here', 'there', 'there')
        self.change('records', 1, host='compute-1')
        # The record follows it.
        self.assertEqual({'compute-3': 1}, takes(self.plan().servers))
        anywhere = ownership_report.SharedSettings(1024, cross_zones=True)
        self.assertEqual({'compute-1': 1},
                         takes(self.plan(settings=anywhere).servers))
        self.zones('here', 'here', None)
        self.assertEqual({'compute-1': 1}, takes(self.plan().servers))

    def test_the_node_of_a_server_is_with_one_that_takes_nothing(self):
        self.change('records', 1, host='compute-3')
        self.change('services', 2, disabled=True)
        self.assertEqual({'compute-1': 1}, takes(self.plan().servers))

    def shards(self, *shards):
        for index, shard in enumerate(shards * 2):
            self.change('nodes', index, shard=shard)

    def test_the_node_of_a_server_is_in_another_shard_by_now(self):
        self.shards('a', 'b', 'c')
        self.change('nodes', 1, shard='c')
        found = self.plan()
        self.assertEqual({'compute-3': 1}, takes(found.servers))
        self.assertEqual({forecast.Obstacle.NO_TARGET: ('node-4',)},
                         stays(found.nodes))
        # What is still there goes to nobody all the same.
        self.change('nodes', 1, shard='b')
        self.change('nodes', 4, shard='c')
        found = self.plan()
        self.stuck(found, forecast.Obstacle.NO_TARGET, 'server-1-name')
        self.assertEqual({'compute-3': 1}, takes(found.nodes))
        self.assertIn('give their nodes in Ironic a group and shard that one '
                      'serves', self.told()[-1])

    def test_nobody_serves_its_shard(self):
        self.shards('a', 'b', 'b')
        for state in {'disabled': True}, {'up': False}:
            self.change('services', 2, **state)
            self.stuck(self.plan(), forecast.Obstacle.NO_TARGET,
                       'server-1-name')

    def test_the_node_of_a_server_is_with_another_that_died(self):
        self.change('records', 1, host='compute-3')
        self.change('services', 2, up=False)
        self.assertEqual({'compute-1': 1}, takes(self.plan().servers))

    def test_servers_stay_in_their_zone(self):
        self.zones('here', 'there', 'there')
        self.assertEqual(({'compute-3': 1}, {'compute-3': 1}),
                         self.taken())

    def test_free_nodes_may_leave_their_zone_to_whom_has_none(self):
        self.zones(None, 'there', 'here')
        found = self.plan()
        self.stuck(found, forecast.Obstacle.NO_TARGET, 'server-1-name')
        self.assertEqual({'compute-1': 1}, takes(found.nodes))

    def test_what_passes_is_told_first(self):
        self.add('a', 'node-9')
        self.assertEqual(
            ['1 server (server-1-name) stays until their',
             '1 server (a-name) stays because Ironic'],
            [' '.join(one.split()[:6]) for one in self.told('server-1')[1:]])

    def test_nobody_is_left_in_its_zone(self):
        self.zones('here', 'there', 'here')
        found = self.plan()
        self.stuck(found, forecast.Obstacle.NO_TARGET, 'server-1-name')
        self.assertEqual({forecast.Obstacle.NO_TARGET: ('node-4',)},
                         stays(found.nodes))
        self.assertTrue(found.stuck)
        self.assertFalse(found.moves)
        [server, node] = self.told()
        self.assertIn('1 server (server-1-name) stays because no other',
                      server)
        self.assertIn('1 free node (node-4) stays because', node)

    def test_nobody_is_left(self):
        self.change('services', 0, disabled=True)
        self.change('services', 2, up=False)
        self.stuck(self.plan(), forecast.Obstacle.NO_TARGET, 'server-1-name')

    def test_a_migration_is_in_progress(self):
        found = self.plan('server-1')
        self.stuck(found, forecast.Obstacle.MIGRATING, 'server-1-name')
        self.assertTrue(found.moves)
        self.change('records', 4, host='compute-1')
        self.assertTrue(self.plan('server-1').moves)
        self.assertIn('until their migration is over',
                      self.told('server-1')[-1])

    def test_no_machine_is_held_for_it(self):
        self.add('server-2', 'node-9')
        self.change('nodes', 1, instance_uuid=None)
        self.stuck(self.plan(), forecast.Obstacle.NO_MACHINE,
                   'server-1-name', 'server-2-name')

    def test_a_build_or_delete_without_a_machine_goes_with_its_node(self):
        self.change('nodes', 1, instance_uuid=None)
        takeover_target = self.taker('node-1')
        for state in ({'vm_state': 'building', 'task_state': 'spawning'},
                      {'vm_state': 'active', 'task_state': 'deleting'}):
            self.change('instances', 1, **state)
            self.assertEqual({takeover_target: 1}, takes(self.plan().servers))
        self.change('instances', 1, node='node-9')
        self.stuck(self.plan(), forecast.Obstacle.HIDDEN, 'server-1-name')
        self.change('instances', 1, node=None)
        self.stuck(self.plan(), forecast.Obstacle.NO_MACHINE, 'server-1-name')

    def test_another_machine_is_held_for_it(self):
        self.change('instances', 1, node='node-4')
        self.stuck(self.plan(), forecast.Obstacle.NO_MACHINE,
                   'server-1-name')

    def test_a_server_without_a_name_and_node(self):
        self.change('instances', 1, name='', node=None)
        self.assertEqual({self.taker('node-1', used=True): 1},
                         takes(self.plan().servers))
        self.assertEqual(('server-1',), self.plan('server-1').servers[
            forecast.Obstacle.MIGRATING])

    def test_nodes_that_ironic_does_not_show(self):
        self.seen = views.without(self.seen, 'nodes', 4)
        self.assertEqual({forecast.Obstacle.HIDDEN: ('node-4',)},
                         self.plan().nodes)

    def test_many_names_are_not_listed(self):
        for i in range(7):
            self.add(f'x-{i}', f'node-x{i}')
        [told] = self.plan().obstacles()
        self.assertIn('7 servers (x-0-name, x-1-name, x-2-name, x-3-name, '
                      'x-4-name and 2 more) stay because', told)


class DrainedTestCase(base.BaseTestCase):
    """Of compute-2, which has node-1 and node-4."""

    def setUp(self):
        super().setUp()
        self.seen = views.changed(
            views.consistent(), 'services', 1, disabled=True)
        self.heirs = [report(self.seen, 1024).taker(node, 'compute-2')
                      for node in ('node-1', 'node-4')]

    def change(self, field, index, **changes):
        self.seen = views.changed(self.seen, field, index, **changes)

    def left(self):
        return forecast.of_host(self.seen, 'Compute-2', SETTINGS, drained=True)

    def assert_kept(self, free, *kept):
        found = self.left()
        self.assertEqual(({}, free), (
            found.servers, sum(map(len, found.nodes.values()))))
        self.assertEqual({kept[0]: kept[1:]} if kept else {},
                         found.kept)

    def told(self):
        found = self.left()
        return [*found.sentences(), *found.obstacles()]

    def test_free_nodes_that_others_prefer(self):
        found = self.left()
        self.assertEqual('2 free nodes', found.free)
        self.assertEqual({host: self.heirs.count(host)
                          for host in self.heirs}, takes(found.nodes))
        self.assertEqual({}, found.kept)

    def test_names_are_those_of_nova(self):
        self.change('services', 0, host='Compute-1')
        self.change('services', 2, up=False)
        self.assertEqual(['Compute-1 takes 2 free nodes'], self.told())

    def test_nodes_with_servers_stay(self):
        self.change('nodes', 1, instance_uuid='s')
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(uuid='s'))
        self.assert_kept(1, forecast.Obstacle.SERVING, 'node-1')
        self.assertEqual('1 node (node-1) stays until the server on each is '
                         'deleted', self.told()[1])

    def test_machines_that_leaked_are_not_with_servers(self):
        self.change('nodes', 1, instance_uuid='gone')
        self.change('nodes', 4, instance_uuid='unknown')
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                uuid='gone', deleted=True))
        self.assert_kept(0, forecast.Obstacle.STRAY, 'node-1', 'node-4')
        [told] = self.told()
        self.assertIn('they are held for servers that nova does not have',
                      told)

    def test_nodes_that_a_build_has_claimed_stay(self):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                uuid='s', host='compute-2', node='node-1',
                vm_state='building'))
        self.assert_kept(1, forecast.Obstacle.SERVING, 'node-1')

    def test_a_server_that_is_gone_holds_nothing(self):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                uuid='s', host='compute-2', node='node-1', deleted=True))
        self.assert_kept(2)

    def test_nobody_is_left_to_take_them(self):
        self.change('services', 0, disabled=True)
        self.change('services', 2, up=False)
        self.assert_kept(2)
        self.assertFalse(self.left().moves)
        self.assertIn('2 free nodes (node-1, node-4) stay because no other '
                      'compute service', self.told()[0])

    def test_nobody_is_left_in_their_zone(self):
        self.seen = dataclasses.replace(self.seen, zones={
            'compute-1': 'here', 'compute-2': 'there', 'compute-3': 'here'})
        self.assertEqual((True, {}), (self.left().stuck,
                                   takes(self.left().nodes)))

    def test_nodes_that_ironic_does_not_show(self):
        self.seen = views.without(self.seen, 'nodes', 1)
        self.assert_kept(1, forecast.Obstacle.HIDDEN, 'node-1')
        self.assertIn('Ironic does not show', self.told()[1])

    def test_nothing_is_left(self):
        self.change('records', 1, host='compute-1')
        self.change('records', 4, host='compute-3')
        self.assertTrue(self.left().empty)
        self.assertEqual([], self.told())
