# SPDX-License-Identifier: Apache-2.0

"""nova's operations on instances, and the layers that ask the guard first.

The guard is :class:`.engine.builds.build_guard.BuildGuard`; for layers see
:mod:`.handlers`.

A build writes only over what a build has written; or over what it wrote
itself, where nova says so. By itself nova takes any instance without a task
state for one to build. It also writes some states without a condition:
ComputeManager._build_resources, when it attaches volumes; after a failure
ResourceTracker.abort_instance_claim, and _do_build_and_run_instance and
_set_instance_obj_error_state of ComputeManager. A paused build could so
overwrite a server that another host has built, remove the mark of a takeover
(:mod:`.rules.takeover`), or claim a node that another host has by then.

While nova's conductor does not answer, or its database takes no writes, a
build waits: nova would end it with an error that it could not write either.
"""

from __future__ import annotations

import contextlib
import functools
import inspect

from nova.compute import build_results
from nova.compute import task_states
from nova.compute import vm_states
from nova import exception
from nova import objects
from nova.virt import driver as virt_driver
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.rules import builds

#: Methods of ComputeManager with a parameter ``instance`` that nova does not
#: send to its host: the instance has none, or migrates (none in Ironic does).
ELSEWHERE = frozenset({
    listeners.BUILD, 'check_can_live_migrate_destination',
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

#: Methods of drivers with a parameter ``instance`` that change no machine.
#: power_update_event tells what Ironic has done already.
READING = frozenset({
    'get_info', 'get_volume_connector', 'instance_exists',
    'network_binding_host_id', 'power_update_event'})

#: Prefixes of openstacksdk's methods that change something, or may.
CHANGES = ('add_', 'attach_', 'call_', 'create_', 'delete', 'detach_',
           'disable_', 'enable_', 'inject_', 'patch', 'post', 'put',
           'remove_', 'request', 'set_', 'unset_', 'update_')

#: What says how far a build is.
STATE = frozenset({'host', 'task_state', 'vm_state'})

#: Of an instance that is being built, or was given up and may still be.
BUILT = (vm_states.BUILDING, vm_states.ERROR)


def sent_to_host(manager_class: type) -> list[str]:
    """Return the operations of a ComputeManager for an instance's host."""
    return sorted(
        name for name, method in inspect.getmembers(
            manager_class, inspect.isfunction)
        if not name.startswith('_') and name not in ELSEWHERE
        and 'instance' in apply.parameters(method))


def mutations(driver_class: type) -> list[str]:
    """Return the methods of a driver that change a machine, or may."""
    return sorted(
        name for name, method in inspect.getmembers(
            virt_driver.ComputeDriver, inspect.isfunction)
        if not name.startswith('_') and name not in READING
        and 'instance' in apply.parameters(method)
        and getattr(driver_class, name) is not method)


def operate(parts, call):
    """Carry out an operation if its instance is here.

    nova sends an evacuation to this host on purpose, and none is carried out.
    """
    name, instance = call.name, call['instance']

    def refuse():
        # nova's API answers 409; the next try goes to the right host.
        error = (exception.InstanceNotReady(instance_id=instance.uuid)
                 if name.startswith('get_') else
                 exception.InstanceInvalidState(
                     instance_uuid=instance.uuid, attr='host',
                     state='changed', method=name))
        try:
            raise error
        except exception.Invalid as exc:
            # It goes to the API and not into the log.
            raise messaging.ExpectedException() from exc

    if name == 'rebuild_instance' and call['recreate']:
        return parts.evacuation_refusals.refuse(instance.uuid)
    return parts.guard.operate(
        name, instance, call, patient=name not in CALLS,
        **({'otherwise': refuse} if name in AWAITED else {}))


def sift_events(parts, call):
    """Take events for instances of this host only."""
    here = parts.guard.present(call.name, [
        instance.uuid for instance in call['instances']])
    return call.changed(
        instances=[instance for instance in call['instances']
                   if instance.uuid in here],
        events=[event for event in call['events']
                if event.instance_uuid in here])


def accept_build(parts, call):
    """Note and copy a build that comes, acknowledge it, and take its node.

    The copy comes first: RabbitMQ forgets what is acknowledged. The node is
    taken now, so that it does not look like one of a dead host while the
    build waits for its turn; nova has begun it in another thread by then.
    """
    uuid, node = call['instance'].uuid, call['node']
    parts.in_flight.begin(uuid)
    try:
        try:
            parts.backups.keep(uuid, node, call.arguments())
        finally:
            listeners.acknowledge()
        result = call()
        parts.nodes.adopt(uuid, node)
        return result
    except BaseException:
        # No thread has it.
        parts.in_flight.end(uuid)
        raise


def carry_out_build(parts, call):
    """Carry out a build, unless it is done or another's; note its end.

    A build that waits for another time is not over, and one that is refused
    while the service ends may have been given up by that. To nova both are
    FAILED_BY_POLICY: it leaves the allocation, and does not count a failure
    of the host.
    """
    instance, node = call['instance'], call['node']
    outcomes = []

    def build():
        instance.save = GuardedSave(parts.guard, call.name, instance)
        return call()

    def answer(outcome):
        outcomes.append(outcome)
        return build_results.FAILED_BY_POLICY

    try:
        result = parts.guard.build(
            call.name, instance, build, node,
            functools.partial(answer, 'refused'),
            functools.partial(parts.nodes.adopt, instance.uuid, node),
            lambda result: result == build_results.FAILED,
            functools.partial(parts.attempts.renew, instance.uuid,
                              call['requested_networks']),
            functools.partial(answer, 'postponed'))
        refused = 'refused' in outcomes
        if 'postponed' not in outcomes and not (
                refused and parts.shutdown.begun()):
            parts.backups.end(instance.uuid, node)
        return result
    finally:
        parts.in_flight.end(instance.uuid)


def guarded(method):
    """Return a layer that calls the guard's method(name, instance, act)."""
    def layer(parts, call):
        return getattr(parts.guard, method)(call.name, call['instance'], call)

    layer.__name__ = method
    return layer


#: Parts of operations after which nova cleans up, and other parts.
ATTEMPT, PART = guarded('attempt'), guarded('operate')
CLEAN_UP = guarded('clean_up')
CHANGE_MACHINE = guarded('change_machine')


class GuardedConnection:
    """A connection to Ironic that asks the guard before each change.

    :param asking: returns a context manager for the time of a request.
    """

    def __init__(self, connection, guard, asking=contextlib.nullcontext):
        self._connection = connection
        self._guard = guard
        self._asking = asking

    def __getattr__(self, name):
        found = getattr(self._connection, name)
        if not callable(found):
            return found

        def ask(*args, **kwargs):
            if name.startswith(CHANGES):
                self._guard.ask_again()
            with self._asking():
                return found(*args, **kwargs)

        return ask


def claim(parts, call):
    """Claim the node of a build, if no other host has claimed it meanwhile."""
    guard, instance = parts.guard, call['instance']
    if not guard.building:
        return guard.claim(call.name, instance, call)

    def claim_if_free():
        if not guard.has_node():
            # nova has it scheduled anew.
            raise names.ComputeResourcesUnavailable(
                reason='its node is on another compute service')
        save = instance.save
        # Another host that has claimed it writes another task state soon.
        instance.save = functools.partial(
            save, expected_vm_state=[vm_states.BUILDING],
            expected_task_state=[instance.task_state])
        try:
            with _under_a_lock(save):
                return call()
        finally:
            instance.save = save

    return guard.claim(call.name, instance, claim_if_free)


def abort_claim(parts, call):
    """Give the instance back also if its node has left the tracker.

    nova would fail before it (ResourceTracker.abort_instance_claim) or after
    it, in judge_again(), and hide why the build ends.
    """
    try:
        call()
    except KeyError as exc:
        if exc.args != (call['nodename'],):
            raise
        # Without nova's lock: no audit counts the node here.
        call.target._unset_instance_host_and_node(call['instance'])
    except names.ComputeHostNotFound:
        # Given back by then; the node is another host's.
        pass


def unset_host(parts, call):
    """Give a claim back, under the lock of nova's tracker."""
    def act_without_waiting():
        with _under_a_lock(call['instance'].save):
            return call()

    return parts.guard.give_back(
        call.name, call['instance'], act_without_waiting)


def give_back(parts, call):
    """Take the host off the object of an instance, which nova saves soon.

    So nova gives a claim back that it does not abort, say a half-written one.
    """
    return (parts.guard.give_back(
                call.name, call['instance'], call, patient=True)
            if parts.guard.building else call())


class GuardedSave:
    """The method ``save`` of an instance while it is being built.

    It fails as nova's does, with UnexpectedTaskStateError, if nova expects
    another task state; and ends the build if the instance was built.

    :param guard: :class:`.engine.builds.build_guard.BuildGuard`.
    :ivar waits: whether it may wait for an answer.
    """

    def __init__(self, guard, name: str, instance: objects.Instance) -> None:
        self._guard = guard
        self._name = name
        self._instance = instance
        self._save = instance.save
        self.waits = True
        #: The last task state that it has saved.
        self._last: str | None = None

    def __call__(self, *args, **kwargs) -> None:
        """Save, see nova.objects.Instance.save."""
        changed = STATE & self._instance.obj_what_changed()
        if args or not self._guard.building or not changed:
            # nova reads the record into the object.
            self._save(*args, **kwargs)
            return
        if not kwargs and 'task_state' in changed and (
                self._instance.task_state == task_states.BLOCK_DEVICE_MAPPING):
            self._write_that_it_attaches_volumes()
        else:
            self._write(kwargs)
        if 'task_state' in changed:
            self._last = self._instance.task_state
            if self._last == task_states.SCHEDULING:
                self._guard.note_scheduled()

    def _write_that_it_attaches_volumes(self):
        try:
            self._write({'expected_task_state': [self._last]})
        except exception.UnexpectedTaskStateError:
            # The next one saves something else, and would save this, too.
            self._instance.obj_reset_changes(['task_state', 'vm_state'])
            raise

    def _write(self, conditions):
        instance = self._instance
        conditions = {'expected_vm_state': [*BUILT], **conditions}
        save = functools.partial(self._save, **conditions)
        try:
            if self.waits:
                self._guard.persist(
                    self._name, instance, save, functools.partial(
                        self._save, **_or_written(instance, conditions)),
                    # nova compares no task state when it gives a build back.
                    asks=instance.task_state == task_states.SCHEDULING)
            else:
                save()
        except exception.UnexpectedDeletingTaskStateError:
            raise
        except exception.InstanceUpdateConflict as exc:
            # If the answer was lost, nova would free a running server's ports.
            if (instance.vm_state == vm_states.ACTIVE or not isinstance(
                    exc, exception.UnexpectedTaskStateError)
                    or self._is_crossed(exc)):
                self._guard.leave(self._name)
            raise
        except Exception as exc:
            if (instance.vm_state == vm_states.ACTIVE
                    and retry.passing(exc)):
                self._guard.leave(self._name)
            raise

    def _is_crossed(self, exc):
        held = 'host' not in self._instance.obj_what_changed()
        return builds.crossed(
            exc.kwargs.get('actual', {}).get('task_state'),
            held and self._instance.host is not None)


@contextlib.contextmanager
def _under_a_lock(save):
    """Have a :class:`GuardedSave` not wait under the lock of the tracker."""
    if not isinstance(save, GuardedSave):
        yield
        return
    save.waits = False
    try:
        yield
    finally:
        save.waits = True


def _or_written(instance, conditions):
    """Return conditions that also hold if the write's answer was lost."""
    found = {'expected_vm_state': [*conditions['expected_vm_state'],
                                   instance.vm_state]}
    expected = conditions.get('expected_task_state')
    if expected is not None:
        found['expected_task_state'] = [
            *((expected,) if isinstance(expected, str) else expected),
            instance.task_state]
    return found
