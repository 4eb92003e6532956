# SPDX-License-Identifier: Apache-2.0

"""Instances change their compute while operations on them are under way."""

from concurrent import futures
import time

import fixtures
from keystoneauth1 import session
from nova.compute import rpcapi
from nova.compute import task_states
from nova import context
from nova import exception
from nova.objects import compute_node
from nova.objects import instance as instance_object
from nova.objects import instance_action
from nova.objects import instance_fault
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost import exception as multihost_exception
from nova_ironic_multihost.tests.functional import base
from nova_ironic_multihost.tests.functional import hold

#: Operations that nobody waits for -> what is sent along, task state that
#: nova's API sets before.
CASTS = {
    'reboot_instance': ({'block_device_info': None, 'reboot_type': 'HARD'},
                        task_states.REBOOTING_HARD),
    'stop_instance': ({'clean_shutdown': False}, task_states.POWERING_OFF),
    'start_instance': ({}, task_states.POWERING_ON),
    'terminate_instance': ({'bdms': []}, task_states.DELETING),
    'soft_delete_instance': ({}, task_states.SOFT_DELETING),
    'restore_instance': ({}, task_states.RESTORING),
    'rebuild_instance': ({
        'orig_image_ref': '', 'image_ref': '', 'injected_files': [],
        'new_pass': '', 'orig_sys_metadata': {}, 'bdms': [],
        'recreate': False, 'on_shared_storage': None,
        'preserve_ephemeral': False, 'migration': None,
        'scheduled_node': None, 'limits': None, 'request_spec': None,
        'accel_uuids': []}, task_states.REBUILDING),
    'rescue_instance': ({
        'rescue_password': '', 'rescue_image_ref': '',
        'clean_shutdown': False}, task_states.RESCUING),
    'unrescue_instance': ({}, task_states.UNRESCUING),
    'pause_instance': ({}, task_states.PAUSING),
    'suspend_instance': ({}, task_states.SUSPENDING),
    'detach_interface': ({'port_id': 'port'}, None),
    'attach_volume': ({'bdm': None}, None),
    'detach_volume': ({'volume_id': 'volume', 'attachment_id': None}, None),
    'inject_network_info': ({}, None),
    'trigger_crash_dump': ({}, None),
}

#: Operations whose sender waits -> what is sent along, what he gets.
CALLS = {
    'attach_interface': ({
        'network_id': None, 'port_id': None, 'requested_ip': None,
        'tag': None}, exception.InstanceInvalidState),
    'set_admin_password': ({'new_pass': ''}, exception.InstanceInvalidState),
    'reserve_block_device_name': ({
        'device': None, 'volume_id': 'volume', 'disk_bus': None,
        'device_type': None, 'tag': None, 'multiattach': False},
        exception.InstanceInvalidState),
    'get_serial_console': ({'console_type': 'serial'},
                           exception.InstanceNotReady),
    'get_vnc_console': ({'console_type': 'novnc'},
                        exception.InstanceNotReady),
}


class OldOwnerTestCase(base.MultiHostTestCase):
    """A server of host1, which becomes host2's behind its back."""

    def setUp(self):
        super().setUp()
        self.ironic.enroll(2)
        self.requests = self.listen()
        self.fleet.start('host1', 'host2')
        self.settle()
        # Who hears nothing finds that nothing was asked for.
        self.assertNotEqual([], self.requests)

    def listen(self):
        """Return the list to which what Ironic is asked for is added."""
        requests = []
        send = session.Session.request

        def listen_and_send(self, url, method, **kwargs):
            # nova adds the version of the API to it.
            if (kwargs.get('endpoint_override') or '').startswith(endpoint):
                requests.append((method, url))
            return send(self, url, method, **kwargs)

        endpoint = self.ironic.endpoint
        self.useFixture(fixtures.MockPatchObject(
            session.Session, 'request', listen_and_send))
        return requests

    def in_cell(self):
        return context.target_cell(
            context.get_admin_context(), self.cell_mappings['cell1'])

    def instance(self, server):
        """Return the instance as nova's database has it."""
        with self.in_cell() as ctxt:
            return instance_object.Instance.get_by_uuid(ctxt, server['id'])

    def take_over(self, server, **changes):
        """Let an instance belong to host2 from now on."""
        instance = self.instance(server)
        for name, value in ({'host': 'host2'} | changes).items():
            setattr(instance, name, value)
        instance.save()

    def wait_for_no_conductor(self):
        """Let the patience of host1 be over."""
        self.useFixture(fixtures.MockPatchObject(
            self.fleet.manager('host1').driver.service.guard, '_patience',
            return_value=0))

    def replay(self, server, operation, arguments):
        """Let host1 get what waited for it; return when it is done."""
        with self.in_cell() as ctxt:
            client = rpcapi.ComputeAPI().router.client(ctxt).prepare(
                server='host1')
            return client.call(ctxt, operation,
                               instance=self.instance(server), **arguments)

    def state(self, server):
        """Return all that an operation leaves on an instance and a node."""
        with self.in_cell() as ctxt:
            row = self.instance(server)
            node = self.ironic.client.node.get(row.node)
            actions = instance_action.InstanceActionList.get_by_instance_uuid(
                ctxt, row.uuid)
            return {
                'instance': {
                    name: str(getattr(row, name)) for name in (
                        'host', 'node', 'vm_state', 'task_state',
                        'power_state', 'updated_at', 'deleted')},
                'faults': [
                    fault.message for fault in
                    instance_fault.InstanceFaultList.get_by_instance_uuids(
                        ctxt, [row.uuid])],
                'actions': [
                    (action.action, action.message, str(action.updated_at))
                    for action in actions],
                'events': [
                    (event.event, event.host, event.result)
                    for action in actions for event in
                    instance_action.InstanceActionEventList.get_by_action(
                        ctxt, action.id)],
                'allocations': self._get_allocations_by_server_uuid(row.uuid),
                'node': (node.instance_uuid, node.provision_state,
                         node.power_state, node.target_power_state)}


class QueueTestCase(OldOwnerTestCase):

    def setUp(self):
        super().setUp()
        self.server = self.boot('host1')

    def test_what_waited_is_not_carried_out(self):
        for operation, (arguments, task_state) in CASTS.items():
            with self.subTest(operation):
                self.take_over(self.server, task_state=task_state)
                before = self.state(self.server)
                self.replay(self.server, operation, arguments)
                self.assertEqual(before, self.state(self.server))

    def test_queue_of_a_compute_that_returns(self):
        self.fleet.kill('host1')
        self.api.post_server_action(self.server['id'], {'os-stop': None})
        self.take_over(self.server, task_state=None)
        before = self.state(self.server)
        self.fleet.start('host1')
        deadline = time.monotonic() + base.DEADLINE
        while 'stop_instance is not' not in self.stdlog.logger.output:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual(before, self.state(self.server))

    def test_who_waits_gets_an_answer(self):
        self.take_over(self.server)
        before = self.state(self.server)
        for operation, (arguments, answer) in CALLS.items():
            with self.subTest(operation):
                self.assertRaises(answer, self.replay, self.server,
                                  operation, arguments)
                self.assertEqual(before, self.state(self.server))
        self.assertNotIn('Traceback', self.stdlog.logger.output)

    def test_the_new_owner_carries_it_out(self):
        self.take_over(self.server)
        self.settle()
        node = self.node_of(self.server)
        self.api.post_server_action(self.server['id'], {'os-stop': None})
        self.wait_for_status(self.server, 'SHUTOFF')
        self.ironic.wait_for([node], power_state='power off')
        self.api.post_server_action(self.server['id'], {'os-start': None})
        self.wait_for_status(self.server, 'ACTIVE')
        self.api.post_server_action(
            self.server['id'], {'reboot': {'type': 'HARD'}})
        self.assertEqual('ACTIVE', self.wait_for_end(self.server))
        self.delete(self.server)
        self.ironic.wait_for([node], provision_state='available',
                             instance_uuid=None)

    def test_what_is_its_own_is_carried_out(self):
        self.take_over(self.server, host='host1',
                       task_state=task_states.POWERING_OFF)
        self.requests.clear()
        self.replay(self.server, 'stop_instance', {'clean_shutdown': False})
        self.assertIn('PUT', [method for method, _ in self.requests])
        self.assertEqual('SHUTOFF', self.show(self.server)['status'])

    def test_what_cannot_be_known_is_not_carried_out(self):
        self.wait_for_no_conductor()
        before = self.state(self.server)
        with fixtures.MockPatchObject(
                db, 'instance_states',
                side_effect=messaging.MessagingTimeout('cut off')):
            self.assertRaises(
                messaging.MessagingTimeout, self.replay, self.server,
                'stop_instance', {'clean_shutdown': False})
        self.assertEqual(before, self.state(self.server))


class FrozenTestCase(OldOwnerTestCase):
    """host1 stands still in the middle of something."""

    def freeze(self, target, method, after=False):
        """Let host1 stand still before a method, or after it."""
        held = hold.Hold()
        inherited = getattr(target, method)

        def stand_still(*args, **kwargs):
            if not after:
                held.wait_here()
            try:
                result = inherited(*args, **kwargs)
                if after:
                    held.wait_here()
                return result
            finally:
                held.leave()

        self.useFixture(fixtures.MockPatchObject(target, method, stand_still))
        self.addCleanup(held.release)
        return held

    def changes(self):
        """Return what Ironic was asked to change."""
        return [(method, path) for method, path in self.requests
                if method != 'GET']

    def assertNobodyTouched(self, before, server):
        """Assert that all is as it was, and Ironic was asked for nothing."""
        after = self.state(server)
        for name in ('instance', 'faults', 'allocations', 'node'):
            self.assertEqual(before[name], after[name], name)
        self.assertEqual([], self.changes())

    def test_operation_ends_where_it_is(self):
        server = self.boot('host1')
        held = self.freeze(self.fleet.manager('host1').driver, 'power_off')
        with futures.ThreadPoolExecutor() as pool:
            done = pool.submit(self.replay, server, 'stop_instance', {
                'clean_shutdown': False})
            held.arrived()
            self.take_over(server, task_state=task_states.REBOOTING)
            before = self.state(server)
            self.requests.clear()
            held.release()
            self.assertIsNone(done.result())
        self.assertNobodyTouched(before, server)

    def test_compute_that_is_cut_off_changes_nothing(self):
        server = self.boot('host1')
        self.wait_for_no_conductor()
        held = self.freeze(self.fleet.manager('host1').driver, 'power_off')
        with futures.ThreadPoolExecutor() as pool:
            done = pool.submit(self.replay, server, 'stop_instance', {
                'clean_shutdown': False})
            held.arrived()
            before = self.state(server)
            self.requests.clear()
            with fixtures.MockPatchObject(
                    db, 'instance_states',
                    side_effect=messaging.MessagingTimeout('cut off')):
                held.release()
                self.assertIsNone(done.result())
        after = self.state(server)
        self.assertEqual(before['instance'], after['instance'])
        self.assertEqual([], self.changes())

    def test_delete_ends_where_it_is(self):
        server = self.boot('host1')
        held = self.freeze(self.fleet.manager('host1').driver, 'destroy')
        with futures.ThreadPoolExecutor() as pool:
            done = pool.submit(
                self.replay, server, 'terminate_instance', {'bdms': []})
            held.arrived()
            self.take_over(server)
            before = self.state(server)
            self.requests.clear()
            held.release()
            self.assertIsNone(done.result())
        self.assertNobodyTouched(before, server)

    def test_build_ends_before_it_takes_the_node(self):
        self._test_build_ends('prepare_for_spawn')

    def test_build_ends_before_it_deploys(self):
        self._test_build_ends('spawn')

    def test_build_ends_when_it_is_deployed(self):
        self._test_build_ends('spawn', after=True)

    def test_build_writes_nothing_over_what_the_new_owner_has_written(self):
        """nova says what it attaches next, whatever is there."""
        self._test_build_ends(
            'prepare_networks_before_block_device_mapping', after=True)

    def test_build_ends_before_it_claims_what_was_claimed(self):
        self._test_build_ends('_set_instance_host_and_node', target=(
            self.fleet.manager('host1').rt), node=True)

    def test_build_ends_that_another_is_about_to_begin_again(self):
        for method in 'prepare_for_spawn', 'spawn':
            self._test_build_ends(
                method, host=None, task_state=task_states.SCHEDULING)

    def test_build_is_not_cleaned_up_after_when_it_fails(self):
        def fail(*args, **kwargs):
            raise exception.InstanceDeployFailure(reason='broken')

        driver = self.fleet.manager('host1').driver
        self.useFixture(fixtures.MockPatchObject(driver, 'spawn', fail))
        self._test_build_ends('spawn')

    def _test_build_ends(self, method, after=False, target=None, node=False,
                         task_state=task_states.REBUILD_SPAWNING, **changes):
        compute = self.fleet.manager('host1')
        held = self.freeze(target or compute.driver, method, after)
        ended = self.freeze(compute, '_do_build_and_run_instance')
        ended.release()
        server = self.request_server('host1')
        held.arrived()
        if node:
            [changes['node']] = self._get_allocations_by_server_uuid(
                server['id'])
            changes['compute_id'] = compute_node.ComputeNode.get_by_uuid(
                context.get_admin_context(), changes['node']).id
        self.take_over(server, task_state=task_state, **changes)
        before = self.state(server)
        self.requests.clear()
        held.release()
        ended.done()
        self.assertNobodyTouched(before, server)

    def test_machine_of_a_deleted_server_is_the_node_owners(self):
        server = self.boot('host1')
        instance = self.instance(server)
        instance.destroy()
        driver = self.fleet.manager('host1').driver
        with self.in_cell() as ctxt:
            record = compute_node.ComputeNode.get_by_uuid(ctxt, instance.node)
            record.host = 'host2'
            record.save()
            self.assertRaises(
                multihost_exception.InstanceElsewhere, driver.destroy,
                ctxt, instance, [])
            self.assertEqual('active', self.ironic.client.node.get(
                instance.node).provision_state)
            record.host = 'host1'
            record.save()
            driver.destroy(ctxt, instance, [])
        self.ironic.wait_for([instance.node], instance_uuid=None)
