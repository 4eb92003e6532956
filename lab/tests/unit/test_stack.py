# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from lab import stack
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules import model

NODE = cloud_state.Node('uuid-1', 'node-1', None, 'available', False)


class NewTestCase(base.BaseTestCase):

    def observation(self, **more):
        return cloud_state.CloudState(**{'nodes': (NODE,)} | more)

    def test_free_nodes_and_nothing_else(self):
        self.assertTrue(stack.is_new(self.observation(), 1))

    def test_a_server_that_is_gone_leaves_nothing_behind(self):
        gone = cloud_state.CloudServer(
            uuid='server-1', name='gone', vm_state='deleted', deleted=True)
        self.assertTrue(
            stack.is_new(self.observation(instances=(gone,)), 1))

    def test_nodes_are_missing(self):
        self.assertFalse(stack.is_new(self.observation(), 2))

    def test_what_computes_and_servers_leave_behind(self):
        server = cloud_state.CloudServer(
            uuid='server-1', name='name', vm_state='error')
        for kind, one, is_unused in (
            ('services', cloud_state.Service('compute-1', up=False), True),
            ('records', model.Record('uuid-1', 'compute-1'), True),
            ('providers', cloud_state.Provider('uuid-1', 1, 0, 0), True),
            (
                'allocations',
                cloud_state.Allocation('server-1', 'uuid-1'),
                False,
            ),
            ('instances', server, False),
        ):
            seen = self.observation(**{kind: (one,)})
            self.assertFalse(stack.is_new(seen, 1), kind)
            self.assertEqual(is_unused, stack.is_unused(seen, 1), kind)

    def test_nodes_that_cannot_be_had(self):
        for change in ({'instance_uuid': 'server-1'}, {'maintenance': True},
                       {'provision_state': 'clean failed'}):
            node = dataclasses.replace(NODE, **change)
            self.assertFalse(
                stack.is_unused(self.observation(nodes=(node,)), 1), change)
