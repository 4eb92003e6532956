# SPDX-License-Identifier: Apache-2.0

"""The guard before nova's operations, on the ComputeManager installed here."""

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
from oslotest import base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters.patches import table
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.engine.builds import build_guard
from nova_ironic_multihost.engine.builds import guard as guards
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.adapters import base as seams

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
READING = {
    'get_info', 'get_volume_connector', 'instance_exists',
    'network_binding_host_id',
    # Tells what Ironic has done already.
    'power_update_event'}


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


class NamesTestCase(base.BaseTestCase):

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
        self.assertEqual(methods - READING,
                         methods & set(operations.MUTATIONS))
        self.assertEqual(set(), READING & set(operations.MUTATIONS))

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


class SeamTestCase(base.BaseTestCase):
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
        self.failed = []
        seams.replace(
            seams.OPERATIONS, self.manager, driver=self.driver,
            guard=self.guard, adopt=self.adopt, evacuate=self.evacuated.append,
            renew=self.renew,
            failed=lambda uuid, error: self.failed.append((uuid, error)))
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

            apply.apply(
                [table.Row('manager', name, '', (look, look), '', '')],
                {'manager': self.manager}, None)
            getattr(self.manager, name)(
                None, self.instance, 'argument', *(
                    [False] if name == 'rebuild_instance' else []))
            self.assertEqual([self.instance] * 2, seen)

    def test_build_waits_for_the_conductor_as_long_as_it_takes(self):
        answers_ = [messaging.MessagingTimeout()] * 1000
        self.guard._sources.instance_states = lambda wanted: (
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

    def test_build_that_fails_is_noted_with_its_error(self):
        self.send('build_and_run_instance')
        self.assertEqual([], self.failed)
        self.build.side_effect = error = OSError('no answer')
        self.assertRaises(OSError, self.send, 'build_and_run_instance')
        self.assertEqual([(UUID, error)], self.failed)

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
        for name in operations.MUTATIONS:
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
        seams.replace(
            seams.OPERATIONS, self.manager, driver=self.driver,
            guard=self.guard, adopt=self.adopt, evacuate=self.fail,
            renew=self.fail)
        self.assertRaises(names.NovaException,
                          self.driver.power_off, self.instance)
        ironic.set_node_power_state.assert_called_once_with('soft')

    def test_gate_stands_before_what_a_driver_of_ones_own_adds(self):
        class Pausing(names.IronicDriver):
            def pause(self, instance):
                paused.append(instance.uuid)

        paused = []
        driver = Pausing(None)
        seams.replace(
            seams.OPERATIONS, self.manager, driver=driver, guard=self.guard,
            adopt=self.adopt, evacuate=self.fail, renew=self.fail)
        driver.pause(self.instance)
        self.move()
        self.assertRaises(names.NovaException, driver.pause, self.instance)
        self.assertEqual([UUID], paused)

    def test_gate_fits_novas_manager(self):
        compute = object.__new__(manager.ComputeManager)
        compute.rt = object.__new__(resource_tracker.ResourceTracker)
        self.move()
        seams.replace(
            seams.OPERATIONS, compute, driver=self.driver, guard=self.guard,
            adopt=self.adopt, evacuate=self.fail, renew=self.fail)
        for name in operations.sent_to_host(manager.ComputeManager):
            if name in operations.AWAITED or name == 'rebuild_instance':
                continue
            self.assertIsNone(getattr(compute, name)(
                {}, instance=self.instance), name)
