# SPDX-License-Identifier: Apache-2.0

"""Finish a build or a rebuild that Ironic has carried out.

nova does this in the thread that has called Ironic
(ComputeManager._build_and_run_instance, _do_rebuild_instance). If that thread
has died, this module does all the rest of it.
"""

from __future__ import annotations

from collections.abc import Callable
import threading
import typing

from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova import objects
from nova.objects import fields
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import names

if typing.TYPE_CHECKING:
    # The manager loads the driver.
    from nova.compute.manager import ComputeManager

LOG = logging.getLogger(__name__)


class TaskKind(typing.NamedTuple):
    """The differences between a build and a rebuild.

    :param action: name of the instance action that users see.
    :param event: name of its event, which nova's decorator has begun
        (nova.compute.utils:wrap_instance_event).
    :param unversioned: end of the unversioned notification's type.
    :param notify: sends the versioned notification.
    """

    action: str
    event: str
    unversioned: str
    notify: Callable


BUILD = TaskKind('create', 'compute__do_build_and_run_instance', 'create.end',
                 compute_utils.notify_about_instance_create)
REBUILD = TaskKind('rebuild', 'compute_rebuild_instance', 'rebuild.end',
                   compute_utils.notify_about_instance_rebuild)


def kind_of(instance: objects.Instance) -> TaskKind:
    """Return BUILD or REBUILD for an instance."""
    return BUILD if instance.vm_state == vm_states.BUILDING else REBUILD


def complete(manager: ComputeManager, instance: objects.Instance) -> None:
    """Finish the build or the rebuild of a deployed instance.

    :raises Exception: it is not finished; later errors are only logged.
    """
    kind = kind_of(instance)
    stopped = instance.vm_state == vm_states.STOPPED
    before = instance.task_state
    if kind is BUILD:
        _set_access_ips(instance)
    manager._update_instance_after_spawn(instance)
    if stopped:
        # nova finishes this when the service starts, if it is interrupted.
        instance.task_state = task_states.POWERING_OFF
    # Left by a reschedule (ComputeManager._build_and_run_instance).
    instance.system_metadata.pop('network_allocated', None)
    _save(instance, before)
    _finish_event(instance, kind)
    _start_thread(_notify_all, manager, instance.uuid, kind)
    if stopped:
        manager.stop_instance(_context(instance, kind), instance, False)


def _save(instance, before):
    """Save an instance; after a timeout check whether it was saved."""
    wanted = instance.vm_state, instance.task_state
    try:
        instance.save(expected_task_state=[before])
    except messaging.MessagingTimeout:
        found = objects.Instance.get_by_uuid(
            names.admin_context(), instance.uuid)
        if (found.vm_state, found.task_state) != wanted:
            raise
        instance.obj_reset_changes()


def _set_access_ips(instance):
    """Set the addresses that nova's API shows first for a server."""
    label = names.CONF.default_access_ip_network_name
    if not label or instance.access_ip_v4 or instance.access_ip_v6:
        return
    vif = next((vif for vif in instance.get_network_info()
                if vif['network']['label'] == label), None)
    for ip in reversed(vif.fixed_ips() if vif else []):
        setattr(instance, f'access_ip_v{ip["version"]}', ip['address'])


def _start_thread(target, *args):
    # A thread, as the message bus may not answer.
    try:
        threading.Thread(target=target, args=args, daemon=True,
                         name='ironic-multihost-notices').start()
    except RuntimeError as exc:
        LOG.warning('Threads of nova-compute are used up: %s.', exc)


def _notify_all(manager, uuid, kind):
    """Notify the scheduler and the listeners that the build is over."""
    for tell in (_tell_scheduler, _tell_unversioned, _tell_versioned):
        try:
            tell(manager, objects.Instance.get_by_uuid(
                names.admin_context(), uuid, expected_attrs=[
                    'flavor', 'info_cache', 'metadata', 'system_metadata']),
                 kind)
        except Exception as exc:  # noqa: BLE001
            LOG.warning('A notification of the end of the %(action)s of '
                        'instance %(uuid)s was not sent: %(exc)s. The '
                        '%(action)s itself is done: nothing to do.', {
                            'action': kind.action, 'uuid': uuid, 'exc': exc})


def _tell_scheduler(manager, instance, kind):
    manager._update_scheduler_instance_info(names.admin_context(), instance)


def _tell_unversioned(manager, instance, kind):
    manager._notify_about_instance_usage(
        names.admin_context(), instance, kind.unversioned,
        network_info=instance.get_network_info(),
        extra_usage_info={'message': 'Success'} if kind is BUILD else {
            'image_name': manager._get_image_name(instance.image_meta)})


def _tell_versioned(manager, instance, kind):
    kind.notify(
        names.admin_context(), instance, manager.host,
        phase=fields.NotificationPhase.END,
        bdms=objects.BlockDeviceMappingList.get_by_instance_uuid(
            names.admin_context(), instance.uuid))


def note_fault(
    instance: objects.Instance, kind: TaskKind, reason: str
) -> None:
    """Record the reason of a failed build or rebuild for the user."""
    error = names.NovaException(reason)
    _finish_event(instance, kind, error)
    compute_utils.add_instance_fault_from_exc(
        names.admin_context(), instance, error)


def _finish_event(instance, kind, error=None):
    """Record the end of the event in the instance's action."""
    try:
        objects.InstanceActionEvent.event_finish_with_failure(
            _context(instance, kind), instance.uuid, kind.event,
            exc_val=error and str(error),
            # A traceback, even an empty one, makes it a failure.
            exc_tb=None if error is None else '', want_result=False)
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Event %(event)s of instance %(uuid)s is not finished: '
                  '%(exc)s', {'event': kind.event, 'uuid': instance.uuid,
                              'exc': exc})


def _context(instance, kind):
    """Return a context with the id of the request that began the action."""
    context = names.admin_context()
    action = next((
        one for one in objects.InstanceActionList.get_by_instance_uuid(
            context, instance.uuid) if one.action == kind.action), None)
    if action is not None:
        context.request_id = action.request_id
    return context
