# SPDX-License-Identifier: Apache-2.0

"""How a build claims its node, and how it saves how far it is.

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

from nova.compute import task_states
from nova.compute import vm_states
from nova import exception
from nova import objects

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import retry

#: What says how far a build is.
STATE = frozenset({'host', 'task_state', 'vm_state'})

#: Of an instance that is being built, or was given up and may still be.
BUILT = (vm_states.BUILDING, vm_states.ERROR)


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


def abort(parts, call):
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


def save_as_a_build(parts, call):
    """Let a build write over nothing but what a build has written."""
    call['instance'].save = GuardedSave(
        parts.guard, call.name, call['instance'])
    return call()


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
                        self._save, **_or_written(instance, conditions)))
            else:
                save()
        except exception.UnexpectedDeletingTaskStateError:
            raise
        except exception.InstanceUpdateConflict as exc:
            # If the answer was lost, nova would free a running server's ports.
            if (instance.vm_state == vm_states.ACTIVE or not isinstance(
                    exc, exception.UnexpectedTaskStateError)):
                self._guard.leave(self._name)
            raise
        except Exception as exc:
            if (instance.vm_state == vm_states.ACTIVE
                    and retry.passing(exc)):
                self._guard.leave(self._name)
            raise


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
