# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import forecast
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests import views

SETTINGS = ownership_report.SharedSettings(1024)

STOP_MARKER = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))

FENCED = {'up': False, 'forced_down': True, 'disabled': True,
          'reason': fencing.REASON}


class RefusalTestCase(base.BaseTestCase):

    def refusal(self, *states):
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate(states))
        return fencing.refusal(known, known[0])

    def test_one_that_is_down(self):
        self.assertIsNone(self.refusal({'up': False}, {}))

    def test_one_that_is_up(self):
        told = self.refusal({}, {})
        self.assertIn('compute-0 is up', told)

    def test_all_are_down(self):
        told = self.refusal({'up': False}, {'up': False})
        self.assertIn('RabbitMQ', told)

    def test_others_that_are_disabled_can_be_enabled(self):
        self.assertIsNone(self.refusal({'up': False}, {'disabled': True}))

    def test_one_that_is_fenced_already(self):
        self.assertIsNone(self.refusal(FENCED, {}))
        self.assertIsNone(self.refusal(FENCED, {'up': False}))


class NotAloneTestCase(base.BaseTestCase):

    SILENT = {'up': False, 'seen': 940.0}

    def not_alone(self, *others, window=100.0):
        """Return why the first one of several is not silent alone."""
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate((self.SILENT, *others)))
        return fencing.not_alone(known, known[0], 1000.0, window)

    def test_alone(self):
        self.assertIsNone(self.not_alone({}, {}, {}))
        self.assertIsNone(self.not_alone({}, {}, FENCED | {'seen': 900.0}))

    def test_two_compute_services(self):
        self.assertIsNone(self.not_alone({}))
        self.assertIn('0 of 1 others are up', self.not_alone(
            {'up': False, 'disabled': True}))
        self.assertIn('0 of 0 others', self.not_alone())

    def test_a_second_one_is_silent(self):
        told = self.not_alone({}, {}, {}, self.SILENT)
        self.assertIn('it misses compute-4. Look', told)
        self.assertIn('RabbitMQ', told)

    def test_not_more_than_half_of_the_others_are_up(self):
        # Fenced one after the other, or drained.
        for state in FENCED, {'up': False, 'disabled': True}:
            self.assertIsNone(self.not_alone({}, {}, state | {'seen': 0.0}))
            self.assertIn('2 of 4 others are up', self.not_alone(
                {}, {}, *[state | {'seen': 0.0}] * 2))

    def test_the_cell_of_another_is_away(self):
        away = {'up': False, 'reached': False}
        self.assertIn('the cell of compute-4. Mend',
                      self.not_alone({}, {}, {}, away))
        # The rest of its fields is not known, also beside another spelling.
        west = cloud_state.Service('west', **self.SILENT)
        self.assertIn('the cell of East. Mend', fencing.not_alone(
            (cloud_state.Service('East', **away), cloud_state.Service('east'),
             west), west, 1000.0, 0))

    def test_it_never_sent_a_heartbeat(self):
        known = (cloud_state.Service('new', up=False),
                 cloud_state.Service('old', seen=990.0))
        self.assertIn('never had a heartbeat of new', fencing.not_alone(
            known, known[0], 1000.0, 0))

    def test_one_was_fenced_lately(self):
        for seen in 901.0, 1000.0, 1030.0, None:
            told = self.not_alone({}, {}, FENCED | {'seen': seen})
            self.assertIn('compute-3 was fenced within 100 s', told)
        # Also by a tool that does not disable.
        self.assertIsNotNone(self.not_alone(
            {}, {}, {'up': False, 'forced_down': True, 'seen': 990.0}))
        self.assertIsNone(self.not_alone(
            {}, {}, FENCED | {'seen': 990.0}, window=0))

    def test_a_host_that_has_left_another_spelling_behind(self):
        stale = cloud_state.Service('East', up=False, seen=1.0)
        east = cloud_state.Service('east', seen=990.0)
        west = cloud_state.Service('west', **self.SILENT)
        self.assertIsNone(
            fencing.not_alone((stale, east, west), west, 1000.0, 0))

    def test_missed(self):
        for state, missed in (
                ({'up': False}, True), ({}, False), (FENCED, False),
                ({'up': False, 'forced_down': True}, False),
                ({'up': False, 'disabled': True}, False),
                ({'up': False, 'reached': False}, False)):
            self.assertEqual(
                missed, fencing.missed(cloud_state.Service('h', **state)))


class WantedTestCase(base.BaseTestCase):

    def wanted(self, why=None, **state):
        return fencing.wanted(cloud_state.Service('h', **state), why)

    def test_one_that_is_enabled(self):
        self.assertEqual(
            {'forced_down': True, 'status': 'disabled',
             'disabled_reason': fencing.REASON}, self.wanted(up=False))

    def test_why(self):
        self.assertEqual(f'{fencing.REASON}: fan',
                         self.wanted('fan')['disabled_reason'])

    def test_one_that_is_fenced(self):
        self.assertEqual({}, self.wanted('fan', **FENCED))

    def test_one_that_somebody_has_disabled_keeps_its_reason(self):
        self.assertEqual({'forced_down': True},
                         self.wanted(disabled=True, reason='mine'))

    def test_one_that_was_told_to_end(self):
        # Its next start would enable it.
        self.assertEqual(
            fencing.REASON,
            self.wanted(
                disabled=True, stop_marker=STOP_MARKER, reason=STOP_MARKER
            )['disabled_reason'],
        )

    def test_one_that_is_forced_down_and_enabled(self):
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': fencing.REASON},
            self.wanted(up=False, forced_down=True))

    def test_no_next_start_takes_the_reason_for_a_farewell(self):
        self.assertEqual('', liveness.find_stop_marker(fencing.REASON))


class UnwantedTestCase(base.BaseTestCase):

    def unwanted(self, **state):
        return fencing.unwanted(cloud_state.Service('h', **state))

    def test_one_that_is_fenced(self):
        self.assertEqual({'forced_down': False, 'status': 'enabled'},
                         self.unwanted(**FENCED))
        self.assertEqual(
            {'forced_down': False, 'status': 'enabled'},
            self.unwanted(**FENCED | {'reason': f'{fencing.REASON}: fan'}))

    def test_one_that_was_disabled_before(self):
        for reason in 'mine', '':
            self.assertEqual(
                {'forced_down': False},
                self.unwanted(**FENCED | {'reason': reason}))

    def test_one_that_is_forced_down_and_enabled(self):
        self.assertEqual({'forced_down': False},
                         self.unwanted(up=False, forced_down=True))

    def test_one_that_was_only_enabled_again_half(self):
        self.assertEqual({'status': 'enabled'}, self.unwanted(
            disabled=True, reason=fencing.REASON))

    def test_one_that_is_not_fenced(self):
        self.assertEqual({}, self.unwanted())
        self.assertEqual({}, self.unwanted(disabled=True, reason='mine'))


class AliveTestCase(base.BaseTestCase):

    def alive(self, *seen):
        return fencing.alive([
            cloud_state.Service('h', seen=moment) for moment in seen])

    def test_silence(self):
        self.assertFalse(self.alive())
        self.assertFalse(self.alive(None, None))
        self.assertFalse(self.alive(5.0, 5.0, 5.0))

    def test_one_change_may_be_somebody_s_request(self):
        self.assertFalse(self.alive(5.0, 15.0, 15.0))
        self.assertFalse(self.alive(None, 15.0))

    def test_what_operators_say_is_no_heartbeat(self):
        looks = [cloud_state.Service('h', seen=5.0, reason='a'),
                 cloud_state.Service('h', seen=15.0, reason='b'),
                 cloud_state.Service('h', seen=25.0, disabled=True),
                 cloud_state.Service('h', seen=35.0, forced_down=True)]
        for number in range(1, 5):
            self.assertFalse(fencing.alive(looks[:number]))
        self.assertTrue(fencing.alive(looks + [
            cloud_state.Service('h', seen=moment, forced_down=True)
            for moment in (45.0, 55.0)]))

    def test_heartbeats(self):
        self.assertTrue(self.alive(5.0, 15.0, 15.0, 25.0))


class PlanTestCase(base.BaseTestCase):
    """Of compute-2, which has node-1 with server-1, and node-4."""

    def setUp(self):
        super().setUp()
        self.seen = views.changed(
            views.consistent(), 'nodes', 1, instance_uuid='server-1',
            provision_state='active')
        self.add('server-1', 'node-1')
        self.seen = views.changed(self.seen, 'services', 1, **FENCED)
        self.heirs = forecast.Successors(self.seen, 'compute-2', SETTINGS)

    def add(self, uuid, node, **more):
        self.seen = views.with_more(
            self.seen, 'instances', cloud_state.CloudServer(
                uuid, f'{uuid}-name', 'compute-2', node, **more))

    def change(self, field, index, **changes):
        self.seen = views.changed(self.seen, field, index, **changes)

    def zones(self, *zones):
        self.seen = dataclasses.replace(self.seen, zones=tuple(
            (f'compute-{i}', zone) for i, zone in enumerate(zones, 1)
            if zone))

    def plan(self, *migrating, settings=SETTINGS):
        return fencing.plan(self.seen, 'Compute-2', frozenset(migrating),
                            settings)

    def told(self, *migrating):
        return list(fencing.sentences(self.plan(*migrating)))

    def stuck(self, found, obstacle, *names):
        self.assertEqual({obstacle: names}, found.stuck_servers)
        self.assertEqual({}, found.servers)

    def test_all_is_taken_by_whom_the_ring_prefers(self):
        found = self.plan()
        self.assertEqual({self.heirs.of_server('node-1'): 1}, found.servers)
        self.assertEqual({self.heirs.of_node('node-4'): 1},
                         found.nodes)
        self.assertEqual((1, 1, 0), (
            found.server_count, found.node_count, found.stuck))
        self.assertTrue(found.moves)
        self.assertFalse(found.empty)
        self.assertEqual('1 server and 1 free node', fencing.counts(found))

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
        self.assertEqual('0 servers and 0 free nodes', fencing.counts(found))

    def test_nodes_alone_are_something(self):
        self.change('instances', 1, deleted=True)
        self.change('nodes', 1, instance_uuid=None)
        self.assertFalse(self.plan().empty)
        self.assertTrue(self.plan().moves)

    def test_a_machine_whose_server_is_deleted_goes_like_a_free_node(self):
        self.change('instances', 1, deleted=True)
        self.assertEqual((0, 2), (self.plan().server_count,
                                  self.plan().node_count))

    def test_a_server_that_has_moved_draws_its_record_after_it(self):
        self.change('records', 4, host='compute-1')
        for host in 'compute-1', 'compute-3':
            self.change('instances', 1, host=host)
            self.assertEqual(({}, {host: 1}),
                             (self.plan().servers, self.plan().nodes))

    def test_a_server_whose_node_has_moved_goes_there(self):
        for host in 'compute-1', 'compute-3':
            self.change('records', 1, host=host)
            self.assertEqual({host: 1}, self.plan().servers)

    def test_the_node_of_a_server_went_to_another_zone(self):
        self.zones('here', 'there', 'there')
        self.change('records', 1, host='compute-1')
        # The record follows it.
        self.assertEqual({'compute-3': 1}, self.plan().servers)
        anywhere = ownership_report.SharedSettings(1024, cross_zones=True)
        self.assertEqual({'compute-1': 1},
                         self.plan(settings=anywhere).servers)
        self.zones('here', 'here', None)
        self.assertEqual({'compute-1': 1}, self.plan().servers)

    def test_the_node_of_a_server_is_with_one_that_takes_nothing(self):
        self.change('records', 1, host='compute-3')
        self.change('services', 2, disabled=True)
        self.assertEqual({'compute-1': 1}, self.plan().servers)

    def shards(self, *shards):
        for index, shard in enumerate(shards * 2):
            self.change('nodes', index, shard=shard)

    def test_the_node_of_a_server_is_in_another_shard_by_now(self):
        self.shards('a', 'b', 'c')
        self.change('nodes', 1, shard='c')
        found = self.plan()
        self.assertEqual({'compute-3': 1}, found.servers)
        self.assertEqual({fencing.Obstacle.NO_PARTITION: ('node-4',)},
                         found.stuck_nodes)
        # What is still there goes to nobody all the same.
        self.change('nodes', 1, shard='b')
        self.change('nodes', 4, shard='c')
        found = self.plan()
        self.stuck(found, fencing.Obstacle.NO_PARTITION, 'server-1-name')
        self.assertEqual({'compute-3': 1}, found.nodes)
        self.assertIn('give their nodes in Ironic a group and shard that one '
                      'serves', self.told()[-1])

    def test_nobody_serves_its_shard(self):
        self.shards('a', 'b', 'b')
        for state in {'disabled': True}, {'up': False}:
            self.change('services', 2, **state)
            self.stuck(self.plan(), fencing.Obstacle.NO_PARTITION,
                       'server-1-name')

    def test_the_node_of_a_server_is_with_another_that_died(self):
        self.change('records', 1, host='compute-3')
        self.change('services', 2, up=False)
        self.assertEqual({'compute-1': 1}, self.plan().servers)

    def test_servers_stay_in_their_zone(self):
        self.zones('here', 'there', 'there')
        self.assertEqual(({'compute-3': 1}, {'compute-3': 1}),
                         (self.plan().servers, self.plan().nodes))

    def test_free_nodes_may_leave_their_zone_to_whom_has_none(self):
        self.zones(None, 'there', 'here')
        found = self.plan()
        self.stuck(found, fencing.Obstacle.NO_TARGET, 'server-1-name')
        self.assertEqual({'compute-1': 1}, found.nodes)

    def test_what_passes_is_told_first(self):
        self.add('a', 'node-9')
        self.assertEqual(
            [fencing.Obstacle.MIGRATING, fencing.Obstacle.NO_MACHINE],
            list(self.plan('server-1').stuck_servers))

    def test_nobody_is_left_in_its_zone(self):
        self.zones('here', 'there', 'here')
        found = self.plan()
        self.stuck(found, fencing.Obstacle.NO_TARGET, 'server-1-name')
        self.assertEqual({fencing.Obstacle.NO_TARGET: ('node-4',)},
                         found.stuck_nodes)
        self.assertEqual(2, found.stuck)
        self.assertFalse(found.moves)
        [server, node] = self.told()
        self.assertIn('1 server (server-1-name) stays because no other',
                      server)
        self.assertIn('1 free node (node-4) stays because', node)

    def test_nobody_is_left(self):
        self.change('services', 0, disabled=True)
        self.change('services', 2, up=False)
        self.stuck(self.plan(), fencing.Obstacle.NO_TARGET, 'server-1-name')

    def test_a_migration_is_in_progress(self):
        found = self.plan('server-1')
        self.stuck(found, fencing.Obstacle.MIGRATING, 'server-1-name')
        self.assertTrue(found.moves)
        self.change('records', 4, host='compute-1')
        self.assertTrue(self.plan('server-1').moves)
        self.assertIn('until their migration is over',
                      self.told('server-1')[-1])

    def test_no_machine_is_held_for_it(self):
        self.add('server-2', 'node-9')
        self.change('nodes', 1, instance_uuid=None)
        self.stuck(self.plan(), fencing.Obstacle.NO_MACHINE,
                   'server-1-name', 'server-2-name')

    def test_a_build_or_delete_without_a_machine_goes_with_its_node(self):
        self.change('nodes', 1, instance_uuid=None)
        takeover_target = self.heirs.of_node('node-1')
        for state in ({'vm_state': 'building', 'task_state': 'spawning'},
                      {'vm_state': 'active', 'task_state': 'deleting'}):
            self.change('instances', 1, **state)
            self.assertEqual({takeover_target: 1}, self.plan().servers)
        self.change('instances', 1, node='node-9')
        self.stuck(self.plan(), fencing.Obstacle.HIDDEN, 'server-1-name')
        self.change('instances', 1, node=None)
        self.stuck(self.plan(), fencing.Obstacle.NO_MACHINE, 'server-1-name')

    def test_another_machine_is_held_for_it(self):
        self.change('instances', 1, node='node-4')
        self.stuck(self.plan(), fencing.Obstacle.OTHER_MACHINE,
                   'server-1-name')

    def test_a_server_without_a_name_and_node(self):
        self.change('instances', 1, name='', node=None)
        self.assertEqual({self.heirs.of_server('node-1'): 1},
                         self.plan().servers)
        self.assertEqual(('server-1',), self.plan('server-1').stuck_servers[
            fencing.Obstacle.MIGRATING])

    def test_nodes_that_ironic_does_not_show(self):
        self.seen = views.without(self.seen, 'nodes', 4)
        self.assertEqual({fencing.Obstacle.HIDDEN: ('node-4',)},
                         self.plan().stuck_nodes)

    def test_many_names_are_not_listed(self):
        for i in range(5):
            self.add(f'x-{i}', f'node-x{i}')
        [told] = fencing.obstacles(self.plan())
        self.assertIn('5 servers (x-0-name, x-1-name, x-2-name and 2 more) '
                      'stay because', told)
