# SPDX-License-Identifier: Apache-2.0

"""What nova does on behalf of this package."""

import functools
from unittest import mock

import fixtures
from nova.compute import manager
from nova.compute import provider_tree
from nova.compute import resource_tracker
from nova import objects
from oslo_concurrency import lockutils
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.tests.unit.adapters import base

NODE = base.NODE


class TrackerTestCase(base.TrackerTestCase):

    def test_the_driver_reaches_the_manager(self):
        self.assertIs(self.client, self.tracker.report_client)

    def test_a_driver_on_its_own_has_no_tracker(self):
        tracker = nova_tracker.NovaTracker(None)
        self.assertFalse(tracker.has(NODE))
        tracker.drop(NODE)

    def test_nothing_is_forgotten_while_placement_is_told_of_it(self):
        """A delete would end in ERROR: its node is not known any more."""
        lock = lockutils.internal_fair_lock(
            resource_tracker.COMPUTE_RESOURCE_SEMAPHORE)
        held = []
        self.useFixture(fixtures.MockPatchObject(
            self.client, 'invalidate_resource_provider',
            lambda node: held.append(lock.is_writer())))
        rt = self.tracker._manager.rt
        self.useFixture(fixtures.MockPatchObject(
            rt, 'remove_node', lambda node: held.append(lock.is_writer())))
        self.tracker.refresh(NODE)
        rt.compute_nodes[NODE] = mock.sentinel.record
        self.tracker.drop(NODE)
        self.assertEqual([True, True, True], held)

    def test_generation_is_read_anew(self):
        self.client._provider_tree.new_root(NODE, NODE, generation=3)
        inventory = {'CUSTOM_BAREMETAL': {'total': 1, 'reserved': 0}}
        asked = self.patch(self.client, 'get', return_value=base.response(
            200, {'inventories': inventory,
                  'resource_provider_generation': 7}))
        self.tracker.renew(NODE)
        asked.assert_called_once_with(
            f'/resource_providers/{NODE}/inventories',
            global_request_id=mock.ANY)
        known = self.client._provider_tree.data(NODE)
        self.assertEqual((7, inventory), (known.generation, known.inventory))

    def test_what_was_known_stays_if_placement_does_not_answer(self):
        self.client._provider_tree.new_root(NODE, NODE, generation=3)
        asked = self.patch(self.client, 'get')
        for answer in (base.response(503, {}), base.response(404, {})):
            asked.return_value = answer
            self.tracker.renew(NODE)
            self.assertEqual(
                3, self.client._provider_tree.data(NODE).generation)

    def test_provider_that_another_thread_has_forgotten(self):
        self.patch(self.client, 'get', return_value=base.response(
            200, {'inventories': {}, 'resource_provider_generation': 7}))
        self.tracker.renew(NODE)

    def test_records_at_hand(self):
        self.assertFalse(self.tracker.has(NODE))
        self.rt.compute_nodes[NODE] = objects.ComputeNode()
        self.assertTrue(self.tracker.has(NODE))

    def test_of_each_record_there_is_one_row(self):
        unknown, tracked = self.record(), self.record()
        self.assertIs(unknown.row, self.tracker.at_hand([unknown])[0].row)
        self.tracker.fill([tracked])
        read = self.record(partition='now')
        [found] = self.tracker.at_hand([read])
        self.assertEqual((read, True), (found, found.row is tracked.row))

    def test_a_row_of_another_host_or_another_record_is_none_of_its(self):
        self.tracker.fill([self.record()])
        for row in (objects.ComputeNode(id=7, host='host-2'),
                    objects.ComputeNode(id=8, host='host-1')):
            [found] = self.tracker.at_hand([Record(NODE, row.host, row=row)])
            self.assertIs(row, found.row)

    def test_audit_of_one_node(self):
        self.assertEqual(
            ['self', 'context', 'nodename', 'startup'], base.parameters(
                manager.ComputeManager._update_available_resource_for_node))
        audited = self.patch(self.rt, 'update_available_resource')
        self.compute._update_available_resource_for_node = functools.partial(
            manager.ComputeManager._update_available_resource_for_node,
            self.compute)
        self.tracker.audit(NODE)
        audited.assert_called_once_with(mock.ANY, NODE, startup=False)
        self.assertTrue(audited.call_args.args[0].is_admin)
        # Errors are nova's to log.
        audited.side_effect = OSError('refused')
        self.tracker.audit(NODE)

    def test_node_that_the_tracker_forgets(self):
        self.client._association_refresh_time[NODE] = 1.0
        self.rt.compute_nodes[NODE] = objects.ComputeNode()
        for _ in range(2):
            self.tracker.drop(NODE)
            self.assertFalse(self.tracker.has(NODE))
            self.assertNotIn(NODE, self.client._association_refresh_time)

    def test_placement_is_asked_again_for_what_was_forgotten(self):
        self.client._association_refresh_time[NODE] = 1.0
        self.tracker.refresh(NODE)
        self.assertNotIn(NODE, self.client._association_refresh_time)

    def record(self, **stats):
        return Record(NODE, 'host-1', row=objects.ComputeNode(
            id=7, uuid=NODE, hypervisor_hostname=NODE, host='host-1',
            numa_topology=None, memory_mb=0, memory_mb_used=0, local_gb=0,
            local_gb_used=0, vcpus=0, vcpus_used=0, stats=stats))

    def build(self):
        """Claim the node for a build, as nova does."""
        self.patch(self.rt, '_set_instance_host_and_node')
        updated = self.patch(self.rt, '_update')
        # Else nova asks for its volumes.
        self.rt.is_bfv[uuidsentinel.instance] = False
        context = names.admin_context()
        self.rt.instance_claim(context, objects.Instance(
            context, id=1, uuid=uuidsentinel.instance, host=None, node=None,
            vm_state='building', task_state=None, os_type=None,
            project_id='p', numa_topology=None, migration_context=None,
            flavor=objects.Flavor(
                memory_mb=2, root_gb=3, ephemeral_gb=0, vcpus=1, swap=0,
                extra_specs={}),
            pci_requests=objects.InstancePCIRequests(requests=[]),
            image_ref='image', system_metadata={}),
            NODE, {NODE: {'resources': {'CUSTOM_X': 1}}})
        return updated.call_args.args[1]

    def test_build_on_a_node_that_was_not_audited(self):
        self.tracker.fill([self.record(
            cpu_arch='x86_64', num_instances='1', num_vm_active='1',
            io_workload='0', failed_builds='2', partition='p1')])
        self.assertTrue(self.tracker.has(NODE))
        claimed = self.build()
        self.assertEqual(
            {'cpu_arch': 'x86_64', 'partition': 'p1', 'num_instances': '1',
             'num_vm_building': '1', 'io_workload': '1',
             # nova's scheduler avoids it as before.
             'failed_builds': '2'},
            {name: value for name, value in claimed.stats.items()
             if name in ('cpu_arch', 'partition', 'num_instances',
                         'num_vm_active', 'num_vm_building', 'io_workload',
                         'failed_builds')})
        self.assertEqual(2, claimed.memory_mb_used)

    def test_records_are_moved_as_they_are(self):
        other, lost = uuidsentinel.other, uuidsentinel.lost
        refused = uuidsentinel.refused
        saved, self.moved, barred = [], [], []
        self.tracker = nova_tracker.NovaTracker(
            self.virtapi, lambda *move: self.moved.append(move),
            lambda node, exc: barred.append(node))

        def held():
            return lockutils.internal_fair_lock(
                resource_tracker.COMPUTE_RESOURCE_SEMAPHORE).owner is not None

        def save(row):
            # A claim waits: builds are sent here from now on.
            self.assertTrue(held())
            if row.uuid == lost:
                raise messaging.MessagingTimeout
            if row.uuid == refused:
                raise messaging.RemoteError('DBDuplicateEntry', 'key')
            saved.append((row.uuid, row.obj_get_changes()))

        self.patch(objects.ComputeNode, 'save', autospec=True,
                   side_effect=save)
        self.rt.service_ref = objects.Service(id=5)
        records = []

        def judge(nodes):
            # What has the lock before may take long.
            self.assertTrue(held())
            return [record for record in records if record.node in nodes]

        for node in (NODE, other, lost, refused):
            row = objects.ComputeNode(
                uuid=node, hypervisor_hostname=node, host='host-2',
                service_id=2, stats={'cpu_arch': 'x86_64'})
            row.obj_reset_changes()
            records.append(Record(node, 'host-2', row=row))
        self.assertEqual(
            {NODE, other}, self.tracker.move(
                [NODE, other, lost, refused], judge))
        self.assertCountEqual(
            [(NODE, True), (other, True), (lost, False), (refused, False)],
            self.moved)
        self.assertEqual([refused], barred)
        self.assertCountEqual(
            [(node, {'host': 'host-1', 'service_id': 5})
             for node in (NODE, other)], saved)
        self.assertEqual({NODE, other}, set(self.rt.compute_nodes))
        self.assertEqual('x86_64', self.rt.stats[NODE]['cpu_arch'])
        self.assertEqual(set(), self.tracker.move([], judge))
        self.assertEqual(
            set(), self.tracker.move([NODE], lambda nodes: []))

    def test_providers_that_nobody_has_changed(self):
        tree, other = self.client._provider_tree, uuidsentinel.other
        tree.new_root(NODE, NODE, generation=3)
        tree.new_root(other, other, generation=3)
        asked = []

        def generation(client, node):
            asked.append(node)
            return {NODE: 3, other: 4}[node]

        self.patch(db, 'generation', new=generation)
        self.assertEqual({NODE}, self.tracker.unchanged(
            [NODE, other, uuidsentinel.unknown]))
        self.assertCountEqual([NODE, other], asked)
        self.assertEqual(set(), self.tracker.unchanged([uuidsentinel.none]))
        self.patch(db, 'generation', return_value=None)
        self.assertEqual(set(), self.tracker.unchanged([NODE]))

    def test_what_the_tracker_knows_stays(self):
        known = self.rt.compute_nodes[NODE] = objects.ComputeNode()
        tree = self.rt.provider_tree = provider_tree.ProviderTree()
        self.tracker.fill([self.record()])
        self.assertIs(known, self.rt.compute_nodes[NODE])
        self.assertIs(tree, self.rt.provider_tree)

    def test_claims_wait_for_some_records_only(self):
        filled = self.patch(self.tracker, '_fill')
        with mock.patch.object(nova_tracker, 'FILL_BATCH', 2):
            self.tracker.fill(iter('abcde'))
        self.assertEqual([['a', 'b'], ['c', 'd'], ['e']], [
            call.args[0] for call in filled.call_args_list])
