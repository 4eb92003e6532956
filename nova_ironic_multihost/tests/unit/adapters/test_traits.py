# SPDX-License-Identifier: Apache-2.0

import json
from unittest import mock

from nova.compute import resource_tracker
from oslo_concurrency import lockutils

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.tests.unit.adapters import base

DISABLED = 'COMPUTE_STATUS_DISABLED'
NODE, OTHER, UNKNOWN = base.NODE, 'other', 'unknown'


class TraitsTestCase(base.TrackerTestCase):

    def setUp(self):
        super().setUp()
        self.traits = placement.TraitWriter(self.tracker)
        self.placement = {NODE: [4, {'CUSTOM_A'}],
                          OTHER: [7, {'CUSTOM_A', DISABLED}]}
        self.puts = []
        self.patch(self.client, 'get', new=self.get)
        self.patch(self.client, 'put', new=self.put)
        self.known = self.client._provider_tree
        self.known.new_root(NODE, NODE, generation=4)
        self.known.update_traits(NODE, ['CUSTOM_A'])

    def get(self, url, version=None, global_request_id=None):
        if url == f'/resource_providers?required={DISABLED}':
            self.assertEqual('1.18', version)
            answer = base.response(200)
            answer.content = json.dumps({'resource_providers': [
                {'uuid': node, 'generation': generation}
                for node, (generation, its) in self.placement.items()
                if DISABLED in its]}).encode()
            return answer
        return self.answer(url, version)

    def put(self, url, data, version=None, global_request_id=None):
        node = self.node(url)
        self.puts.append(node)
        if node not in self.placement:
            return base.response(404)
        if self.placement[node][0] != data['resource_provider_generation']:
            return base.response(409)
        self.placement[node] = [self.placement[node][0] + 1,
                                set(data['traits'])]
        return self.answer(url, version)

    def node(self, url):
        _, kind, node, end = url.split('/')
        self.assertEqual(('resource_providers', 'traits'), (kind, end))
        return node

    def answer(self, url, version):
        node = self.node(url)
        self.assertEqual('1.6', version)
        if node not in self.placement:
            return base.response(404)
        generation, its = self.placement[node]
        return base.response(200, {
            'traits': sorted(its), 'resource_provider_generation': generation})

    def switch(self, disabled, *nodes):
        return self.traits.write(self.traits.read(nodes), disabled)

    def test_which_ones_are_marked(self):
        self.assertEqual({OTHER}, self.traits.disabled())

    def test_mark_and_take_it_back(self):
        self.assertEqual({NODE: 5}, self.switch(True, NODE))
        self.assertEqual([5, {'CUSTOM_A', DISABLED}], self.placement[NODE])
        self.assertEqual({NODE: 6}, self.switch(False, NODE))
        self.assertEqual([6, {'CUSTOM_A'}], self.placement[NODE])

    def test_nothing_is_written_that_is_so(self):
        self.assertEqual({OTHER: 7}, self.switch(True, OTHER))
        self.assertEqual([], self.puts)

    def test_provider_that_nova_does_not_know(self):
        """nova itself raises an error for it, and writes nothing."""
        self.assertRaises(
            ValueError, self.virtapi.update_compute_provider_status,
            names.admin_context(), OTHER, True)
        self.assertEqual([], self.puts)
        self.assertEqual({OTHER: 8}, self.switch(False, OTHER))
        self.assertFalse(self.known.exists(OTHER))

    def test_nothing_is_written_while_nova_writes(self):
        """Placement would answer one of the two with an error."""
        lock = lockutils.internal_fair_lock(
            resource_tracker.COMPUTE_RESOURCE_SEMAPHORE)
        held, put = [], self.client.put
        self.client.put = lambda *args, **kwargs: (
            held.append(lock.is_writer()), put(*args, **kwargs))[1]
        self.switch(True, NODE)
        self.switch(False, NODE)
        self.assertEqual([True, True], held)

    def test_a_claim_waits_for_a_few_of_many(self):
        nodes = [str(number) for number in range(placement.TOGETHER * 2 + 1)]
        self.placement.update({node: [1, set()] for node in nodes})
        some, write = [], self.traits._write_some
        self.patch(self.traits, '_write_some', new=lambda found, disabled: (
            some.append(len(found)), write(found, disabled))[1])
        self.assertEqual(dict.fromkeys(nodes, 2), self.switch(True, *nodes))
        self.assertEqual([placement.TOGETHER, placement.TOGETHER, 1], some)
        self.assertEqual({}, self.switch(True))

    def test_nova_knows_what_was_written(self):
        """Its next write of the provider is not refused."""
        self.switch(True, NODE)
        its = self.known.data(NODE)
        self.assertEqual((5, {'CUSTOM_A', DISABLED}),
                         (its.generation, its.traits))

    def test_nova_finds_out_what_somebody_else_has_changed(self):
        self.placement[NODE] = [9, {'CUSTOM_B'}]
        self.assertEqual({NODE: 10}, self.switch(True, NODE))
        its = self.known.data(NODE)
        self.assertEqual((4, {'CUSTOM_A'}), (its.generation, its.traits))

    def test_provider_that_there_is_not(self):
        found = self.traits.read([NODE, UNKNOWN])
        self.assertEqual([NODE], list(found))
        del self.placement[NODE]
        self.assertEqual({}, self.traits.write(found, True))

    def test_provider_that_has_changed_since(self):
        found = self.traits.read([NODE])
        self.placement[NODE] = [5, {'CUSTOM_B'}]
        self.assertEqual({}, self.traits.write(found, True))
        self.assertEqual([5, {'CUSTOM_B'}], self.placement[NODE])

    def test_errors(self):
        found = self.traits.read([NODE])
        self.client.get = self.client.put = mock.Mock(
            return_value=base.response(503))
        for ask in self.traits.disabled, lambda: self.traits.read([NODE]):
            self.assertRaises(names.VirtDriverNotReady, ask)
        # One that placement does not take keeps no other waiting.
        for status in 400, 409, 500:
            self.client.put = mock.Mock(return_value=base.response(status))
            self.assertEqual({}, self.traits.write(found, True))

    def test_placement_that_is_away_is_not_asked_for_each(self):
        """A proxy says so after a minute, and claims wait for the lock."""
        found = self.traits.read([NODE, OTHER])
        for status in 502, 503, 504:
            self.client.put = mock.Mock(return_value=base.response(status))
            for disabled in True, False:
                self.assertRaises(names.VirtDriverNotReady,
                                  self.traits.write, found, disabled)
            self.assertEqual(2, self.client.put.call_count)
