# SPDX-License-Identifier: Apache-2.0

"""Queues of dead hosts are read by one of the living."""

from unittest import mock

import fixtures

from nova_ironic_multihost.engine.builds import build_backups
from nova_ironic_multihost.engine.builds import queue_forwarder
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post

NODES = cloud.NODES


class PostmanTestCase(post.PostTestCase):

    def test_builds_go_to_who_is_to_have_their_nodes(self):
        requests = [self.send(node) for node in NODES]
        self.fence()
        self.turn()
        self.assertEqual([], self.bus.queues['a'])
        for host in 'bc':
            wanted = self.preferred(host, 'b', 'c')
            self.assertEqual(
                [request for request in requests if request.node in wanted],
                self.bus.queues[host])
            self.assertTrue(wanted)

    def test_queues_that_are_not_read_to_the_end(self):
        self.bus.queues['a'].append(QueuedRequest(RequestKind.BUILD, 'i2'))
        self.cloud.placed['i2'] = post.WAITING
        self.fence()
        self.turn()
        reader = self.posts[self.reader]
        self.assertTrue(reader.holds('i2'))
        self.assertFalse(reader.holds('another'))
        self.assertEqual({'a'}, reader.searched)
        with mock.patch.object(
                reader._requests, 'situation', side_effect=OSError):
            self.assertRaises(
                queue_forwarder.QueueNoAnswer, self.turn, self.reader)
        self.assertEqual(set(), reader.searched)
        self.turn()
        self.assertEqual({'a'}, reader.searched)
        self.bus.breaks = OSError()
        self.assertRaises(OSError, self.turn, self.reader)
        self.assertEqual(set(), reader.searched)

    def test_account_that_may_not_read(self):
        """What waits there is for its host alone, and that is dead."""
        logged = self.useFixture(fixtures.FakeLogger())
        for box in 'a', 'a copies':
            with self.subTest(box):
                self.bus.forbids = {box}
                self.fence()
                self.turn()
                self.assertEqual({'a'}, self.posts[self.reader].searched)
        self.assertEqual(1, logged.output.count('rights'))

    def test_build_goes_to_the_live_owner_of_its_node(self):
        self.send(NODES[0])
        self.fence()
        other, = {'b', 'c'} - {self.looks['b']._auditor.preferences.host_for(
            NODES[0])}
        self.cloud.owners[NODES[0]] = other
        self.turn()
        self.assertEqual(1, len(self.bus.queues[other]))

    def test_copies_of_a_dead_host_are_read_too(self):
        """Of a build in its memory, and of one that was taken over."""
        waiting = self.send(NODES[0])
        claimed = self.send(NODES[1], state=InstanceState(
            'a', node=NODES[1], vm_state='building'))
        over = self.send(NODES[2], state=InstanceState(
            'a', node=NODES[2], vm_state='active'))
        self.bus.queues['a copies'] = [claimed, over, waiting]
        self.bus.queues['a'].clear()
        self.fence()
        self.turn()
        choice, = (host for host in 'bc'
                   if NODES[0] in self.preferred(host, 'b', 'c'))
        self.assertEqual([waiting], self.bus.queues[choice])
        # Who has taken it over finds its copy.
        self.assertEqual([], self.bus.queues['a copies'])
        taker = self.cloud.placed[claimed.instance].host
        self.assertIn(taker, 'bc')
        self.assertEqual([claimed], self.bus.queues[f'{taker} copies'])
        self.assertEqual(0, self.bus.held)

    def test_copy_of_one_that_is_not_taken_over_yet_is_held(self):
        claimed = self.send(NODES[1], state=InstanceState(
            'a', node=NODES[1], vm_state='building'))
        self.fence()
        # Its takeover comes late.
        self.cloud.placed[claimed.instance] = InstanceState(
            'a', node=NODES[1], vm_state='building')
        self.bus.queues['a copies'] = [claimed]
        self.bus.queues['a'].clear()
        self.turn()
        self.assertEqual(1, self.bus.held)
        self.cloud.placed[claimed.instance] = InstanceState(
            'c', node=NODES[1], vm_state='building')
        self.turn()
        self.assertEqual([claimed], self.bus.queues['c copies'])

    def test_one_reads(self):
        self.send(NODES[0])
        self.fence()
        self.turn()
        self.assertEqual(['a'], self.bus.opened)
        other, = {'b', 'c'} - {self.reader}
        self.send(NODES[1])
        self.turn(other)
        self.assertEqual(1, len(self.bus.queues['a']))
        self.turn(self.reader)
        self.assertEqual(0, len(self.bus.queues['a']))

    def test_queue_of_another_partition_is_left_to_its_peers(self):
        self.options['partition'] = peers.Partition(
            shard='x', peer_list=('b', 'c'))
        self.send(NODES[0])
        self.fence()
        self.assertEqual({'a'}, {*self.looks['b'].eligible})
        self.turn()
        self.assertEqual([], self.bus.opened)

    def test_queue_of_a_live_host_is_not_read(self):
        self.send(NODES[0])
        self.turn()
        self.cloud.set('a', up=False)
        self.look('b', 'c')
        self.turn()
        self.assertEqual([], self.bus.opened)

    def test_what_does_not_concern_builds_waits(self):
        self.cloud.placed |= {'moved': InstanceState('b'),
                              'here': InstanceState('a')}
        waits = [
            QueuedRequest(RequestKind.OPERATION, 'here'),
            QueuedRequest(RequestKind.OTHER),
        ]
        self.bus.queues['a'] = [
            waits[0], QueuedRequest(RequestKind.OPERATION, 'moved'), waits[1]]
        self.send(NODES[0])
        self.fence()
        self.turn()
        self.assertEqual(1, len(self.bus.queues['b'] + self.bus.queues['c']))
        self.cloud.set('a')
        self.look('b', 'c')
        self.turn()
        self.assertEqual(waits, self.bus.queues['a'])

    def test_what_is_held_is_not_taken_again_and_again(self):
        self.bus.queues['a'] = [QueuedRequest(RequestKind.OTHER)]
        self.fence()
        for _ in range(5):
            self.clock.now += 10
            self.turn()
        self.assertEqual(['a'], self.bus.opened)
        # RabbitMQ would close the channel.
        self.clock.now += forwarding.HOLDING
        self.turn()
        self.assertEqual(1, len(self.bus.queues['a']))
        self.turn()
        self.assertEqual(['a'], self.bus.opened)
        self.clock.now += forwarding.PAUSE
        self.turn()
        self.assertEqual(['a', 'a'], self.bus.opened)

    def test_what_has_come_back_often_is_left_alone_for_long(self):
        self.bus.queues['a'] = [QueuedRequest(RequestKind.OTHER, returns=15)]
        self.fence()
        for _ in range(40):
            self.turn()
            self.clock.now += forwarding.HOLDING
        self.assertEqual(['a'], self.bus.opened)

    def test_build_that_is_held_goes_when_placement_answers(self):
        self.send(NODES[0])
        self.cloud.allocations[NODES[0]] = None
        self.fence()
        self.turn()
        self.cloud.allocations[NODES[0]] = frozenset({'build-00'})
        self.turn()
        self.assertEqual(1, len(self.bus.queues['b'] + self.bus.queues['c']))
        self.assertEqual(['a'], self.bus.opened)

    def test_build_is_held_while_who_is_to_have_it_has_no_queue(self):
        self.send(NODES[0])
        self.bus.missing = {'b', 'c'}
        self.fence()
        self.turn()
        self.bus.missing = set()
        self.turn()
        self.assertEqual(1, len(self.bus.queues['b'] + self.bus.queues['c']))

    def test_message_of_a_build_that_goes_on_where_there_are_no_copies(self):
        """It is held until the build is over."""
        self.send(NODES[0])
        self.cloud.placed['build-00'] = InstanceState(
            'b', node=NODES[0], vm_state='building')
        self.bus.missing = {'b copies'}
        self.fence()
        self.turn()
        self.assertEqual(([], 1), (self.bus.queues['a'], self.bus.held))
        self.cloud.placed['build-00'] = InstanceState(
            'b', node=NODES[0], vm_state='active')
        self.turn()
        self.assertEqual(([], 0), (self.bus.queues['a'], self.bus.held))

    def test_message_of_a_build_that_goes_on_becomes_its_copy(self):
        self.send(NODES[0])
        self.cloud.placed['build-00'] = InstanceState(
            'b', node=NODES[0], vm_state='building')
        self.fence()
        self.turn()
        self.assertEqual(['build-00'], [
            copy.instance for copy in self.bus.queues['b copies']])

    def test_host_that_is_back_gets_what_is_left(self):
        for node in NODES:
            self.send(node)
        self.fence()
        self.bus.consumers['a'] = 1
        self.turn()
        self.assertEqual(len(NODES), len(self.bus.queues['a']))

    def test_host_that_comes_back_in_the_middle(self):
        requests = [self.send(node) for node in NODES * 5]
        self.fence()
        turns = iter(range(1000))

        def come_back():
            if next(turns) == 50:
                self.bus.consumers['a'] = 1

        self.bus.on_take = come_back
        self.turn()
        left = self.bus.queues['a']
        self.assertLess(0, len(left))
        self.assertCountEqual(requests, [
            request for queue in self.bus.queues.values()
            for request in queue])

    def test_service_that_ends_takes_nothing_more(self):
        for node in NODES * 5:
            self.send(node)
        self.fence()
        turns = iter(range(1000))

        def end():
            if next(turns) == 50:
                self.posts[self.reader].end()

        self.bus.on_take = end
        self.turn()
        self.assertLess(0, len(self.bus.queues['a']))
        self.turn()
        self.assertEqual(['a'], self.bus.opened)

    def test_quorum_queues_count_what_is_held(self):
        self.bus.quorum = True
        self.bus.queues['a'] = [QueuedRequest(RequestKind.OTHER)] * 3
        self.fence()
        for _ in range(3):
            self.turn()
        self.assertEqual(['a'], self.bus.opened)
        self.assertEqual(3, self.bus.held)
        self.bus.consumers['a'] = 1
        self.turn()
        self.assertEqual(3, len(self.bus.queues['a']))

    def test_nothing_is_taken_while_nova_does_not_answer(self):
        requests = [self.send(node) for node in NODES]
        self.fence()
        states = self.cloud.instance_states
        self.cloud.instance_states = self.away
        self.assertRaises(
            queue_forwarder.QueueNoAnswer, self.turn, self.reader)
        self.assertEqual(requests[1:], self.bus.queues['a'])
        self.assertRaises(
            queue_forwarder.QueueNoAnswer, self.turn, self.reader)
        self.cloud.instance_states = states
        self.turn(self.reader)
        self.assertEqual([], self.bus.queues['a'])
        self.assertEqual(['a'], self.bus.opened)
        self.assertCountEqual(
            requests, self.bus.queues['b'] + self.bus.queues['c'])

    def away(self, instances):
        raise OSError('the conductor is away')

    def test_broker_that_is_away_loses_nothing(self):
        requests = [self.send(node) for node in NODES]
        self.fence()
        turns = iter(range(1000))

        def fail():
            if next(turns) == 7:
                raise OSError('connection reset')

        self.bus.on_take = fail
        self.assertRaises(OSError, self.turn, self.reader)
        self.turn(self.reader)
        self.assertCountEqual(
            requests, self.bus.queues['b'] + self.bus.queues['c'])

    def test_queue_that_fails_holds_up_no_other(self):
        self.cloud.set('d')
        self.cloud.set('e')
        self.look('b', 'c')
        for host in 'de':
            self.cloud.set(host, up=False, forced_down=True)
        self.fence()
        self.send(NODES[0])
        boxes = self.bus.open

        def open_some(host):
            if host in 'de':
                raise OSError(host)
            return boxes(host)

        self.bus.open = open_some
        for host in 'bc':
            for _ in range(2):
                try:
                    self.turn(host)
                except OSError:
                    continue
        self.assertEqual([], self.bus.queues['a'])

    def test_host_without_a_queue(self):
        self.bus.missing = {'a'}
        self.fence()
        self.turn()
        self.assertEqual({'a'}, self.posts[self.reader].searched)
        self.bus.missing = set()
        self.send(NODES[0])
        self.turn()
        self.assertEqual(1, len(self.bus.queues['a']))
        self.clock.now += queue_forwarder.ABSENT
        self.turn()
        self.assertEqual([], self.bus.queues['a'])
        self.assertEqual(['a'], self.bus.opened)

    def test_host_without_a_queue_while_the_bus_misses_heartbeats_soon(self):
        self.bus.heartbeat = 10
        self.bus.missing = {'a', 'a copies'}
        self.fence()
        for _ in range(3 * queue_forwarder.ABSENT // 10):
            self.turn()
            self.clock.now += 10
        self.assertEqual(['a'], self.bus.opened)

    def test_broker_that_fails_when_a_build_goes_on(self):
        request = self.send(NODES[0])
        self.fence()
        self.bus.on_take = lambda: setattr(self.bus, 'breaks', OSError())
        self.assertRaises(OSError, self.turn, self.reader)
        self.assertEqual([request], self.bus.queues['a'])
        self.bus.on_take, self.bus.breaks = lambda: None, None
        self.clock.now += forwarding.PAUSE
        self.turn()
        self.assertEqual([], self.bus.queues['a'])

    def test_bus_that_is_no_rabbit(self):
        self.bus.readable = False
        self.fence()
        self.turn(self.reader)
        self.assertEqual([], self.bus.opened)
        self.assertEqual(set(), self.posts[self.reader].searched)

    def test_nothing_is_told_of_the_content(self):
        self.fence()
        self.cloud.placed['moved'] = InstanceState('b')
        secret = QueuedRequest(RequestKind.OPERATION, 'moved', handle='secret')
        self.bus.queues['a'] = [secret]
        logged = self.useFixture(fixtures.FakeLogger())
        self.turn()
        self.assertIn('1 obsolete requests were dropped', logged.output)
        self.assertNotIn('secret', logged.output + repr(secret))


NODE = cloud.NODES[0]
BUILD = QueuedRequest(RequestKind.BUILD, 'i1', NODE)


class SorterTestCase(post.PostTestCase):

    def setUp(self):
        super().setUp()
        self.cloud.placed['i1'] = post.WAITING
        self.requests = self.request_sorter('b')

    def situation(self, request=BUILD):
        return self.requests.situation(request)

    def test_build_of_a_node_of_a_dead_host(self):
        self.fence()
        found = self.situation()
        self.assertEqual(
            (post.WAITING, 'a', False, True),
            (found.state, found.owner, found.live, found.dead))
        self.assertIn(found.choice, 'bc')
        self.assertEqual(0, found.attempts)
        self.begun['i1'] = 3
        self.assertEqual(3, self.situation().attempts)

    def test_this_host_lives_whatever_nova_says(self):
        self.cloud.owners[NODE] = 'b'
        self.cloud.set('b', up=False)
        self.look('b')
        self.assertTrue(self.situation().live)
        self.cloud.owners[NODE] = 'c'
        self.cloud.set('b', up=True)
        for _ in range(2):
            self.look('b')
        self.cloud.set('c', up=False)
        self.look('b')
        self.assertFalse(self.situation().live)

    def test_node_without_a_record(self):
        del self.cloud.owners[NODE]
        self.assertIsNone(self.situation().owner)

    def test_operation(self):
        self.cloud.placed['i1'] = InstanceState('c')
        found = self.situation(QueuedRequest(RequestKind.OPERATION, 'i1'))
        self.assertEqual('c', found.state.host_key)

    def test_nothing_is_known_before_the_first_look(self):
        blind = build_backups.RequestSorter(
            'b', self.auditors['b'], mock.Mock(view=None), self)
        self.assertIsNone(blind.situation(BUILD))
        self.assertIsNone(self.situation(QueuedRequest(RequestKind.OTHER)))

    def test_host_that_nova_does_not_have(self):
        queue = mock.Mock()
        for host in 'nobody', None:
            self.assertFalse(self.requests.hand_on(
                queue, BUILD, forwarding.Disposition(
                    forwarding.Action.HAND_ON, host)))
        queue.hand_on.assert_not_called()
