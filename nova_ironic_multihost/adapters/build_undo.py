# SPDX-License-Identifier: Apache-2.0

"""Undo a build that Ironic was not told of, after its thread has died.

Else nova does it (ComputeManager._build_resources,
_do_build_and_run_instance).
"""

from __future__ import annotations

import threading
import traceback

from nova.compute import instance_actions
from nova.compute import task_states
from nova.compute import utils as compute_utils
from nova.compute import vm_states
from nova import exception
from nova import objects
from nova.objects import base

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import errors
from nova_ironic_multihost.adapters import finish_build
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.forwarding import QueuedRequest

#: The most instances in BuildAttempts._unrecorded.
REMEMBERED = 1000

#: Records the start of an event; only its traceback shows a failure.
_EVENT_START = compute_utils.EventReporter.__enter__.__code__


class BuildAttempts:
    """Attempts at builds (port Attempts). Several threads use it."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        #: Uuid of an instance -> failed builds of which nova has no start.
        self._unrecorded: dict[str, int] = {}

    def count(self, instance: str) -> int:
        """Count the attempts that have not ended or have failed."""
        context = names.admin_context()
        return self._unrecorded.get(instance, 0) + sum(
            event.event == finish_build.BUILD.event
            and (event.finish_time is None or event.result == 'Error')
            for action in objects.InstanceActionList.get_by_instance_uuid(
                context, instance)
            if action.action == instance_actions.CREATE
            for event in objects.InstanceActionEventList.get_by_action(
                context, action.id))

    def note_failure(self, instance: str, error: BaseException) -> None:
        """Count a failed build if nova could not record its start."""
        if not any(frame.f_code is _EVENT_START and frame.f_locals[
                'self'].event_name == finish_build.BUILD.event
                for one in errors.chain(error)
                for frame, _ in traceback.walk_tb(one.__traceback__)):
            return
        with self._lock:
            # The oldest entries are deleted first.
            before = self._unrecorded.pop(instance, 0)
            self._unrecorded[instance] = before + 1
            while len(self._unrecorded) > REMEMBERED:
                del self._unrecorded[next(iter(self._unrecorded))]

    def repeatable(self, instance: objects.Instance) -> bool:
        """Whether all that was done for a build can be undone."""
        # cinder may have attached volumes; nova's conductor attaches anew.
        return not any(
            bdm.is_volume for bdm
            in objects.BlockDeviceMappingList.get_by_instance_uuid(
                names.admin_context(), instance.uuid))

    def undo(self, instance: objects.Instance, copy: QueuedRequest) -> None:
        """Undo a build, the node first and the instance's host last.

        :raises InstanceUpdateConflict: it was taken over meanwhile, or built.
        :raises UnexpectedTaskStateError: another operation has begun.
        """
        context = names.admin_context()
        # Ports of the user stay; nova may not have recorded them.
        self._undo(context, instance,
                   base.NovaObjectSerializer().deserialize_entity(
                       context, copy.arguments.get('requested_networks')))

    def renew(self, uuid: str,
              networks: objects.NetworkRequestList | None) -> None:
        """Undo a build that was left without a host, if it can be repeated."""
        context = names.admin_context()
        instance = objects.Instance.get_by_uuid(
            context, uuid, expected_attrs=['info_cache', 'metadata'])
        if builds.left_over(
                db.state(instance)) and self.repeatable(instance):
            self._undo(context, instance, networks)

    def _undo(self, context, instance, networks):
        manager = names.manager_of(self._driver.virtapi)
        networks = self._without_ports_of_others(
            context, manager, instance, networks)
        before = instance.task_state
        self._driver.destroy(
            context, instance, instance.get_network_info())
        # destroy() may have taken long.
        found = objects.Instance.get_by_uuid(context, instance.uuid)
        if found.host != instance.host:
            raise exception.InstanceUpdateConflict(
                instance_uuid=instance.uuid,
                expected={'host': instance.host}, actual={'host': found.host})
        manager._deallocate_network(context, instance, networks)
        # Otherwise the next attempt makes no ports
        # (ComputeManager._build_networks_for_instance).
        instance.system_metadata['network_allocated'] = 'False'
        manager._nil_out_instance_obj_host_and_node(instance)
        instance.task_state = task_states.SCHEDULING
        instance.save(expected_vm_state=[vm_states.BUILDING],
                      expected_task_state=[before])

    @staticmethod
    def _without_ports_of_others(context, manager, instance, networks):
        """Leave out ports of other servers, which nova would detach."""
        if not networks or networks.no_allocate:
            return networks
        ports = {port['id'] for port in manager.network_api.list_ports(
            context, device_id=instance.uuid)['ports']}
        return objects.NetworkRequestList(objects=[
            network for network in networks if network.port_id in ports])
