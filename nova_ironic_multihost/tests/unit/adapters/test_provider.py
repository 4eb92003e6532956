# SPDX-License-Identifier: Apache-2.0

"""What the driver changes in placement's resource provider of a node."""

from unittest import mock

import fixtures
from nova.compute import provider_tree as nova_tree
from nova.compute import resource_tracker
from nova import objects
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE


class ReserveTestCase(oslo_base.BaseTestCase):

    def test_nothing_of_a_node_is_offered(self):
        tree = nova_tree.ProviderTree()
        tree.new_root(NODE, NODE)
        tree.update_inventory(NODE, {
            'CUSTOM_BAREMETAL': {'total': 1, 'reserved': 0, 'max_unit': 1},
            'CUSTOM_EMPTY': {'total': 0, 'reserved': 0}})
        placement.reserve(tree, NODE)
        self.assertEqual({
            'CUSTOM_BAREMETAL': {'total': 1, 'reserved': 1, 'max_unit': 1},
            'CUSTOM_EMPTY': {'total': 0, 'reserved': 0}},
            tree.data(NODE).inventory)


class RenewedTestCase(oslo_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.tree = nova_tree.ProviderTree()
        self.tree.new_root(NODE, NODE)
        self.tree.update_inventory(NODE, self.inventory(0))
        self.tracker = mock.Mock()

    @staticmethod
    def inventory(reserved):
        return {'CUSTOM_BAREMETAL': {'total': 1, 'reserved': reserved}}

    def report(self, reserved, error=None):
        with placement.renewed(self.tree, NODE, self.tracker):
            self.tree.update_inventory(NODE, self.inventory(reserved))
            if error:
                raise error

    def test_what_changes_is_written_by_the_generation_of_now(self):
        self.report(1)
        self.tracker.renew.assert_called_once_with(NODE)

    def test_placement_is_not_asked_if_nothing_changes(self):
        self.report(0)
        self.tracker.renew.assert_not_called()

    def test_node_on_its_way_is_written_by_the_generation_of_before(self):
        self.tracker.has.return_value = False
        self.report(1)
        self.tracker.renew.assert_not_called()

    def test_what_fails_writes_nothing(self):
        self.assertRaises(KeyError, self.report, 1, KeyError)
        self.tracker.renew.assert_not_called()


class FollowAggregatesTestCase(oslo_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.tree = nova_tree.ProviderTree()
        self.tree.new_root(NODE, NODE)
        self.audit = mock.Mock(
            view=mock.Mock(host='me', services={'me': None, 'other': None}),
            host_aggregates=peers.KnownAggregates().after((
                peers.Aggregate.of('ours', frozenset({'me'})),
                peers.Aggregate.of('theirs', frozenset({'other'})))))
        self.asked = self.useFixture(fixtures.MockPatchObject(
            db, 'provider_aggregates')).mock

    def follow(self, copy, current=None):
        self.tree.update_aggregates(NODE, copy)
        self.asked.return_value = current
        placement.follow_aggregates(
            self.tree, NODE, self.audit,
            mock.Mock(report_client=mock.sentinel.client))
        return self.tree.data(NODE).aggregates

    def test_placement_is_not_asked_when_all_is_as_it_should_be(self):
        self.assertEqual({'ours', 'x'}, self.follow({'ours', 'x'}))
        self.asked.assert_not_called()

    def test_what_others_set_since_stays(self):
        self.assertEqual({'ours', 'x'},
                         self.follow({'theirs'}, frozenset({'theirs', 'x'})))
        self.asked.assert_called_once_with(
            mock.sentinel.client, NODE)

    def test_nothing_changes_when_placement_does_not_answer(self):
        self.assertEqual({'theirs'}, self.follow({'theirs'}))


class NovaTestCase(base.TrackerTestCase):

    def test_change_of_aggregates_reaches_placement(self):
        put = self.update_to_placement([base.response(200, {
            'aggregates': ['rack'], 'resource_provider_generation': 8})])
        put.assert_called_once_with(
            f'/resource_providers/{NODE}/aggregates',
            {'aggregates': ['rack'], 'resource_provider_generation': 7},
            version=mock.ANY, global_request_id=mock.ANY)

        # The driver wants again what is there.
        put = self.update_to_placement([])
        put.assert_not_called()

    def test_driver_is_asked_again_if_a_provider_changed_meanwhile(self):
        put = self.update_to_placement([
            base.response(409), base.response(200, {
                'aggregates': ['rack'], 'resource_provider_generation': 8})])
        self.assertEqual(2, put.call_count)
        self.assertEqual(2, self.driver.update_provider_tree.call_count)

    def update_to_placement(self, answers):
        """Let nova report a node of which the driver wants aggregate rack.

        :param answers: placement's, to requests that change something.
        :returns: the mock that takes these requests.
        """
        def ensure(*args, **kwargs):
            if not self.client._provider_tree.exists(NODE):
                self.client._provider_tree.new_root(NODE, NODE, generation=7)

        self.patch(self.client, '_ensure_resource_provider',
                   side_effect=ensure)
        self.patch(self.client, 'get_allocations_for_provider_tree',
                   return_value={})
        self.patch(self.rt, '_get_traits', return_value=[])
        self.patch(resource_tracker.pci_placement_translator,
                   'update_provider_tree_for_pci', return_value=False)
        self.driver.update_provider_tree.side_effect = (
            lambda tree, node: tree.update_aggregates(node, {'rack'}))
        put = self.patch(self.client, 'put', side_effect=answers)
        self.rt._update_to_placement(
            names.admin_context(),
            objects.ComputeNode(uuid=NODE, hypervisor_hostname=NODE), False)
        return put
