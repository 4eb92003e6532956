# SPDX-License-Identifier: Apache-2.0

"""The cache of Ironic's nodes."""

from concurrent import futures
import threading
import time
from unittest import mock

from oslotest import base

from nova_ironic_multihost.adapters import node_cache
from nova_ironic_multihost.rules.mirror import NodeRow


class Node:
    """What is made of a body."""

    def __init__(self, body):
        self.body = body
        self.instance_id = None


def rows(bodies, **instances):
    """Return what was listed: {uuid: row}."""
    return {uuid: NodeRow(uuid, instances.get(uuid),
                          None if body is None else str(body).encode())
            for uuid, body in bodies.items()}


class NodeCacheTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.made = []
        self.cache = node_cache.NodeCache(self.make)
        self.ironic = {}

    def make(self, body):
        self.made.append(body)
        return Node(body.decode())

    def read(self, uuid, mine=True):
        return self.cache.read(uuid, self.ironic.get, lambda uuid: mine)

    def replace(self, bodies, changed=frozenset()):
        self.cache.replace(rows(bodies), changed)

    def bodies(self):
        return {uuid: node.body for uuid, node in self.cache.items()}

    def test_it_is_like_the_dict_that_nova_works_with(self):
        self.assertEqual({}, self.cache)
        self.assertFalse(self.cache)
        self.cache['a'] = node = Node(1)
        self.assertEqual({'a': node}, self.cache)
        self.assertIn('a', self.cache)
        self.assertEqual(node, self.cache.pop('a', None))
        self.assertIsNone(self.cache.pop('a', None))

    def test_objects_are_made_when_they_are_asked_for(self):
        self.replace({'a': 1, 'b': 2})
        self.assertEqual(({'a', 'b'}, True, []), (
            set(self.cache), 'a' in self.cache, self.made))
        # nova changes them, and expects that to last for a while.
        self.assertIs(self.cache['a'], self.cache.get('a'))
        self.assertEqual([b'1'], self.made)
        self.replace({'a': 1})
        self.cache.get('a')
        self.assertEqual([b'1', b'1'], self.made)

    def test_few_objects_are_kept(self):
        with mock.patch.object(node_cache, 'MADE', 2):
            self.replace(dict.fromkeys('abcd', 1))
            self.assertEqual(4, len(list(self.cache.values())))
            self.cache.get('d')
            self.assertEqual(4, len(self.made))
            self.cache.get('a')
            self.assertEqual(5, len(self.made))

    def test_it_may_change_while_it_is_iterated(self):
        for iterate in (iter, node_cache.NodeCache.keys,
                        node_cache.NodeCache.instances):
            self.cache.replace(rows({'a': 1, 'b': 2}, a='i1', b='i2'))
            count = 0
            for _ in iterate(self.cache):
                self.cache.pop('a', None)
                self.cache['c'] = Node(3)
                count += 1
            self.assertEqual(2, count)

    def test_values_of_a_moment_when_nodes_are_forgotten(self):
        for iterate in (node_cache.NodeCache.values,
                        node_cache.NodeCache.items):
            self.replace({'a': 1, 'b': 2})
            count = 0
            for _ in iterate(self.cache):
                self.cache.forget('b')
                self.cache.forget('a')
                count += 1
            self.assertEqual(2, count)

    def test_taking_out_a_node_that_has_just_gone(self):
        self.replace({'a': 1})
        self.cache._make = lambda body: self.cache.forget('a') or Node(body)
        self.assertEqual(b'1', self.cache.pop('a', None).body)

    def test_changed_node_of_which_little_was_read_is_read_anew(self):
        self.replace({'a': 1})
        self.cache.add(rows({'a': None}))
        self.assertNotIn('a', self.cache)

    def test_it_may_change_in_another_thread(self):
        nodes = {str(number): number for number in range(100)}
        other = {str(number): number for number in range(50, 150)}
        with futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(lambda: [
                self.replace(listed) for _ in range(200)
                for listed in (nodes, other)])
            while not done.done():
                # A thread of eventlet takes its turn only if it is let.
                time.sleep(0)
                for uuid in self.cache:
                    node = self.cache.get(uuid)
                    if node is not None:
                        self.assertEqual(uuid, node.body)
            done.result()

    def test_listing_replaces_all(self):
        self.replace({'a': 'old', 'b': 'old'})
        self.replace({'b': 'new', 'c': 'new'})
        self.assertEqual({'b': 'new', 'c': 'new'}, self.bodies())

    def test_node_that_stays_is_there_at_any_moment(self):
        stays = {str(number): number for number in range(100)}
        self.replace(stays)
        with futures.ThreadPoolExecutor(1) as pool:
            done = pool.submit(lambda: [
                self.replace({**stays, f'x{number}': number})
                for number in range(200)])
            while not done.done():
                # A thread of eventlet takes its turn only if it is let.
                time.sleep(0)
                self.assertLessEqual(set(stays), set(self.cache))
            done.result()

    def test_node_that_changes_while_it_is_listed_is_read_anew(self):
        with self.cache.listing() as changed, self.cache.listing() as other:
            self.cache.forget('a')
            self.replace({'a': 'before', 'b': 'listed'}, changed)
            self.assertEqual({'b': 'listed'}, self.bodies())
            self.cache.add(rows({'a': 'before'}), other)
            self.assertEqual({'b': 'listed'}, self.bodies())
        self.ironic['a'] = Node('after')
        self.assertEqual('after', self.read('a').body)
        # The next listing sees the change.
        with self.cache.listing() as changed:
            self.replace({'a': 'listed'}, changed)
        self.assertEqual({'a': 'listed'}, self.bodies())

    def test_node_of_which_little_was_listed_is_read(self):
        self.replace({'a': 'before'})
        self.replace({'a': None})
        self.ironic['a'] = Node('after')
        self.assertEqual('after', self.read('a').body)

    def test_node_that_changed_is_read_anew(self):
        self.replace({'a': 'before'})
        self.cache.forget('a')
        self.assertNotIn('a', self.cache)
        self.cache.forget('unknown')

    def test_more_nodes(self):
        self.replace({'a': 'node'})
        self.cache.add(rows({'b': 'other'}))
        self.assertEqual({'a': 'node', 'b': 'other'}, self.bodies())

    def test_node_of_an_instance(self):
        self.cache.replace(rows({'a': 1, 'b': 2}, a='i1'))
        self.cache.add(rows({'c': 3}, c='i3'))
        self.assertEqual(['1', '3'], [
            self.cache.of_instance(instance).body
            for instance in ('i1', 'i3')])
        self.assertEqual({'a': 'i1', 'c': 'i3'}, self.cache.instances())
        self.assertEqual([b'1', b'3'], self.made)
        self.cache.forget('a')
        self.cache.add(rows({'c': 3}))
        self.assertEqual([None, None, None], [
            self.cache.of_instance(instance)
            for instance in ('i1', 'i3', 'unknown')])

    def test_ironic_is_asked_once_for_a_node_that_is_mine(self):
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a'))
        del self.ironic['a']
        self.assertEqual(node, self.read('a'))

    def test_node_of_another_is_not_kept(self):
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a', mine=False))
        self.assertEqual({}, self.cache)

    def test_whose_it_is_is_asked_after_ironic_has_answered(self):
        asked = mock.Mock()
        self.cache.read('a', asked.get, asked.is_mine)
        self.assertEqual([mock.call.get('a'), mock.call.is_mine('a')],
                         asked.mock_calls)

    def test_error_of_ironic_is_the_callers(self):
        def fail(uuid):
            raise OSError('refused')

        self.assertRaises(OSError, self.cache.read, 'a', fail, bool)
        self.ironic['a'] = node = Node(1)
        self.assertEqual(node, self.read('a'))

    def test_what_is_listed_while_a_node_is_read_stays(self):
        def get(uuid):
            self.cache.add(rows({uuid: 'newer'}))
            return Node('older')

        self.assertIsNone(self.cache.row('a'))
        self.assertEqual('newer', self.cache.read(
            'a', get, lambda uuid: True).body)
        self.assertEqual('newer', self.cache['a'].body)
        self.assertEqual(rows({'a': 'newer'})['a'], self.cache.row('a'))
        self.cache['a'] = Node('read')
        self.assertIsNone(self.cache.row('a'))

    def test_what_was_read_before_a_change_does_not_come_in_after_it(self):
        reading, answered = threading.Event(), threading.Event()
        before = Node('before')

        def answer(uuid):
            reading.set()
            answered.wait(10)
            return before

        with futures.ThreadPoolExecutor(2) as pool:
            read = pool.submit(
                self.cache.read, 'a', answer, lambda uuid: True)
            reading.wait(10)
            forgotten = pool.submit(self.cache.forget, 'a')
            # Other nodes do not wait for it.
            self.cache.forget('b')
            answered.set()
            self.assertEqual(before, read.result())
            forgotten.result()
        self.assertNotIn('a', self.cache)
