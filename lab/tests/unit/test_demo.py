# SPDX-License-Identifier: Apache-2.0

import dataclasses
import types
from unittest import mock

import fixtures
from oslotest import base

from lab import demo
from lab.demo import play
from lab.demo import story as stories
from lab import errors
from lab import ledger
from lab.tests.unit import test_bench
from lab.tests.unit import test_operations
from nova_ironic_multihost.tests import views


class StoryTestCase(base.BaseTestCase):

    def story(self, **measured):
        return stories.Story(**{
            'computes': 3, 'nodes': 30, 'servers': 6, 'split': (8, 10, 12),
            'killed': 'compute-2', 'stranded': 2, 'free': 7, 'taken': 3.2,
            'taken_by': {'compute-1': 2}, 'rebooted': 'demo-4',
            'waited': 4.5, 'rebooted_on': 'compute-3', 'reboot': 2.8,
            'reboots': ['compute-3'],
            'moved': {'needless': 0, 'most_moves_per_change': 1,
                      'unschedulable': 0, 'quiet': True}, **measured})

    def told(self, **measured):
        return ' '.join(self.story(**measured).lines())

    def failure(self, **measured):
        [sentence] = self.story(**measured).failures()
        self.assertNotIn('Nothing happened twice', self.told(**measured))
        return sentence

    def test_tells_what_was_measured(self):
        told = self.told(noticed=8.2, arrived=11.9, moves=8,
                         again_on='compute-1', returned=6)
        for part in ('3 nova-computes shared 30', '8, 10, 12', '8.2 s',
                     'with 2 servers on it', '11.9 s', 'its 7 free nodes',
                     'in 8 moves', 'on compute-1', '3.2 s after that',
                     'compute-1 has 2 of them', 'A reboot of demo-4',
                     'given up 4.5 s',
                     'demo-4 was rebooted by compute-3', '2.8 s',
                     'it had 6 free nodes', 'no free node was recorded',
                     'Nothing happened twice'):
            self.assertIn(part, told)

    def test_all_as_it_must_be(self):
        self.assertEqual([], self.story().failures())

    def test_does_not_hide_nodes_on_a_dead_compute(self):
        self.assertIn('up to 4 free nodes were recorded', self.told(on_dead=4))

    def test_servers_that_nobody_takes_over(self):
        self.assertIn('not taken over', self.failure(taken=None))
        self.assertNotIn('was fenced', self.told(taken=None))

    def test_a_reboot_that_waited_and_never_ends(self):
        self.assertIn('demo-4', self.failure(waited=None))
        self.assertNotIn('given up', self.told(waited=None))

    def test_a_reboot_that_fails(self):
        self.assertEqual(
            'demo-4 could not be rebooted on compute-3: ERROR: broken',
            self.failure(reboot=None, reboot_why='ERROR: broken'))

    def test_a_reboot_that_another_does_as_well(self):
        self.assertIn('by compute-3, then compute-2, and not once',
                      self.failure(reboots=['compute-3', 'compute-2']))
        self.assertIn('by nobody', self.failure(reboots=[]))

    def test_something_happens_twice(self):
        rest = {'changed': [], 'touched': [], 'deeds': {}}
        self.assertIn('demo-1', self.failure(
            after_return=rest | {'touched': ['demo-1']}))
        self.assertIn('was active', self.failure(
            after_return=rest | {'changed': ['x: vm_state was active']}))
        moved = self.story().moved
        self.assertIn('2 times', self.failure(
            moved=moved | {'most_moves_per_change': 2}))
        self.assertIn('came to rest', self.failure(
            moved=moved | {'quiet': False}))


def server(seen, **changes):
    return views.changed(seen, 'instances', 0, **changes)


def on(seen, host, *nodes):
    for node in nodes:
        seen = test_bench.moved(seen, node, host)
    return seen


class PlayTestCase(test_bench.FilmTestCase):
    """compute-1, with node-0 and its server and node-3, dies."""

    def setUp(self):
        super().setUp()
        self.computes.names.return_value = list(views.HOSTS)
        self.story = stories.Story()
        self.down = views.changed(server(
            self.good, task_state='rebooting_hard'), 'services', 0, up=False)
        self.arrived = on(self.down, 'compute-2', 3)
        self.taken = server(on(self.arrived, 'compute-3', 0),
                            host='compute-3')
        self.rested = server(self.taken, task_state=None)
        self.back = views.changed(self.rested, 'services', 0, up=True)
        self.home = on(self.back, 'compute-1', 3)
        self.ledgers = [self.ledger('compute-3')] * 2
        # Views are of views.NOW, and must be later than what is asked.
        self.useFixture(fixtures.MockPatch(
            'time.time', lambda: views.NOW - 10))
        self.useFixture(fixtures.MockPatch(
            'lab.ledger.read', side_effect=self.ledgers))

    @staticmethod
    def ledger(*rebooted_by, touched=0):
        return ledger.Ledger(
            {'server-0': ledger.Server('one', 'compute-3', 'active')},
            {'node-0': ledger.Machine('server-0', 'active', 'power on',
                                      touched)},
            tuple(ledger.Deed('server-0', play.REBOOTING, host, 1.0,
                              'Success') for host in rebooted_by))

    def play(self, *seen):
        self.cloud = test_operations.Cloud(('ACTIVE', None))
        return play.Play(dataclasses.replace(
            self.bench(*seen), cloud=self.cloud), self.story)

    def whole(self):
        acts = self.play(
            self.good, self.down, self.arrived, self.taken,
            *[self.rested] * 4, self.back, self.home)
        acts.lose()
        acts.take_over()
        acts.bring_back()
        return self.story

    def test_begins_when_nodes_have_found_their_places(self):
        away = on(self.good, 'compute-3', 1)
        begin = self.play(*[away] * 5, self.good).settle()
        # Two audits without a move after that.
        self.assertGreater(begin, 5 + 20 - play.LEAD)

    def test_nodes_that_never_rest(self):
        acts = self.play(on(self.good, 'compute-3', 1))
        self.assertIn('never stopped moving', str(
            self.assertRaises(errors.LabError, acts.settle)))

    def test_kills_one_with_servers(self):
        idle = on(self.good, 'compute-2', 2, 5)
        self.assertEqual('compute-1', play.victim(idle, list(views.HOSTS)))
        self.assertEqual({'one': ('server-0', 'node-0')},
                         play.servers_of(idle, 'Compute-1'))

    def test_of_those_with_as_many_the_one_with_most_free_nodes(self):
        none = on(server(self.good, deleted=True), 'compute-2', 5)
        self.assertEqual('compute-2', play.victim(none, list(views.HOSTS)))

    def test_all_goes_well(self):
        story = self.whole()
        self.assertEqual([], story.failures())
        self.assertEqual(
            [mock.call.names(), mock.call.kill('compute-1'),
             mock.call.fence('compute-1'), mock.call.start('compute-1'),
             mock.call.unfence('compute-1')], self.computes.mock_calls)
        self.assertEqual(
            ('compute-1', 1, 1, 1.0, 2.0, 1),
            (story.killed, story.free, story.stranded, story.noticed,
             story.arrived, story.moves))
        self.assertEqual(
            (1.0, {'compute-3': 1}, 'one', 2.0),
            (story.taken, story.taken_by, story.rebooted, story.waited))
        self.assertEqual(('compute-3', '', ['compute-3']), (
            story.rebooted_on, story.reboot_why, story.reboots))
        self.assertEqual((1, 1, 0), (
            story.returned, story.moves_back, story.on_dead))

    def test_asks_twice_for_a_reboot(self):
        self.whole()
        self.assertEqual(
            [('POST', '/servers/server-0/action',
              {'reboot': {'type': 'HARD'}}, '2.96')] * 2, self.cloud.asked)

    def test_a_machine_that_is_touched_again(self):
        self.ledgers[1] = self.ledger('compute-3', 'compute-1', touched=5)
        [one, two] = self.whole().failures()
        self.assertIn('by compute-3, then compute-1', one)
        self.assertIn("machines of: ['one']", two)

    def test_a_reboot_that_nova_does_not_take(self):
        acts = play.Play(dataclasses.replace(
            self.bench(self.good), cloud=test_operations.Cloud(
                ('ACTIVE', None), refused=True)), self.story)
        self.assertIn('A reboot of one was refused', str(
            self.assertRaises(errors.LabError, acts.lose)))

    def test_nobody_takes_the_servers_over(self):
        acts = self.play(self.good, self.down, self.arrived)
        acts.lose()
        acts.take_over()
        [sentence] = self.story.failures()
        self.assertIn('compute-1 were not taken over', sentence)
        self.assertEqual('', self.story.rebooted_on)

    def test_server_that_does_not_become_active(self):
        for host, place in (('compute-2', 'compute-2'),
                            (None, 'nova-scheduler')):
            cloud = mock.Mock()
            cloud.boot.return_value = ['server-0']
            cloud.servers.return_value = [{
                'id': 'server-0', 'name': 'demo-again', 'status': 'ERROR',
                'OS-EXT-SRV-ATTR:host': host,
                'fault': {'message': 'No valid host was found.'}}]
            acts = play.Play(dataclasses.replace(
                self.bench(self.good), cloud=cloud), self.story)
            said = str(self.assertRaises(errors.LabError, acts.boot_again))
            self.assertIn('demo-again is ERROR', said)
            self.assertIn('No valid host was found.', said)
            self.assertIn(f'tools/lab logs {place}', said)


class RunTestCase(base.BaseTestCase):

    def test_too_few_nodes_for_a_story(self):
        args = types.SimpleNamespace(computes=3, nodes=5, keep=False)
        error = self.assertRaises(errors.LabError, demo.run, args, None)
        self.assertIn('12 nodes', str(error))
