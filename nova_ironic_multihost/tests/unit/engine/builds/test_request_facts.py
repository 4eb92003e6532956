# SPDX-License-Identifier: Apache-2.0

"""What is known of a message, from nova and from who is there."""

from unittest import mock

from nova_ironic_multihost.engine.builds import request_facts
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post

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
        blind = request_facts.RequestSorter(
            'b', self.auditors['b'], mock.Mock(view=None), self)
        self.assertIsNone(blind.situation(BUILD))
        self.assertIsNone(blind.name('a'))
        self.assertIsNone(self.situation(QueuedRequest(RequestKind.OTHER)))

    def test_how_nova_spells_a_host(self):
        self.assertEqual('a', self.requests.name('a'))
        self.assertIsNone(self.requests.name('nobody'))
        self.assertIsNone(self.requests.name(None))
