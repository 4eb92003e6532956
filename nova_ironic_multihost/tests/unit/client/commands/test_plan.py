# SPDX-License-Identifier: Apache-2.0

import collections
import dataclasses

from oslotest import base

from nova_ironic_multihost.client.commands import base as commands
from nova_ironic_multihost.client.commands import plan
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests.unit.client import test_ownership_report
from nova_ironic_multihost.tests import views


class PlanTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = test_ownership_report.at_home()

    def planned(self, seen, settings=test_ownership_report.SETTINGS,
                **change):
        return plan.plan(ownership_report.OwnershipReport(seen, settings),
                         **change)

    def moves(self, *args, **change):
        return self.planned(*args, **change)[0]

    def refused(self, seen=None, **change):
        return str(self.assertRaises(
            commands.Refused, self.planned, seen or self.seen, **change))

    def test_no_change_moves_nothing(self):
        self.assertEqual(([], 0), self.planned(self.seen))

    def test_what_the_ring_of_the_driver_says_of_one_that_comes(self):
        hosts = ring.Preferences(
            dict.fromkeys((*views.HOSTS, host_key('new'))), 64)
        expected = collections.Counter(
            (self.seen.owner_of[node.uuid], hosts.host_for(node.uuid))
            for node in self.seen.nodes[1:]
            if hosts.host_for(node.uuid) != self.seen.owner_of[node.uuid])
        moves = self.moves(self.seen, add=('New',))
        self.assertEqual(
            expected, {(move.source, move.target): move.free
                       for move in moves})
        self.assertTrue(expected)
        self.assertEqual({'new'}, {move.target for move in moves})

    def test_all_of_one_that_goes_moves(self):
        moves = self.moves(self.seen, remove=('COMPUTE-1',))
        self.assertEqual({'compute-1'}, {move.source for move in moves})
        self.assertNotIn('compute-1', {move.target for move in moves})
        self.assertEqual(
            (len(self.seen.free_of('compute-1')), 1),
            (sum(move.free for move in moves),
             sum(move.held for move in moves)))

    def test_server_stays_in_its_zone(self):
        seen = dataclasses.replace(self.seen, zones={
            host_key('compute-1'): 'a'})
        held = [move for move in self.moves(seen, remove=('compute-1',))
                if move.held]
        self.assertEqual([('compute-1', '')],
                         [(move.source, move.target) for move in held])
        crossing = ownership_report.SharedSettings(points=64, cross_zones=True)
        held = [move for move in self.moves(
            seen, settings=crossing, remove=('compute-1',))
            if move.held]
        self.assertIn(held[0].target, ('compute-2', 'compute-3'))

    def test_leaked_machine_goes_where_free_nodes_go(self):
        seen = dataclasses.replace(
            views.changed(self.seen, 'instances', 0, deleted=True),
            zones={host_key('compute-1'): 'a'})
        [held] = [move for move in self.moves(
            seen, remove=('compute-1',)) if move.held]
        self.assertIn(held.target, ('compute-2', 'compute-3'))

    def test_leaked_machine_of_one_that_is_only_down(self):
        seen = test_ownership_report.service(
            views.changed(self.seen, 'instances', 0, deleted=True),
            'compute-1', up=False)
        moves, anyway = self.planned(seen)
        self.assertEqual(1, sum(move.held for move in moves))
        self.assertEqual(anyway, sum(
            move.free + move.held for move in moves))

    def test_server_of_one_that_nova_does_not_have(self):
        seen = dataclasses.replace(self.seen, services=tuple(
            service for service in self.seen.services
            if service.host != 'compute-1'))
        self.assertEqual(1, sum(
            move.held for move in self.moves(seen)))

    def test_one_that_was_fenced_keeps_its_server_when_it_comes_back(self):
        seen = test_ownership_report.service(
            self.seen, 'compute-1', up=False, forced_down=True)
        self.assertEqual([], self.moves(seen, add=('compute-1',)))
        leaked = views.changed(seen, 'instances', 0, deleted=True)
        self.assertEqual([], self.moves(leaked, add=('compute-1',)))

    def test_free_nodes_of_a_zone_without_a_member_go_on_to_another(self):
        seen = dataclasses.replace(test_ownership_report.service(
            self.seen, 'compute-1', up=False), zones={
                host_key('compute-1'): 'a', host_key('compute-2'): 'b'})
        rests = {'compute-2': 0, 'compute-3': 0}
        everybody = ring.Preferences(
            {host_key('compute-2'): 'b', host_key('compute-3'): None}, 64)
        for node in seen.free_of('compute-1'):
            rests[everybody.host_for(node)] += 1
        self.assertEqual(
            {host: number for host, number in rests.items() if number},
            {move.target: move.free for move in self.moves(seen)
             if move.source == 'compute-1'})

    def test_free_nodes_stay_in_their_zone(self):
        zones = {host_key(host): 'a' for host in views.HOSTS}
        seen = dataclasses.replace(self.seen, zones=zones)
        self.assertEqual([], self.moves(
            seen, add=('new',), zone='b'))
        self.assertTrue(self.moves(seen, add=('new',), zone='a'))

    def test_zone_of_the_aggregates(self):
        zones = {host_key(host): zone for host, zone in (
            ('compute-1', 'a'), ('compute-2', 'a'), ('compute-3', 'a'),
            ('new', 'b'))}
        seen = dataclasses.replace(self.seen, zones=zones)
        self.assertEqual([], self.moves(seen, add=('new',)))

    def test_the_last_one_of_all(self):
        moves = self.moves(self.seen, remove=views.HOSTS)
        self.assertEqual({''}, {move.target for move in moves})
        self.assertEqual(6, sum(move.free + move.held for move in moves))

    def test_what_moves_anyway(self):
        seen = test_ownership_report.service(
            self.seen, 'compute-1', up=False, forced_down=True)
        moves, anyway = self.planned(seen)
        self.assertEqual(
            (len(seen.owned_by('compute-1')),) * 2,
            (anyway, sum(move.free + move.held for move in moves)))

    def test_server_of_one_that_is_only_down_stays(self):
        seen = test_ownership_report.service(self.seen, 'compute-1', up=False)
        self.assertEqual(0, sum(
            move.held for move in self.moves(seen)))

    def test_node_of_nobody(self):
        seen = views.without(self.seen, 'records', 1)
        [move] = self.moves(seen)
        self.assertEqual(('', 1), (move.source, move.free))

    def test_server_counts_where_it_is(self):
        seen = views.changed(self.seen, 'records', 0, host='compute-2')
        [held] = [move for move in self.moves(
            seen, remove=('compute-1',)) if move.held]
        self.assertEqual('compute-1', held.source)

    def partitioned(self):
        seen = self.seen
        for index, node in enumerate(seen.nodes):
            seen = views.changed(
                seen, 'nodes', index,
                conductor_group=seen.owner_of[node.uuid])
        return seen

    def test_partitions(self):
        seen = self.partitioned()
        told = self.refused(seen, add=('new',))
        self.assertIn('--partition', told)
        self.assertIn('"group compute-1"', told)
        self.assertIn('"group compute-1"', self.refused(
            seen, add=('new',), partition='nix'))
        self.assertLessEqual(
            {(move.source, move.target) for move in self.moves(
                seen, add=('new',), partition='group compute-1')},
            {('compute-1', 'new')})
        self.assertEqual({('compute-1', '')}, {
            (move.source, move.target)
            for move in self.moves(seen, remove=('compute-1',))})

    def test_node_that_is_in_the_group_of_another_by_now(self):
        seen = views.changed(
            self.partitioned(), 'nodes', 0, conductor_group='compute-2')
        self.assertEqual(
            {('compute-1', 'compute-2', 1), ('compute-1', '', 0)},
            {(move.source, move.target, move.held)
             for move in self.moves(seen, remove=('compute-1',))})

    def test_changes_that_make_no_sense(self):
        self.assertIn('no compute service nix', self.refused(
            remove=('nix',)))

    def test_one_that_shares_the_nodes_already(self):
        self.assertEqual([], self.moves(self.seen, add=('compute-1',)))

    def test_one_that_is_enabled_again(self):
        seen = test_ownership_report.service(
            self.seen, 'compute-1', disabled=True)
        self.assertEqual({'compute-1'}, {
            move.source for move in self.moves(seen)})
        self.assertEqual([], self.moves(seen, add=('compute-1',)))
