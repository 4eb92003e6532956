# SPDX-License-Identifier: Apache-2.0

"""nova's operations on instances, and the layers that ask the guard first."""

import ast
import contextlib
import functools
import inspect
import re
import textwrap
import threading
import types
from unittest import mock

import fixtures
from nova.compute import build_results
from nova.compute import claims
from nova.compute import manager
from nova.compute import resource_tracker
from nova.compute import rpcapi
from nova.compute import utils
from nova import context as nova_context
from nova import exception
from nova import exception_wrapper
from nova import objects
from nova.objects import base as nova_base
from nova.virt.ironic import driver as ironic_driver
from openstack.baremetal.v1 import _proxy as baremetal
from openstack import exceptions
import oslo_messaging as messaging
from oslo_messaging.rpc import dispatcher
from oslo_serialization import jsonutils
from oslo_utils.fixture import uuidsentinel
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.engine.builds import build_guard
from nova_ironic_multihost.engine.builds import guard as guards
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base

objects.register_all()

UUID = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
NODE = uuidsentinel.node

#: Operations of the manager that nova's client does not know by their names.
INTERNAL = {
    # An event.
    'extend_volume', 'power_update',
    # Left from before.
    'get_rdp_console',
    # To the host of the instance, unless it is an evacuation.
    'rebuild_instance'}

#: Methods of IronicDriver that take an instance and change no machine.


@functools.cache
def senders():
    """Return [(name, source)] of the methods of nova's client."""
    source = textwrap.dedent(inspect.getsource(rpcapi.ComputeAPI))
    return [(node.name, ast.get_source_segment(source, node))
            for node in ast.parse(source).body[0].body
            if isinstance(node, ast.FunctionDef)]


def sent_to_the_host():
    return {name for name, source in senders()
            if re.search(r'_compute_host\(\s*None,\s*instance\)', source)}


def awaited():
    return {name for name, source in senders() if re.search(
        r'\.call\(|rpc_method = cctxt\.call', source)}


class NamesTestCase(oslo_base.BaseTestCase):

    def test_what_goes_to_the_host_of_an_instance_is_guarded(self):
        guarded = set(operations.sent_to_host(manager.ComputeManager))
        known = {name for name in sent_to_the_host()
                 if hasattr(manager.ComputeManager, name)}
        self.assertEqual(set(), {
            name for name in known - guarded
            if 'instance' in apply.parameters(
                getattr(manager.ComputeManager, name))})
        self.assertEqual(set(), guarded - known - INTERNAL)

    def test_what_goes_elsewhere_is_told_where(self):
        self.assertEqual(
            set(), sent_to_the_host() & operations.ELSEWHERE)
        for name in operations.ELSEWHERE:
            self.assertTrue(hasattr(manager.ComputeManager, name), name)

    def test_who_waits_is_known(self):
        guarded = set(operations.sent_to_host(manager.ComputeManager))
        self.assertEqual(awaited() & guarded, operations.CALLS)
        # The proxy of consoles takes None for an answer: not valid.
        self.assertEqual({'validate_console_port'},
                         operations.CALLS - operations.AWAITED)

    def test_what_changes_a_machine_is_guarded(self):
        methods = {
            name for name, method in vars(ironic_driver.IronicDriver).items()
            if inspect.isfunction(method) and not name.startswith('_')
            and 'instance' in inspect.signature(method).parameters}
        found = operations.mutations(names.IronicDriver)
        self.assertEqual(methods - operations.READING, set(found))
        self.assertLessEqual(
            {'destroy', 'power_off', 'power_on', 'prepare_for_spawn',
             'reboot', 'rebuild', 'spawn'}, set(found))

    def test_what_changes_ironic_is_known_by_its_name(self):
        asked = set(re.findall(r'ironic_connection\.(\w+)',
                               inspect.getsource(ironic_driver)))
        changes = {name for name in asked
                   if name.startswith(operations.CHANGES)}
        self.assertIn('set_node_power_state', changes)
        self.assertEqual(set(), asked - changes - {
            'get_node', 'get_node_console', 'nodes', 'port_groups', 'ports',
            'validate_node', 'volume_connectors', 'volume_targets'})

    def test_what_a_driver_of_ones_own_may_ask_for_is_known_by_its_name(self):
        methods = {name for name, _ in inspect.getmembers(
            baremetal.Proxy, inspect.isfunction)
            if not name.startswith(('_', *operations.CHANGES))}
        self.assertEqual(set(), {
            name for name in methods
            if 'node' in name.split('_') and not name.startswith(
                ('find_', 'get_', 'list_', 'validate_', 'wait_'))})
        self.assertEqual(set(), methods & {
            'delete', 'patch', 'post', 'put', 'request'})
        self.assertLessEqual({'get', 'nodes', 'ports'}, methods)

    def test_nova_handles_no_failure_that_is_none(self):
        self.assertNotIsInstance(guards.Cancelled(), Exception)
        for module in (manager, exception_wrapper, resource_tracker, claims,
                       ironic_driver):
            self.assertNotRegex(inspect.getsource(module),
                                r'except:|except BaseException')


class Endpoint:
    """A manager of which this test knows what it was asked."""

    target = messaging.Target(version='6.0')
    additional_endpoints = ()

    def __init__(self, build):
        self.asked = []
        self.build = build
        self.snapshot = lambda uuid: None
        self.given_up = lambda uuid: None
        self.rt = mock.Mock()
        self.rt._unset_instance_host_and_node = types.MethodType(
            lambda rt, instance: self.asked.append(('unset', instance.uuid)),
            self.rt)
        self.rt._set_instance_host_and_node = types.MethodType(
            lambda rt, instance, node: self.asked.append(
                ('set', instance.uuid)), self.rt)

    def stop_instance(self, context, instance, clean_shutdown):
        self.asked.append(('stop', instance.uuid, clean_shutdown))
        return 'stopped'

    def snapshot_instance(self, context, image_id, instance):
        self.asked.append(('snapshot', instance.uuid, image_id))
        self.stop_instance(context, instance, True)
        # Since nova 33 in a thread of its own.
        thread = threading.Thread(
            target=self._snapshot_instance, args=(context, image_id, instance))
        thread.start()
        thread.join()

    def _snapshot_instance(self, context, image_id, instance):
        self.snapshot(instance.uuid)

    @messaging.expected_exceptions(exception.Invalid)
    def attach_interface(self, context, instance, port_id):
        self.asked.append(('attach', instance.uuid, port_id))

    def get_vnc_console(self, context, console_type, instance):
        self.asked.append(('console', instance.uuid, console_type))

    def rebuild_instance(self, context, instance, image_ref, recreate):
        self.asked.append(('rebuild', instance.uuid, recreate))

    def build_and_run_instance(self, context, instance, node=None,
                               requested_networks=None):
        return self._do_build_and_run_instance(
            context, instance, node=node,
            requested_networks=requested_networks)

    def _do_build_and_run_instance(self, context, instance, node=None,
                                   requested_networks=None):
        return self.given_up(instance.uuid) or self._build_and_run_instance(
            context, instance)

    def _build_and_run_instance(self, context, instance):
        self.build(context, instance)

    def _nil_out_instance_obj_host_and_node(self, instance):
        self.asked.append(('nil', instance.uuid))

    def _delete_instance(self, context, instance, bdms):
        raise bdms

    def terminate_instance(self, context, instance, bdms):
        self._delete_instance(context, instance, bdms)

    def _instance_update(self, context, instance, **kwargs):
        self.asked.append(('update', instance.uuid, kwargs))

    def _set_instance_obj_error_state(self, instance):
        self.asked.append(('error', instance.uuid))

    def _try_deallocate_network(self, context, instance):
        self.asked.append(('deallocate', instance.uuid))

    def external_instance_event(self, context, instances, events):
        self.asked.append((
            'events', [instance.uuid for instance in instances],
            [event.name for event in events]))


class SeamTestCase(oslo_base.BaseTestCase):
    """A message goes through oslo.messaging's dispatcher."""

    def setUp(self):
        super().setUp()
        self.instance_states = {}
        sources = mock.Mock(
            instance_states=lambda wanted: self.instance_states,
            records=lambda nodes: [],
            consumers=lambda node: {UUID})
        self.build = mock.Mock()
        self.adopt = mock.Mock()
        self.manager = Endpoint(
            lambda context, instance: self.build(context, instance))
        self.driver = names.IronicDriver(None)
        self.guard = build_guard.BuildGuard(
            'me', sources, passing=retry.passing)
        self.evacuated = []
        base.replace(
            base.OPERATIONS, self.manager, driver=self.driver,
            guard=self.guard, nodes__adopt=self.adopt,
            evacuation_refusals__refuse=self.evacuated.append,
            attempts__renew=self.renew)
        self.instance = objects.Instance(uuid=UUID, node=None)

    def renew(self, uuid, networks):
        self.manager.asked.append(('renew', uuid, networks))

    def move(self):
        self.instance_states[UUID] = InstanceState('other')

    def send(self, method, **arguments):
        return dispatcher.RPCDispatcher(
            [self.manager], None,
            dispatcher.DefaultRPCAccessPolicy).dispatch(mock.Mock(
                ctxt={}, client_timeout=None, message={
                    'method': method, 'version': '6.0',
                    'args': {'instance': self.instance} | arguments}))

    def test_message_for_an_instance_that_is_here(self):
        self.assertEqual('stopped', self.send(
            'stop_instance', clean_shutdown=True))
        self.assertEqual([('stop', UUID, True)], self.manager.asked)

    def test_message_for_an_instance_that_has_moved(self):
        self.move()
        self.assertIsNone(self.send('stop_instance', clean_shutdown=True))
        self.send('snapshot_instance', image_id='image')
        self.send('build_and_run_instance')
        self.assertEqual([], self.manager.asked)
        self.build.assert_not_called()

    def test_arguments_by_position(self):
        self.manager.snapshot_instance({}, 'image', self.instance)
        self.assertEqual([('snapshot', UUID, 'image'), ('stop', UUID, True)],
                         self.manager.asked)
        self.manager.asked.clear()
        self.move()
        self.manager.snapshot_instance({}, 'image', self.instance)
        self.assertEqual([], self.manager.asked)

    def test_who_waits_is_answered_and_nothing_is_logged(self):
        self.move()
        for method, argument, expected in (
                ('attach_interface', 'port_id',
                 exception.InstanceInvalidState),
                ('get_vnc_console', 'console_type',
                 exception.InstanceNotReady)):
            error = self.assertRaises(
                messaging.ExpectedException, self.send, method,
                **{argument: 'one'})
            self.assertIsInstance(error.exc_info[1], expected)
            self.assertIn(UUID, str(error.exc_info[1]))
        self.assertEqual([], self.manager.asked)

    def test_evacuation_is_refused_wherever_the_instance_is(self):
        self.manager.rebuild_instance(
            {}, self.instance, image_ref='image', recreate=True)
        self.move()
        self.send('rebuild_instance', image_ref='image', recreate=False)
        self.manager.rebuild_instance(
            {}, self.instance, image_ref='image', recreate=False)
        self.assertEqual([UUID], self.evacuated)
        self.send('rebuild_instance', image_ref='image', recreate=True)
        self.assertEqual([UUID] * 2, self.evacuated)
        # nova would write both its states.
        self.assertEqual([], self.manager.asked)

    def test_snapshot_in_a_thread_of_its_own_is_an_operation(self):
        def snapshot(uuid):
            seen.append(self.guard.at_work)
            raise Cancelled

        class Cancelled(Exception):
            pass

        seen = []
        self.manager.snapshot = snapshot
        with mock.patch('threading.excepthook'):
            self.send('snapshot_instance', image_id='i')
        self.assertEqual([{UUID}], seen)
        self.assertEqual({UUID}, self.guard.unfinished)

    def test_who_wraps_twice_finds_the_instance(self):
        for name in 'rebuild_instance', 'attach_interface':
            seen = []

            def look(parts, call, seen=seen):
                seen.append(call['instance'])
                call()

            for _ in range(2):
                apply.apply([table.Row('manager', name, '', look, '')],
                            {'manager': self.manager}, None)
            getattr(self.manager, name)(
                None, self.instance, 'argument', *(
                    [False] if name == 'rebuild_instance' else []))
            self.assertEqual([self.instance] * 2, seen)

    def test_build_waits_for_the_conductor_as_long_as_it_takes(self):
        answers_ = [messaging.MessagingTimeout()] * 1000
        self.guard._cloud.instance_states = lambda wanted: (
            self.instance_states if not answers_ else self.fail_with(
                answers_.pop()))
        self.guard._sleep = lambda seconds: None
        self.send('build_and_run_instance')
        self.build.assert_called_once()

    def fail_with(self, error):
        raise error

    def test_node_of_a_build_is_taken_when_it_comes_and_when_it_begins(self):
        self.build.side_effect = lambda context, instance: (
            self.assertEqual([mock.call(UUID, NODE)],
                             self.adopt.call_args_list))
        self.send('build_and_run_instance', node=NODE)
        self.build.assert_called_once()
        self.assertEqual([mock.call(UUID, NODE)] * 2,
                         self.adopt.call_args_list)

    def test_node_of_a_build_that_is_not_to_be_is_not_taken_for_it(self):
        self.move()
        self.manager._do_build_and_run_instance(
            {}, self.instance, node=NODE)
        self.adopt.assert_not_called()

    def test_build_that_arrives_twice_is_carried_out_once(self):
        for _ in range(2):
            result = self.send('build_and_run_instance', node=NODE)
            self.instance_states[UUID] = InstanceState('me', node=NODE)
        self.assertEqual(build_results.FAILED_BY_POLICY, result)
        self.build.assert_called_once()

    def test_build_that_is_dropped_keeps_its_allocation(self):
        self.move()
        self.assertEqual(build_results.FAILED_BY_POLICY,
                         self.send('build_and_run_instance'))

    def test_build_that_fails_for_another_keeps_its_allocation(self):
        def fail(context, instance):
            self.move()
            raise exception.RescheduledException(
                instance_uuid=UUID, reason='broken')

        self.build = fail
        self.assertEqual(build_results.FAILED_BY_POLICY,
                         self.send('build_and_run_instance'))

    def test_build_that_nova_gives_up_for_a_mark_keeps_its_allocation(self):
        """Its very first write meets it, before all that is attempted."""
        def give_up(uuid):
            self.instance_states[uuid] = InstanceState(
                'me', node=NODE, vm_state='building',
                task_state=takeover.taken(None, 'me'))
            return build_results.FAILED

        self.manager.given_up = give_up
        self.assertEqual(build_results.FAILED_BY_POLICY,
                         self.send('build_and_run_instance', node=NODE))
        self.build.assert_not_called()

    def test_build_that_nova_gives_up_is_given_up(self):
        self.manager.given_up = lambda uuid: build_results.FAILED
        self.assertEqual(build_results.FAILED,
                         self.send('build_and_run_instance', node=NODE))

    def test_build_that_was_left_in_the_middle_is_undone_first(self):
        self.instance_states[UUID] = InstanceState(
            None, vm_state='building', task_state='spawning')
        self.send('build_and_run_instance', node=NODE,
                  requested_networks='networks')
        self.assertEqual([('renew', UUID, 'networks')], self.manager.asked)
        self.build.assert_called_once()

    def test_build_that_fails_in_its_claim_is_given_up(self):
        """nova takes the host off without aborting a claim."""
        def claim_half(context, instance):
            self.manager.rt._set_instance_host_and_node(instance, 'node')
            self.instance_states[UUID] = InstanceState(
                'me', node=NODE, vm_state='building')
            self.manager._nil_out_instance_obj_host_and_node(instance)
            self.instance_states[UUID] = InstanceState(
                None, vm_state='building', task_state='networking')
            raise KeyError

        self.instance.task_state = None
        self.build = claim_half
        self.assertRaises(KeyError, self.send, 'build_and_run_instance',
                          node=NODE)
        self.assertEqual([('set', UUID), ('nil', UUID)], self.manager.asked)

    def test_what_nova_notes_of_an_operation_that_was_ended(self):
        """EventReporter.__exit__, with the conductor behind a bus."""
        sent = []

        def send(context, name, method, versions, args, kwargs):
            entity = nova_base.NovaObjectSerializer().serialize_entity(
                None, kwargs)
            sent.append(jsonutils.loads(jsonutils.dumps(entity)))

        self.useFixture(fixtures.MockPatchObject(
            objects.InstanceActionEvent, 'indirection_api',
            mock.Mock(object_class_action_versions=send)))
        reporter = utils.EventReporter(
            nova_context.get_admin_context(), 'stop', 'me', UUID)

        def stop():
            with reporter:
                self.move()
                self.driver.power_off(self.instance)

        self.assertIsNone(self.guard.operate('stop', self.instance, stop))
        self.assertIn('power_off is left', sent[-1]['exc_val'])

    def test_delete_that_nobody_answers_is_left_to_be_repeated(self):
        self.instance_states[UUID] = InstanceState(
            'me', task_state='deleting')
        error = exceptions.HttpException(
            response=mock.Mock(status_code=500, headers={}))
        self.assertIsNone(self.send('terminate_instance', bdms=error))
        self.assertEqual({UUID}, self.guard.unfinished)
        self.assertEqual([], self.manager.asked)
        self.assertRaises(KeyError, self.send, 'terminate_instance',
                          bdms=KeyError())

    def test_failure_is_written_to_no_instance_of_another(self):
        for write in (
                lambda: self.manager._instance_update(
                    {}, self.instance, task_state=None),
                lambda: self.manager._set_instance_obj_error_state(
                    self.instance),
                lambda: self.manager._try_deallocate_network(
                    {}, self.instance),
                lambda: self.manager.rt._unset_instance_host_and_node(
                    self.instance)):
            self.instance_states.clear()
            self.manager.asked.clear()
            write()
            self.assertEqual(1, len(self.manager.asked))
            self.move()
            write()
            self.assertEqual(1, len(self.manager.asked))

    def test_events_reach_the_instances_that_are_here(self):
        other = objects.Instance(uuid=UUID.replace('1', '2'))
        self.instance_states[other.uuid] = InstanceState('other')
        events = [mock.Mock(instance_uuid=instance.uuid)
                  for instance in (self.instance, other)]
        events[0].name, events[1].name = 'mine', 'theirs'
        self.manager.external_instance_event(
            {}, instances=[self.instance, other], events=events)
        self.assertEqual([('events', [UUID], ['mine'])], self.manager.asked)

    def test_nova_tracks_what_is_guarded(self):
        for name in ('stop_instance', 'external_instance_event'):
            method = getattr(self.manager, name)
            self.assertTrue(inspect.ismethod(method), name)
            self.assertEqual(name, method.__name__)

    def test_machine_is_left_alone_when_its_instance_moves(self):
        connection = mock.Mock()
        self.driver._ironic_connection = connection
        self.move()
        for name in operations.mutations(names.IronicDriver):
            parameters = inspect.signature(
                getattr(names.IronicDriver, name)).parameters
            arguments = {
                parameter: None for parameter, kind in parameters.items()
                if parameter != 'self' and kind.default is kind.empty}
            self.assertRaises(
                names.NovaException,
                functools.partial(getattr(self.driver, name)),
                **arguments | {'instance': self.instance})
        self.assertEqual([], connection.method_calls)

    def test_requests_that_are_under_way_are_noted(self):
        under_way = []

        @contextlib.contextmanager
        def asking():
            under_way.append(1)
            try:
                yield
            finally:
                under_way.pop()

        ironic = mock.Mock(microversion='1.82')
        ironic.get.side_effect = lambda path: (path, len(under_way))
        ironic.nodes.side_effect = OSError
        connection = operations.GuardedConnection(ironic, self.guard, asking)
        self.assertEqual(('/nodes', 1), connection.get('/nodes'))
        self.assertRaises(OSError, connection.nodes)
        self.assertEqual([], under_way)
        self.assertEqual('1.82', connection.microversion)

    def test_machine_is_left_alone_from_the_moment_it_moves(self):
        ironic = mock.Mock()
        connection = operations.GuardedConnection(ironic, self.guard)

        def power_off(instance):
            connection.set_node_power_state('soft')
            self.move()
            self.assertIs(ironic.get_node.return_value,
                          connection.get_node('node'))
            connection.set_node_power_state('hard')

        self.driver.power_off = types.MethodType(
            lambda driver, instance: power_off(instance), self.driver)
        base.replace(
            base.OPERATIONS, self.manager, driver=self.driver,
            guard=self.guard, nodes__adopt=self.adopt,
            evacuation_refusals__refuse=self.fail,
            attempts__renew=self.fail)
        self.assertRaises(names.NovaException,
                          self.driver.power_off, self.instance)
        ironic.set_node_power_state.assert_called_once_with('soft')

    def test_gate_stands_before_what_a_driver_of_ones_own_adds(self):
        class Pausing(names.IronicDriver):
            def pause(self, instance):
                paused.append(instance.uuid)

        paused = []
        driver = Pausing(None)
        base.replace(
            base.OPERATIONS, self.manager, driver=driver, guard=self.guard,
            nodes__adopt=self.adopt, evacuation_refusals__refuse=self.fail,
            attempts__renew=self.fail)
        driver.pause(self.instance)
        self.move()
        self.assertRaises(names.NovaException, driver.pause, self.instance)
        self.assertEqual([UUID], paused)

    def test_gate_fits_novas_manager(self):
        compute = object.__new__(manager.ComputeManager)
        compute.rt = object.__new__(resource_tracker.ResourceTracker)
        self.move()
        base.replace(
            base.OPERATIONS, compute, driver=self.driver, guard=self.guard,
            nodes__adopt=self.adopt, evacuation_refusals__refuse=self.fail,
            attempts__renew=self.fail)
        for name in operations.sent_to_host(manager.ComputeManager):
            if name in operations.AWAITED or name == 'rebuild_instance':
                continue
            self.assertIsNone(getattr(compute, name)(
                {}, instance=self.instance), name)


class Left(BaseException):
    """The guard ends the build."""


class SavingTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.instance(uuidsentinel.instance, 'mine')
        row = self.read()
        row.vm_state = 'building'
        row.save()
        self.build = self.read()
        self.guard = mock.Mock(
            building=True, persist=mock.Mock(
                side_effect=lambda name, instance, act, again, asks: act()))
        self.guard.leave.side_effect = Left
        self.build.save = operations.GuardedSave(
            self.guard, 'build', self.build)
        self.save('networking', expected_task_state=[None])

    def read(self):
        return objects.Instance.get_by_uuid(
            self.context, uuidsentinel.instance)

    def save(self, task_state, **conditions):
        self.build.task_state = task_state
        self.build.save(**conditions)

    def write(self, task_state):
        """Somebody else writes a task state."""
        other = self.read()
        other.task_state = task_state
        other.save()

    def test_build_that_nobody_disturbs_goes_on(self):
        self.save('block_device_mapping')
        self.save('spawning', expected_task_state='block_device_mapping')
        self.build.vm_state = 'active'
        self.save(None, expected_task_state='spawning')
        self.assertEqual(('active', None), (
            self.read().vm_state, self.read().task_state))

    def test_mark_of_who_takes_it_over_stays(self):
        mark = takeover.taken('networking', 'other')
        self.write(mark)
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        # What nova writes when it gives the claim back.
        self.build.host = None
        self.build.save()
        self.assertEqual((mark, None),
                         (self.read().task_state, self.read().host))

    def test_mark_that_the_object_has_by_now_stays(self):
        """What is saved brings along what others have written."""
        mark = takeover.taken('networking', 'other')
        self.write(mark)
        self.build.system_metadata['network_allocated'] = 'True'
        self.build.save()
        self.assertEqual(mark, self.build.task_state)
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        self.assertEqual(mark, self.read().task_state)

    def test_administrator_who_gives_it_up_is_heard(self):
        other = self.read()
        other.update({'vm_state': 'error', 'task_state': None})
        other.save()
        self.build.vm_state = 'building'
        self.assertRaises(exception.UnexpectedTaskStateError,
                          self.save, 'block_device_mapping')
        self.build.host = None
        self.build.save()
        self.assertEqual(('error', None), (
            self.read().vm_state, self.read().task_state))

    def test_build_that_a_fenced_host_writes_on_ends_here(self):
        """nova would end it in ERROR; it is begun again."""
        self.write('spawning')
        self.assertRaises(Left, self.save, 'block_device_mapping')
        self.assertEqual(('building', 'spawning'), (
            self.read().vm_state, self.read().task_state))

    def test_user_who_deletes_it_is_heard(self):
        self.write('deleting')
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.save, 'block_device_mapping')
        self.assertEqual('deleting', self.read().task_state)

    def test_answer_that_was_lost_is_novas_matter(self):
        """It gives the claim back and writes that the build has failed."""
        real = objects.Instance.get_by_uuid(
            self.context, uuidsentinel.instance)
        real.task_state = 'spawning'
        real.save()
        self.build.host = None
        self.build.save()
        self.build.vm_state = 'error'
        self.save(None)
        self.assertEqual(('error', None), (
            self.read().vm_state, self.read().task_state))

    def be_built_elsewhere(self):
        other = self.read()
        other.update({'host': 'other', 'vm_state': 'active',
                      'task_state': None})
        other.save()

    def test_server_that_another_has_built_is_left_alone(self):
        for changes in ({'host': None}, {'task_state': 'scheduling'},
                        {'host': None, 'task_state': 'scheduling'},
                        {'vm_state': 'error', 'task_state': None}):
            self.be_built_elsewhere()
            self.build.update(changes)
            self.assertRaises(Left, self.build.save)
            found = self.read()
            self.assertEqual(('other', 'active', None), (
                found.host, found.vm_state, found.task_state))

    def test_server_that_another_has_built_is_not_begun(self):
        """nova takes what has no task state for what is to be built."""
        for new, expected in ((None, ('scheduling', None)),
                              ('networking', [None])):
            self.be_built_elsewhere()
            again = self.read()
            again.save = operations.GuardedSave(self.guard, 'build', again)
            again.vm_state, again.task_state = 'building', new
            self.assertRaises(Left, functools.partial(
                again.save, expected_task_state=expected))
            self.assertEqual('active', self.read().vm_state)

    def test_it_is_noted_that_it_is_scheduled_anew(self):
        self.assertFalse(self.guard.note_scheduled.called)
        self.save('scheduling')
        self.guard.note_scheduled.assert_called_once_with()

    def test_host_is_asked_for_before_a_build_is_scheduled_anew(self):
        """nova writes that without an expected task state."""
        self.assertFalse(self.guard.persist.call_args.kwargs['asks'])
        self.save('scheduling')
        self.assertTrue(self.guard.persist.call_args.kwargs['asks'])

    def test_what_is_written_already_may_be_written_again(self):
        """Its answer was lost."""
        def persist(name, instance, act, again, asks):
            other = self.read()
            changes = {field: getattr(instance, field)
                       for field in ('task_state', 'vm_state')}
            act()
            instance.update(changes)
            instance._changed_fields.update(changes)
            again()
            other.refresh()
            self.assertEqual(changes, {
                field: getattr(other, field) for field in changes})

        self.guard.persist = persist
        self.save('block_device_mapping')
        self.save('spawning', expected_task_state='block_device_mapping')
        self.build.vm_state = 'active'
        self.save(None, expected_task_state='spawning')
        self.write('deleting')
        self.build.vm_state = 'active'
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.save, None, expected_task_state='spawning')

    def test_under_the_lock_of_the_tracker_nothing_waits(self):
        """Whatever else was not saved before."""
        persist, self.guard.persist = self.guard.persist, None
        self.guard.give_back = self.guard.claim = (
            lambda name, instance, act: act())
        self.build.task_state = 'networking'
        for host, layer in (
            (None, operations.unset_host),
            ('mine', operations.claim),
        ):
            self.build.host = host
            base.around(layer, self.build, lambda: self.build.save(),
                        guard=self.guard)
            self.assertEqual(host, self.read().host)
        # And afterwards something waits again.
        self.guard.persist = mock.Mock(side_effect=persist)
        self.save('block_device_mapping')
        self.assertTrue(self.guard.persist.called)

    def test_what_is_no_build_gives_back_as_nova_does(self):
        given = []
        guard = mock.Mock(give_back=lambda name, instance, act: act())
        base.around(operations.unset_host, self.read(),
                    lambda: given.append(1), guard=guard)
        self.assertEqual([1], given)

    def test_server_that_runs_is_left_when_that_cannot_be_written(self):
        for vm_state, error in (('active', Left),
                                ('building', messaging.MessagingTimeout)):
            self.guard.persist = mock.Mock(
                side_effect=messaging.MessagingTimeout)
            self.build.vm_state = vm_state
            self.assertRaises(error, self.save, None,
                              expected_task_state='networking')

    def test_server_that_a_user_is_at_already_is_left(self):
        """It was written that it runs, and the answer was lost."""
        other = self.read()
        other.update({'vm_state': 'active', 'task_state': 'powering-off'})
        other.save()
        self.build.vm_state = 'active'
        self.assertRaises(Left, self.save, None,
                          expected_task_state='networking')
        self.assertEqual('powering-off', self.read().task_state)

    def test_what_is_no_build_any_more_writes_as_nova_does(self):
        self.guard.building = False
        self.be_built_elsewhere()
        self.build.vm_state = 'error'
        self.build.save()
        self.assertEqual('error', self.read().vm_state)

    def test_what_is_no_task_state_is_written_whatever_is_there(self):
        self.write('deleting')
        self.build.system_metadata['network_allocated'] = 'True'
        self.build.save()
        self.assertEqual(
            'True', self.read().system_metadata['network_allocated'])


class ClaimTestCase(base.DatabaseTestCase):

    has_node = True

    def claim(self, building, act=lambda instance: 'claimed', uuid=None):
        instance = self.instance(uuid or uuidsentinel.instance, None)
        instance.vm_state = 'building'
        instance.save()
        guard = types.SimpleNamespace(
            claim=lambda name, instance, act: act(), building=building,
            has_node=lambda: self.has_node,
            persist=lambda name, instance, act, again, asks: act(),
            leave=mock.Mock(side_effect=Left))
        instance.save = operations.GuardedSave(guard, 'build', instance)
        self.assertEqual('claimed', base.around(
            operations.claim, instance, lambda: act(instance), guard=guard))
        instance.task_state = 'networking'
        instance.save()
        other = objects.Instance.get_by_uuid(self.context, instance.uuid)
        other.task_state = 'deleting'
        other.save()
        instance.task_state = 'block_device_mapping'
        return instance

    def test_build_writes_over_its_own_from_then_on(self):
        self.assertRaises(exception.UnexpectedDeletingTaskStateError,
                          self.claim(building=True).save)

    def test_nothing_is_claimed_over_what_another_has_written(self):
        def claim(instance, **changes):
            other = objects.Instance.get_by_uuid(self.context, instance.uuid)
            other.update({'host': 'other', **changes})
            other.save()
            instance.host = 'mine'
            try:
                instance.save()
            finally:
                self.host = objects.Instance.get_by_uuid(
                    self.context, instance.uuid).host

        for number, (changes, error) in enumerate((
                ({'vm_state': 'active'}, Left),
                ({'task_state': 'networking'},
                 exception.UnexpectedTaskStateError),
                ({'task_state': 'deleting'},
                 exception.UnexpectedDeletingTaskStateError))):
            self.assertRaises(error, self.claim, True, functools.partial(
                claim, **changes), getattr(uuidsentinel, f'i{number}'))
            self.assertEqual('other', self.host)

    def test_nothing_is_claimed_on_a_node_of_another_host(self):
        self.has_node = False
        self.assertRaises(exception.ComputeResourcesUnavailable, self.claim,
                          True, self.fail)

    def test_what_is_no_build_writes_as_nova_does(self):
        self.claim(building=False).save()

    def test_what_may_not_be_claimed_is_not(self):
        instance = mock.Mock(spec=['uuid'])
        guard = mock.Mock(building=True)
        guard.claim.side_effect = KeyError
        self.assertRaises(KeyError, base.around, operations.claim, instance,
                          self.fail, guard=guard)
