# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""nova's operations on instances, and how a gate stands before them.

Which methods of nova's manager and of its driver for Ironic are operations,
and which methods take their place; :mod:`.patches` puts them there.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import functools
import inspect
import types

from nova.compute import build_results
from nova import exception
from nova import safe_utils
from nova.virt import driver as virt_driver
import oslo_messaging as messaging

from nova_ironic_multihost.contract import names

#: The method that is sent for a build.
BUILD = 'build_and_run_instance'

#: Operations (methods of ComputeManager with a parameter ``instance``) that
#: are not sent to the host of the instance: it has none, or it is on its way
#: from host to host, which no instance over Ironic is.
ELSEWHERE = frozenset({
    BUILD, 'check_can_live_migrate_destination',
    'confirm_resize', 'confirm_snapshot_based_resize_at_source',
    'drop_move_claim_at_destination', 'finish_resize',
    'finish_revert_resize', 'finish_revert_snapshot_based_resize_at_source',
    'finish_snapshot_based_resize_at_dest', 'live_migration',
    'live_migration_force_complete', 'post_live_migration_at_destination',
    'pre_live_migration', 'prep_resize',
    'prep_snapshot_based_resize_at_dest', 'remove_volume_connection',
    'revert_resize', 'revert_snapshot_based_resize_at_dest',
    'rollback_live_migration_at_destination', 'unshelve_instance'})

#: Operations whose sender waits for the answer (ComputeAPI uses ``call``).
AWAITED = frozenset({
    'attach_interface', 'check_can_live_migrate_source',
    'get_console_output', 'get_diagnostics', 'get_instance_diagnostics',
    'get_mks_console', 'get_serial_console', 'get_spice_console',
    'get_vnc_console', 'prep_snapshot_based_resize_at_source',
    'quiesce_instance', 'reserve_block_device_name', 'set_admin_password'})

#: The same, and those for which None is an answer.
CALLS = AWAITED | {'validate_console_port'}

#: Methods of IronicDriver that change a machine, or Ironic's node of it.
MUTATIONS = (
    'attach_interface', 'clean_networks_preparation', 'destroy',
    'detach_interface', 'failed_spawn_cleanup', 'get_serial_console',
    'get_vnc_console', 'plug_vifs', 'power_off', 'power_on',
    'prepare_for_spawn', 'prepare_networks_before_block_device_mapping',
    'reboot', 'rebuild', 'rescue', 'spawn', 'trigger_crash_dump',
    'unplug_vifs', 'unrescue')

#: How the names of openstacksdk's methods begin that change something, or may,
#: as plain requests do.
CHANGES = ('add_', 'attach_', 'call_', 'create_', 'delete', 'detach_',
           'disable_', 'enable_', 'inject_', 'patch', 'post', 'put',
           'remove_', 'request', 'set_', 'unset_', 'update_')

#: What ComputeManager does to an instance when something went wrong.
CLEAN_UPS = ('_instance_update', '_set_instance_obj_error_state',
             '_try_deallocate_network')


def sent_to_host(manager_class: type) -> list[str]:
    """Return the names of the operations that go to an instance's host.

    :param manager_class: nova's ComputeManager.
    """
    return sorted(
        name for name, method in inspect.getmembers(
            manager_class, inspect.isfunction)
        if not name.startswith('_') and name not in ELSEWHERE
        and 'instance' in parameters(method))


def mutations(driver_class: type) -> list[str]:
    """Return the names of the methods of a driver that change a machine.

    Also those that nova's driver for Ironic does not have, and a subclass of
    it may have.

    :param driver_class: IronicDriver, or a subclass of it.
    """
    return sorted({*MUTATIONS, *(
        name for name, method in inspect.getmembers(
            virt_driver.ComputeDriver, inspect.isfunction)
        if not name.startswith(('_', 'get_'))
        and 'instance' in parameters(method)
        and getattr(names.IronicDriver, name) is method
        and getattr(driver_class, name) is not method)})


def parameters(function: Callable) -> list[str]:
    """Return the names of the parameters of what is below all decorators.

    Some of nova's decorators hide them (oslo.messaging's
    expected_exceptions).
    """
    found = list(inspect.signature(function).parameters)
    if 'instance' not in found:
        # It may be wrapped here already.
        function = safe_utils.get_wrapped_function(inspect.unwrap(function))
        found = list(inspect.signature(function).parameters)
    return found


def wrapped(name: str, method: types.MethodType,
            around: Callable) -> types.MethodType:
    """Return a method that lets another function call a method.

    :param name: what the method is called.
    :param method: bound method with a parameter ``instance``.
    :param around: function of (name, instance, function without arguments
        that calls the method).
    """
    position = _position(method, 'instance')

    # With its ``self``: it may be wrapped once more.
    @functools.wraps(method.__func__)
    def call_around(self, *args, **kwargs):
        instance = (kwargs['instance'] if 'instance' in kwargs
                    else args[position])
        return around(
            name, instance, functools.partial(method, *args, **kwargs))

    # nova tracks bound methods only (service._TrackingEndpointWrapper).
    return types.MethodType(call_around, method.__self__)


def _position(method, parameter):
    return parameters(method.__func__).index(parameter) - 1


def operate(gate, evacuate: Callable[[str], object]) -> Callable:
    """Return how a gate carries out an operation, see :func:`wrapped`.

    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    :param evacuate: function of the uuid of an instance that is to be
        evacuated to this host: nova sends that on purpose to another.
    """
    def around(name, instance, act):
        def refuse():
            try:
                raise _conflict(name, instance.uuid)
            except exception.Invalid as exc:
                # It goes to the API and not into the log.
                raise messaging.ExpectedException() from exc

        if name == 'rebuild_instance' and _is_evacuation(act):
            return evacuate(instance.uuid)
        return gate.operate(
            name, instance, act, patient=name not in CALLS,
            **({'otherwise': refuse} if name in AWAITED else {}))

    return around


def build(gate, adopt: Callable[[str, str | None], bool],
          otherwise: Callable, renew: Callable[[str, object], None],
          later: Callable) -> Callable:
    """Return how a gate carries out a build, see :func:`wrapped`.

    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    :param adopt: takes the node of a build if it is a dead host's; function
        of the uuids of the instance and of the node, or None, that returns
        whether it may have taken anything. Raises nothing.
    :param otherwise: what is the answer to one that is not carried out.
    :param renew: undoes what was begun and not ended; function of the uuid of
        the instance and of the networks that were asked for.
    :param later: what is the answer to one that may be carried out later.
    """
    def around(name, instance, act):
        node = _argument(act, 'node')
        return gate.build(
            name, instance, act, node, otherwise,
            functools.partial(adopt, instance.uuid, node),
            lambda result: result == build_results.FAILED,
            functools.partial(renew, instance.uuid,
                              _argument(act, 'requested_networks')),
            later)

    return around


def arrive(adopt: Callable[[str, str | None], bool]) -> Callable:
    """Return how the node of a build is taken when that arrives.

    It is not to look like one of a dead host while the build waits for its
    turn, see :func:`wrapped`.

    :param adopt: as for :func:`build`.
    """
    def around(name, instance, act):
        # It begins in a thread of its own, and has the node taken as well.
        result = act()
        adopt(instance.uuid, _argument(act, 'node'))
        return result

    return around


def begun(arrivals) -> Callable:
    """Return how it is noted that a build has come, see :func:`wrapped`.

    :param arrivals: :class:`nova_ironic_multihost.audit.arrivals.Arrivals`.
    """
    def around(name, instance, act):
        arrivals.begin(instance.uuid)
        try:
            return act()
        except BaseException:
            # No thread has it.
            arrivals.end(instance.uuid)
            raise

    return around


def ended(arrivals) -> Callable:
    """Return how it is noted that it has ended, see :func:`wrapped`."""
    def around(name, instance, act):
        try:
            return act()
        finally:
            arrivals.end(instance.uuid)

    return around


def failing(note: Callable[[str, BaseException], None]) -> Callable:
    """Return how it is noted that a build has failed, see :func:`wrapped`.

    :param note: function of the uuid of the instance and of the error.
    """
    def around(name, instance, act):
        try:
            return act()
        except BaseException as exc:
            note(instance.uuid, exc)
            raise

    return around


def copied(copy: Callable[[str, str | None, Mapping[str, object]], None],
           then: Callable[[], None]) -> Callable:
    """Return how a build is copied when it comes, see :func:`wrapped`.

    :param copy: function of the uuids of the instance and of the node, or
        None, and of what the build was asked for with. Raises nothing.
    :param then: what is done when there is a copy, or is to be none.
    """
    def around(name, instance, act):
        try:
            copy(instance.uuid, _argument(act, 'node'), _arguments(act))
        finally:
            then()
        return act()

    return around


def over(end: Callable[[str, str | None, object], None]) -> Callable:
    """Return how it is said what has become of a build, see :func:`wrapped`.

    :param end: function of the uuids of the instance and of the node, or
        None, and of the result.
    """
    def around(name, instance, act):
        result = act()
        end(instance.uuid, _argument(act, 'node'), result)
        return result

    return around


def _arguments(call):
    """Return all arguments of a call, by their names.

    :param call: partial of a bound method.
    """
    names = parameters(call.func.__func__)[1:]
    return {**dict(zip(names, call.args, strict=False)), **call.keywords}


def _argument(call, parameter):
    """Return an argument of a call, None if it has none.

    :param call: partial of a bound method.
    """
    if parameter in call.keywords:
        return call.keywords[parameter]
    position = _position(call.func, parameter)
    return call.args[position] if position < len(call.args) else None


def _is_evacuation(rebuild):
    """Whether a call of rebuild_instance is one.

    :param rebuild: partial of the bound method.
    """
    return _argument(rebuild, 'recreate')


def _conflict(operation, instance):
    """Return the error that nova's API answers with 409.

    The next try goes to the right host.
    """
    if operation.startswith('get_'):
        return exception.InstanceNotReady(instance_id=instance)
    return exception.InstanceInvalidState(
        instance_uuid=instance, attr='host', state='changed',
        method=operation)


def sifted(method: types.MethodType, gate) -> types.MethodType:
    """Return a method that takes events for instances of this host only.

    :param method: ComputeManager.external_instance_event, bound.
    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    """
    @functools.wraps(method)
    def take(self, context, instances, events):
        here = gate.present(method.__name__, [
            instance.uuid for instance in instances])
        return method(
            context, [instance for instance in instances
                      if instance.uuid in here],
            [event for event in events if event.instance_uuid in here])

    return types.MethodType(take, method.__self__)


class AskingConnection:
    """A connection to Ironic that asks the gate before each change.

    :param connection: what nova's driver works with.
    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    :param asking: returns a context manager that is entered while a request
        is under way.
    """

    def __init__(self, connection, gate, asking=contextlib.nullcontext):
        self._connection = connection
        self._gate = gate
        self._asking = asking

    def __getattr__(self, name):
        found = getattr(self._connection, name)
        if not callable(found):
            return found

        def ask(*args, **kwargs):
            if name.startswith(CHANGES):
                self._gate.ask_again()
            with self._asking():
                return found(*args, **kwargs)

        return ask
