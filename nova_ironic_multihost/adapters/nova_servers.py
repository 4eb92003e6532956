# SPDX-License-Identifier: Apache-2.0

"""nova's calls for servers, and the end of a build that lost its thread.

nova finishes a build or a rebuild in the thread that has called Ironic
(ComputeManager._build_and_run_instance, _do_rebuild_instance).
"""

from __future__ import annotations

from collections import abc
import datetime
import functools
import typing

from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.objects import fields
from nova import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

if typing.TYPE_CHECKING:
    # The manager loads the driver.
    from nova.compute.manager import ComputeManager

LOG = logging.getLogger(__name__)

TASK_STATES = tuple(
    value for name, value in vars(task_states).items()
    if name.isupper() and isinstance(value, str))


class ServerCalls:
    """Calls of nova's manager for instances (port Instances)."""

    def __init__(self, virtapi):
        self._manager = names.manager_of(virtapi)

    def of_host(self, host: str, after: str | None
                ) -> dict[str, InstanceState]:
        return db.instances_of(host, after)

    def spell_host(self, uuid: str) -> None:
        if (instance := self.read(uuid)) is not None:
            spell_host(instance, self._manager.host)

    def busy(self, host: str) -> dict[str, InstanceState]:
        marks = takeover.marks(host_key(host), TASK_STATES)
        return {**db.instances_with({*takeover.TASKS, *marks}, host),
                # A build has no task state for a moment after its claim.
                **db.half_done(host)}

    def read(self, uuid: str) -> objects.Instance | None:
        """Read an instance with all that nova's start of a service needs."""
        try:
            return objects.Instance.get_by_uuid(
                names.admin_context(), uuid,
                expected_attrs=['info_cache', 'metadata', 'numa_topology'])
        except exception.InstanceNotFound:
            return None

    def set_states(self, instance: objects.Instance, vm_state: str,
                   task_state: str | None) -> bool:
        before = instance.task_state
        instance.vm_state = vm_state
        instance.task_state = task_state
        try:
            instance.save(expected_task_state=[before])
        except (exception.InstanceNotFound,
                exception.InstanceUpdateConflict):
            return False
        return True

    def init(self, instance: objects.Instance) -> None:
        spell_host(instance, self._manager.host)
        # nova records an event, which needs the id of a request.
        context = context_of(last_action(instance.uuid))
        with instance.obj_alternate_context(context):
            # nova's own method: the caller handles its errors.
            apply.novas(self._manager, '_init_instance')(context, instance)

    def delete(self, instance: objects.Instance) -> None:
        context = context_of(last_action(instance.uuid))
        with instance.obj_alternate_context(context):
            if (instance.task_state == task_states.SOFT_DELETING
                    and instance.vm_state != vm_states.DELETED):
                self._manager.soft_delete_instance(context, instance)
                return
            self._manager.terminate_instance(
                context, instance,
                objects.BlockDeviceMappingList.get_by_instance_uuid(
                    context, instance.uuid))

    def restore(self, instance: objects.Instance) -> None:
        context = context_of(last_action(instance.uuid))
        with instance.obj_alternate_context(context):
            self._manager.restore_instance(context, instance)

    def fail(self, instance: objects.Instance, reason: str) -> None:
        note_fault(
            instance, kind_of(instance), reason)
        self._manager._set_instance_obj_error_state(
            instance, clean_task_state=True)

    def deployed(self, instance: objects.Instance) -> None:
        complete(self._manager, instance)

    def began(self, uuid: str, action: str) -> datetime.datetime | None:
        """Return when the last action of this name began, in UTC."""
        found = last_action(uuid, action)
        return found and found.start_time

    def asked_last(self, uuid: str) -> str | None:
        return evacuation.asked_last(
            actions_of(names.admin_context(), uuid))

    def notify(self, event: str, payload: dict) -> None:
        """Send a notification of this package, once, without retries."""
        if rpc.NOTIFICATION_TRANSPORT is None:
            return
        messaging.Notifier(
            rpc.NOTIFICATION_TRANSPORT,
            publisher_id=f'nova-compute:{names.CONF.host}', retry=0,
            topics=settings.topics()).info(
                {}, event, payload)


def spell_host(instance: objects.Instance, host: str) -> None:
    """Write the host of an instance in the present spelling of the service."""
    # ComputeManager._init_instance skips instances with another case.
    if instance.host == host or host_key(instance.host or '') != host_key(
            host):
        return
    # The copy may be old: another host may have taken the instance over.
    try:
        found = objects.Instance.get_by_uuid(
            names.admin_context(), instance.uuid)
        if found.host != instance.host:
            return
        found.host = host
        found.save(expected_task_state=[found.task_state])
    except (exception.InstanceNotFound, exception.InstanceUpdateConflict):
        return
    instance.host = host
    instance.obj_reset_changes(['host'])


def last_action(uuid: str, name: str | None = None
                ) -> objects.InstanceAction | None:
    """Read the last action of an instance, of this name or of any."""
    found = objects.InstanceActionList.get_by_instance_uuid(
        names.admin_context(), uuid, limit=None if name else 1)
    return next((one for one in found if name in (None, one.action)), None)


def context_of(action: objects.InstanceAction | None
               ) -> nova_context.RequestContext:
    """Return a context with the request id of an action, if there is one."""
    context = names.admin_context()
    if action is not None:
        context.request_id = action.request_id
    return context


def actions_of(context: nova_context.RequestContext, uuid: str
               ) -> list[evacuation.EvacuationAction]:
    """Read the actions of an instance, the latest first."""
    def events(action):
        return [
            evacuation.EvacuationEvent(
                row.event, row.start_time, row.finish_time)
            for row in objects.InstanceActionEventList.get_by_action(
                context, action.id)
        ]

    return [evacuation.EvacuationAction(
        action.action, action.start_time, action.message is not None,
        functools.partial(events, action)) for action
        in objects.InstanceActionList.get_by_instance_uuid(context, uuid)]


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
    notify: abc.Callable


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
    # The message bus may not answer.
    periodic.start_thread(
        'notices', _notify_all, manager, instance.uuid, kind)
    if stopped:
        manager.stop_instance(
            context_of(last_action(instance.uuid, kind.action)),
            instance, False)


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


def _notify_all(manager, uuid, kind):
    """Notify the scheduler and the listeners that the build is over."""
    def tell_scheduler(context, instance):
        manager._update_scheduler_instance_info(context, instance)

    def tell_unversioned(context, instance):
        manager._notify_about_instance_usage(
            context, instance, kind.unversioned,
            network_info=instance.get_network_info(),
            extra_usage_info={'message': 'Success'} if kind is BUILD else {
                'image_name': manager._get_image_name(instance.image_meta)})

    def tell_versioned(context, instance):
        kind.notify(
            context, instance, manager.host,
            phase=fields.NotificationPhase.END,
            bdms=objects.BlockDeviceMappingList.get_by_instance_uuid(
                context, instance.uuid))

    for tell in tell_scheduler, tell_unversioned, tell_versioned:
        context = names.admin_context()
        try:
            tell(context, objects.Instance.get_by_uuid(
                context, uuid, expected_attrs=[
                    'flavor', 'info_cache', 'metadata', 'system_metadata']))
        except Exception as exc:  # noqa: BLE001
            LOG.warning('A notification of the end of the %(action)s of '
                        'instance %(uuid)s was not sent: %(exc)s. The '
                        '%(action)s itself is done: nothing to do.', {
                            'action': kind.action, 'uuid': uuid, 'exc': exc})


def note_fault(instance: objects.Instance, kind: TaskKind, reason: str
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
            context_of(last_action(instance.uuid, kind.action)),
            instance.uuid, kind.event, exc_val=error and str(error),
            # A traceback, even an empty one, makes it a failure.
            exc_tb=None if error is None else '', want_result=False)
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Event %(event)s of instance %(uuid)s is not finished: '
                  '%(exc)s', {'event': kind.event, 'uuid': instance.uuid,
                              'exc': exc})
