# SPDX-License-Identifier: Apache-2.0

"""Instances of a dead compute service go to live ones and go on there."""

from unittest import mock

from nova import context
from nova import objects
import oslo_messaging as messaging
from oslo_utils.fixture import uuidsentinel

from nova_ironic_multihost.engine.servers import recovery
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.functional import dead


class TakeoverTestCase(dead.DeadComputeTestCase):

    def test_a_server_goes_on_and_can_be_managed(self):
        self.mark_providers()
        self.die()
        self.audit()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual('host2', self.owners()[self.node])
        self.assertProvidersKept(self.nodes)
        self.admin_api.post_server_action(
            self.server['id'], {'os-stop': None})
        self.wait_for_status(self.server, 'SHUTOFF')
        self.assertEqual('power off', self.machine().power_state)
        self.delete(self.server)
        self.assertIsNone(self.machine().instance_uuid)

    def test_not_before_somebody_has_declared_it_dead(self):
        self.fleet.kill('host1')
        self.fleet.lose('host1')
        self.audit()
        self.assertEqual(('host1', 'active', None), self.states())
        self.assertEqual('host1', self.owners()[self.node])

    def test_not_against_the_policy(self):
        self.flags(instance_takeover='never', group='ironic_multihost')
        self.die()
        self.audit()
        self.assertEqual(('host1', 'active', None), self.states())

    def test_not_before_its_record_can_follow(self):
        """host2 has a second record of the node, of nova before Rocky."""
        with self.in_cell() as ctxt:
            service = objects.Service.get_by_compute_host(ctxt, 'host2')
            [own] = objects.ComputeNodeList.get_all_by_uuids(
                ctxt, [self.node])
            second = objects.ComputeNode(ctxt, **{
                field: getattr(own, field) for field in (
                    'vcpus', 'memory_mb', 'local_gb', 'vcpus_used',
                    'memory_mb_used', 'local_gb_used', 'hypervisor_type',
                    'hypervisor_version', 'hypervisor_hostname',
                    'cpu_info')})
            second.uuid, second.host = uuidsentinel.second, 'host2'
            second.service_id = service.id
            second.create()
        self.audit()
        self.die()
        for _ in range(3):
            self.fleet.look('host2')
            self.audit()
        self.assertEqual(('host1', 'active', None), self.states())
        self.assertNotIn('Traceback', self.stdlog.logger.output)
        self.assertEqual(1, self.stdlog.logger.output.count(
            f'has a second record of node {self.node}: the row with uuid '
            f'{uuidsentinel.second}'))
        with self.in_cell() as ctxt:
            second.destroy()
        for _ in range(2):
            self.audit()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual('host2', self.owners()[self.node])

    def test_not_while_a_migration_is_in_progress(self):
        instance = self.instance()
        objects.Migration(
            instance._context, instance_uuid=instance.uuid,
            status='accepted', migration_type='evacuation',
            source_compute='host1', source_node=self.node).create()
        self.die()
        self.audit()
        self.assertEqual(('host1', 'active', None), self.states())

    def test_a_delete_that_was_accepted_is_completed(self):
        self.die(task_state='deleting')
        self.audit()
        self._wait_until_deleted(self.server)
        # Its record has not followed if the instance was gone by then.
        self.audit()
        self.assertIsNone(self.machine().instance_uuid)
        self.assertEqual('host2', self.owners()[self.node])

    def test_a_stop_is_completed(self):
        self.die(task_state='powering-off')
        self.audit()
        self.assertEqual(('host2', 'stopped', None), self.states())
        self.assertEqual('power off', self.machine().power_state)

    def test_a_reboot_is_given_up_or_done(self):
        for task_state in ('rebooting', 'reboot_started_hard'):
            self.die(task_state=task_state)
            self.audit()
            self.assertEqual(('host2', 'active', None), self.states())
            self.fleet.unforce('host1')
            self.fleet.start('host1')
            self.instance_back()

    def instance_back(self):
        """Put it on host1 again."""
        instance = self.instance()
        instance.host = 'host1'
        instance.save()
        self.settle()

    def test_what_nova_leaves_alone_ends_as_the_machine_is(self):
        self.die(task_state='rescuing')
        self.audit()
        self.assertEqual(('host2', 'active', None), self.states())

    def test_a_build_that_ironic_has_done_becomes_active(self):
        self.die(vm_state='building', task_state='spawning')
        self.audit()
        self.assertEqual(('host2', 'active', None), self.states())

    def test_a_build_without_a_machine_ends_with_a_reason(self):
        self.ironic.client.node.set_provision_state(self.node, 'deleted')
        self.ironic.wait_for([self.node], provision_state='available')
        self.die(vm_state='building', task_state='networking')
        self.audit()
        self.assertEqual(('host2', 'error', None), self.states())
        fault = self.show(self.server)['fault']['message']
        self.assertIn('networking', fault)
        self.assertIn('no node is reserved', fault)
        self.assertEqual('host2', self.owners()[self.node])
        # Its allocation holds the node until its user has seen that.
        self.delete(self.server)
        self.assertEqual(set(self.nodes), self.nodes_of('host2'))
        for _ in self.nodes:
            self.boot('host2')

    def test_a_rebuild_that_never_began_is_an_error_with_a_reason(self):
        self.die(task_state='rebuilding')
        self.audit()
        self.assertEqual(('host2', 'error', None), self.states())
        fault = self.show(self.server)['fault']['message']
        self.assertIn('rebuilding', fault)

    def test_a_rebuild_of_which_ironic_was_not_told_is_an_error(self):
        # nova had written that it tells Ironic, and died over the config
        # drive: the machine runs the old system.
        cell = self.cell_mappings['cell1']
        with context.target_cell(context.get_admin_context(), cell) as ctxt:
            objects.InstanceAction.action_start(
                ctxt, self.server['id'], 'rebuild', want_result=False)
        self.die(task_state='rebuild_spawning')
        self.audit()
        self.assertEqual(('host2', 'error', None), self.states())
        self.assertIn('rebuild_spawning',
                      self.show(self.server)['fault']['message'])

    def test_a_take_over_that_was_cut_off_goes_on(self):
        self.die(task_state=takeover.taken('powering-off', 'host3'))
        self.audit()
        self.assertEqual(('host2', 'stopped', None), self.states())

    def test_a_take_over_of_which_nobody_knows_goes_on(self):
        self.die(task_state='powering-off')
        with mock.patch.object(recovery.Recovery, 'took_over'):
            self.audit()
        self.assertEqual('taken-over', self.show_task_state())
        self.sweep()
        self.assertEqual(('host2', 'stopped', None), self.states())

    def show_task_state(self):
        return self.states()[2].partition(':')[0]

    def test_a_take_over_that_stops_half_way_is_begun_anew(self):
        self.die(task_state='powering-off')
        save = objects.Instance.save

        def lose_host(instance, **how):
            if 'host' in instance.obj_what_changed():
                raise messaging.MessagingTimeout
            save(instance, **how)

        with mock.patch.object(objects.Instance, 'save', lose_host):
            self.audit()
        self.assertEqual('host1', self.states()[0])
        self.assertEqual('taking-over', self.show_task_state())
        self.audit()
        self.assertEqual(('host2', 'stopped', None), self.states())

    def test_a_tear_down_that_fails_is_repeated(self):
        self.die(task_state='deleting')
        driver = self.fleet.manager('host2').driver
        destroy = driver.destroy
        failures = [OSError('503')]

        def fail_once(*args, **kwargs):
            if failures:
                raise failures.pop()
            return destroy(*args, **kwargs)

        with mock.patch.object(driver, 'destroy', fail_once), \
                mock.patch.object(backoff, 'FIRST', 0):
            self.audit()
            self.assertEqual('host2', self.states()[0])
            self.assertIsNotNone(self.machine().instance_uuid)
            # It is marked again, and done.
            self.sweep()
        self._wait_until_deleted(self.server)
        self.assertIsNone(self.machine().instance_uuid)

    def test_a_look_is_enough(self):
        self.fleet.look('host2')
        self.die()
        self.fleet.look('host2')
        self.assertEqual('host2', self.states()[0])
        self.assertEqual('host2', self.owners()[self.node])

    def test_the_dead_one_comes_back_to_nothing_of_it(self):
        self.die()
        self.audit()
        self.fleet.unforce('host1')
        self.fleet.start('host1')
        self.settle()
        self.assertEqual(('host2', 'active', None), self.states())
        self.assertEqual('host2', self.owners()[self.node])
