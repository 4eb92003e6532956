# SPDX-License-Identifier: Apache-2.0

"""What nova has done for a build before Ironic was told, and how it is undone.

nova does that in the thread that builds, when something fails and the build is
scheduled again (ComputeManager._build_resources,
_do_build_and_run_instance). If that thread has died it is done here.
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

#: The most builds of which it is remembered that nova could not note them.
REMEMBERED = 1000

#: What notes that something begins. nova tells nobody when that has failed;
#: its frame in the traceback is the only trace.
_NOTE = compute_utils.EventReporter.__enter__.__code__


class BuildAttempts:
    """Implements the port :class:`.engine.base.ports.BuildAttempts`.

    Several threads use it.

    :param driver: the virt driver, of a ComputeManager.
    """

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        #: Uuid of an instance -> builds of it that nova could not note.
        self._unwritten: dict[str, int] = {}

    def count(self, instance: str) -> int:
        """Return how often a build was begun and not ended.

        nova notes each time that it begins one, and that it ends
        (nova.compute.utils:wrap_instance_event); with an error, if nova has
        not decided what becomes of it. One that it could not note as begun,
        as its request is gone, say, counts as well if it was begun here.
        """
        context = names.admin_context()
        return self._unwritten.get(instance, 0) + sum(
            event.event == finish_build.BUILD.event
            and (event.finish_time is None or event.result == 'Error')
            for action in objects.InstanceActionList.get_by_instance_uuid(
                context, instance)
            if action.action == instance_actions.CREATE
            for event in objects.InstanceActionEventList.get_by_action(
                context, action.id))

    def note_failure(self, instance: str, error: BaseException) -> None:
        """Note a build that has failed, if nova could not note that it began.

        :param instance: its uuid.
        :param error: what it has failed with.
        """
        if not any(frame.f_code is _NOTE and frame.f_locals[
                'self'].event_name == finish_build.BUILD.event
                for one in errors.chain(error)
                for frame, _ in traceback.walk_tb(one.__traceback__)):
            return
        with self._lock:
            # Who fails again is the last to be forgotten.
            before = self._unwritten.pop(instance, 0)
            self._unwritten[instance] = before + 1
            while len(self._unwritten) > REMEMBERED:
                del self._unwritten[next(iter(self._unwritten))]

    def repeatable(self, instance: objects.Instance) -> bool:
        """Whether all that was done for a build can be undone.

        cinder may have volumes attached, and nova schedules such a build anew
        with attachments that its conductor makes.
        """
        return not any(
            bdm.is_volume for bdm
            in objects.BlockDeviceMappingList.get_by_instance_uuid(
                names.admin_context(), instance.uuid))

    def undo(self, instance: objects.Instance, copy: QueuedRequest) -> None:
        """Undo it, the machine first and the instance's host last.

        Ports that the user has made stay: they are known from the copy alone
        if neutron had them bound and nova has not written that down.

        :raises InstanceUpdateConflict: it was taken over meanwhile, or built.
        :raises UnexpectedTaskStateError: somebody is at the instance, its
            user deletes it, say.
        """
        context = names.admin_context()
        self._undo(context, instance,
                   base.NovaObjectSerializer().deserialize_entity(
                       context, copy.arguments.get('requested_networks')))

    def renew(self, uuid: str,
              networks: objects.NetworkRequestList | None) -> None:
        """Undo one that was left on no host (:func:`.admission.left_over`).

        One that cannot be repeated stays as it is, and is not begun then.

        :param uuid: of the instance.
        :param networks: that the build was asked for with.
        :raises Exception: as :meth:`undo` does.
        """
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
        # That may have taken long.
        found = objects.Instance.get_by_uuid(context, instance.uuid)
        if found.host != instance.host:
            raise exception.InstanceUpdateConflict(
                instance_uuid=instance.uuid,
                expected={'host': instance.host}, actual={'host': found.host})
        manager._deallocate_network(context, instance, networks)
        # Or the next attempt takes the ports for made
        # (ComputeManager._build_networks_for_instance).
        instance.system_metadata['network_allocated'] = 'False'
        manager._nil_out_instance_obj_host_and_node(instance)
        instance.task_state = task_states.SCHEDULING
        instance.save(expected_vm_state=[vm_states.BUILDING],
                      expected_task_state=[before])

    @staticmethod
    def _without_ports_of_others(context, manager, instance, networks):
        """Return what was requested, without the ports of other servers.

        nova would take them off those.
        """
        if not networks or networks.no_allocate:
            return networks
        ports = {port['id'] for port in manager.network_api.list_ports(
            context, device_id=instance.uuid)['ports']}
        return objects.NetworkRequestList(objects=[
            network for network in networks if network.port_id in ports])
