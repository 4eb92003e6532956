# SPDX-License-Identifier: Apache-2.0

"""A node is reserved while its record moves to the host that pulls it."""

import collections
from unittest import mock

from keystoneauth1 import exceptions as ks_exception
from nova.compute import resource_tracker
from nova import objects
from oslo_concurrency import lockutils
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.tests.unit.adapters import base

NODE, OTHER = NODES = (
    base.NODE, '1be26c0b-03f2-4d2e-ae87-c02d7f33c124')


class Placement:
    """What placement has of two nodes; says in which order it was asked."""

    def __init__(self):
        self.generations = dict.fromkeys(NODES, 4)
        self.inventories = {node: {'CUSTOM_X': {
            'total': 1, 'reserved': 0, 'max_unit': 1}} for node in NODES}
        self.consumers = collections.defaultdict(dict)
        self.asked = []
        #: (what, node) -> what happens right before that is answered.
        self.before = {}
        #: Nodes whose requests a proxy answers, with a page.
        self.proxied = set()

    def reserved(self, node):
        return self.inventories[node]['CUSTOM_X']['reserved']

    def get(self, url, version=None, global_request_id=None):
        node, kind = self._of(url, 'get')
        if kind == 'allocations':
            return base.response(200, {'allocations': self.consumers[node]})
        return self._inventories(node)

    def put(self, url, data, version=None, global_request_id=None):
        node, _ = self._of(url, 'put')
        if node in self.proxied:
            page = base.response(200)
            page.json = mock.Mock(side_effect=ValueError)
            return page
        if version != '1.26':
            return base.response(400)
        if self.generations[node] != data['resource_provider_generation']:
            return base.response(409)
        self.inventories[node] = data['inventories']
        self.generations[node] += 1
        return self._inventories(node)

    def allocate(self, node):
        self.consumers[node] = {'server': {}}
        self.generations[node] += 1

    def _inventories(self, node):
        return base.response(200, {
            'inventories': self.inventories[node],
            'resource_provider_generation': self.generations[node]})

    def _of(self, url, verb):
        _, _, node, kind = url.split('/')
        self.asked.append((verb, node, kind))
        for act in self.before.pop((verb, node, kind), ()):
            act()
        return node, kind


class PullTestCase(base.TrackerTestCase):
    """Two nodes of host-2, pulled by host-1."""

    def setUp(self):
        super().setUp()
        self.placement = Placement()
        self.patch(self.client, 'get', new=self.placement.get)
        self.patch(self.client, 'put', new=self.placement.put)
        self.rt.service_ref = objects.Service(id=5)
        self.saved, self.lost, self.judged = [], set(), []
        #: Nodes that others have got.
        self.gone = set()
        self.reserved = {}
        self.patch(objects.ComputeNode, 'save', autospec=True,
                   side_effect=self.save)

    def held(self):
        return lockutils.internal_fair_lock(
            resource_tracker.COMPUTE_RESOURCE_SEMAPHORE).owner is not None

    def save(self, row):
        self.assertTrue(self.held())
        self.reserved[row.uuid] = self.placement.reserved(row.uuid)
        if row.uuid in self.lost:
            raise messaging.MessagingTimeout
        self.saved.append((row.uuid, row.obj_get_changes()))

    def judge(self, nodes):
        self.judged.append(nodes)
        self.assertTrue(self.held())
        records = []
        for node in nodes:
            if node in self.gone:
                continue
            row = objects.ComputeNode(
                uuid=node, hypervisor_hostname=node, host='host-2',
                service_id=2, stats={})
            row.obj_reset_changes()
            records.append(Record(node, 'host-2', row=row))
        return records

    def pull(self, judge=None):
        return self.tracker.pull(NODES, judge or self.judge)

    def test_answer_that_is_none(self):
        self.placement.proxied = {OTHER}
        self.assertEqual({NODE}, self.pull())
        self.assertEqual(0, self.placement.reserved(NODE))

    def test_reserved_while_its_record_moves_and_no_longer(self):
        self.assertEqual(set(NODES), self.pull())
        self.assertEqual(dict.fromkeys(NODES, 1), self.reserved)
        self.assertEqual([0, 0], [*map(self.placement.reserved, NODES)])
        self.assertCountEqual(
            [(node, {'host': 'host-1', 'service_id': 5}) for node in NODES],
            self.saved)
        self.assertEqual(set(NODES), set(self.rt.compute_nodes))
        # For all of them, before and after they are reserved.
        self.assertEqual([list(NODES)] * 2, self.judged)
        self.assertEqual(4 * len(NODES), len(self.placement.asked))

    def test_known_to_the_tracker_when_it_can_be_claimed(self):
        known = []
        self.placement.before['put', NODE, 'inventories'] = [
            lambda: self.placement.before.update({
                ('put', NODE, 'inventories'): [lambda: known.append(
                    (self.tracker.has(NODE), self.held()))]})]
        self.pull()
        self.assertEqual([(True, True)], known)

    def test_what_nova_knew_of_the_provider_is_forgotten(self):
        self.client._provider_tree.new_root(NODE, NODE, generation=4)
        self.pull()
        self.assertFalse(self.client._provider_tree.exists(NODE))

    def test_build_that_was_sent_to_the_owner_before(self):
        self.placement.allocate(NODE)
        self.assertEqual({OTHER}, self.pull())
        self.assertEqual([[OTHER]] * 2, self.judged)

    def test_build_that_is_sent_there_at_any_time_comes_first(self):
        for moment in (('get', NODE, 'allocations'),
                       ('put', NODE, 'inventories')):
            self.placement.consumers.clear()
            self.saved.clear()
            self.rt.compute_nodes.clear()
            self.placement.before[moment] = [
                lambda: self.placement.allocate(NODE)]
            self.assertEqual({OTHER}, self.pull())
            self.assertEqual([OTHER], [node for node, _ in self.saved])
            self.assertEqual(0, self.placement.reserved(NODE))

    def test_another_host_that_pulls_it_at_the_same_time(self):
        """Its record is as it was when that was read; then it is another's."""
        def judge(nodes):
            records = self.judge(nodes)
            for make in (True, False):
                one = self.other
                self.assertTrue(one.make() if make else one.end())
            return records

        self.other = placement.of_idle(self.client, NODE)
        self.assertEqual({OTHER}, self.pull(judge))
        self.assertEqual([OTHER], [node for node, _ in self.saved])

    def test_node_that_is_not_to_be_had(self):
        self.gone = {NODE}
        self.assertEqual({OTHER}, self.pull())
        self.assertEqual(4, self.placement.generations[NODE])
        self.assertFalse(self.tracker.has(NODE))

    def test_node_that_others_get_before_placement_answers(self):
        """Its record stays theirs, and it is offered as before."""
        self.placement.before['put', NODE, 'inventories'] = [
            lambda: self.gone.add(NODE)]
        self.assertEqual({OTHER}, self.pull())
        self.assertEqual([OTHER], [node for node, _ in self.saved])
        self.assertEqual([0, 0], [*map(self.placement.reserved, NODES)])
        self.assertFalse(self.tracker.has(NODE))

    def test_records_that_cannot_be_read_again(self):
        """Nothing is taken, and all is offered as before."""
        def judge(nodes):
            if self.judged:
                raise messaging.MessagingTimeout
            return self.judge(nodes)

        self.assertRaises(messaging.MessagingTimeout, self.pull, judge)
        self.assertEqual([], self.saved)
        self.assertEqual([0, 0], [*map(self.placement.reserved, NODES)])

    def test_record_whose_write_is_lost_stays_reserved(self):
        """Who has it is not known; whoever audits it next ends that."""
        self.lost = {NODE}
        self.assertEqual({OTHER}, self.pull())
        self.assertEqual([1, 0], [*map(self.placement.reserved, NODES)])
        self.assertFalse(self.tracker.has(NODE))

    def test_reservation_that_cannot_be_ended(self):
        """It is this host's, and its audit has it offered."""
        self.placement.before['put', NODE, 'inventories'] = [
            lambda: self.placement.before.update({
                ('put', NODE, 'inventories'): [
                    lambda: self.placement.generations.update({NODE: 9})]})]
        self.assertEqual(set(NODES), self.pull())
        self.assertEqual([1, 0], [*map(self.placement.reserved, NODES)])
        self.assertTrue(self.tracker.has(NODE))

    def test_what_is_not_offered_is_not_known_to_be_free(self):
        for inventories in ({}, {'CUSTOM_X': {'total': 1, 'reserved': 1}}):
            self.placement.inventories[NODE] = inventories
            self.assertIsNone(placement.of_idle(self.client, NODE))

    def test_placement_that_does_not_answer(self):
        one = placement.of_idle(self.client, NODE)
        answers = [{'side_effect': ks_exception.ConnectFailure()},
                   {'return_value': base.response(503)}]
        for answer in answers:
            self.patch(self.client, 'put', **answer)
            self.assertFalse(one.make())
            self.assertEqual(set(), self.pull())
            self.assertEqual([], self.saved)
        self.judged.clear()
        for answer in answers:
            self.patch(self.client, 'get', **answer)
            self.assertIsNone(placement.of_idle(self.client, NODE))
            self.assertEqual(set(), self.pull())
        self.assertEqual([], self.judged)

    def test_nothing_is_pulled_without_nodes(self):
        self.assertEqual(set(), self.tracker.pull([], self.judge))
