# SPDX-License-Identifier: Apache-2.0

"""Undo what nova has begun: builds without a host or a thread, evacuations.

nova undoes a build in its own thread, which may have died
(ComputeManager._build_resources, _do_build_and_run_instance).

For an evacuation nova's API writes a task state and a migration
``accepted``; its conductor allocates another node and sends the rebuild to a
host. There the claim would fail, as nova's driver does not know the host's
address (ResourceTracker._claim_existing_migration).
ComputeManager.rebuild_instance would then write outdated states, or ERROR if
the node has another owner by now. So a rebuild is refused before nova begins
it.
"""

from __future__ import annotations

import collections
from collections import abc
import contextlib
import datetime
import itertools

from nova import baserpc
from nova.compute import instance_actions
from nova.compute import rpcapi
from nova.compute import task_states
from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.objects import base
from nova.objects import fields
import oslo_messaging as messaging
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.evacuation import Evacuated
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import QueuedRequest

#: Statuses of an evacuation in progress: the API's, and that of a claim
#: (ResourceTracker._claim_existing_migration).
IN_PROGRESS = ['accepted', 'pre-migrating']

#: The status that nova's conductor sets when it finds no other node; the
#: server is in ERROR then (ComputeTaskManager.rebuild_instance).
GIVEN_UP = 'error'

#: The status of a refused evacuation, as after nova's own refusal.
REFUSED = 'failed'

#: The oldest evacuations that found() reads, by the clock of nova's API.
#: Refused ones are read as the conductor may still act on them.
GIVEN_UP_SINCE = datetime.timedelta(days=1)
REFUSED_SINCE = datetime.timedelta(minutes=30)


class BuildRequests:
    """Builds before they are on a host (port Builds).

    One thread uses it, but any may call :meth:`receive`.
    """

    def __init__(self, host: str, tracker: nova_tracker.NovaTracker):
        self._host = host
        self._tracker = tracker
        self._nodes: dict[tuple[str, object], str] = {}

    def unclaimed(self) -> frozenset[SentBuild]:
        """Read the builds without a host, and their nodes from placement.

        A build for which placement answers with an error is left out.

        :raises keystoneauth1.exceptions.ClientException: it does not answer.
        """
        # Unless nova changes an instance, placement is asked once for it.
        rows, known = db.hostless(vm_states.BUILDING), self._nodes
        self._nodes = {row: known[row] for row in rows if row in known}
        for row in rows:
            with contextlib.suppress(
                    exception.ConsumerAllocationRetrievalFailed):
                if node := self._nodes.get(row) or self._node(row[0]):
                    self._nodes[row] = node
        return frozenset(SentBuild(uuid, node) for (uuid, _), node
                         in self._nodes.items())

    def _node(self, uuid):
        """Return the node allocated to an instance, None unless it is one."""
        found = list(self._tracker.report_client.get_allocs_for_consumer(
            names.admin_context(), uuid)['allocations'])
        return found[0] if len(found) == 1 else None

    def receive(self) -> None:
        """Call this host through its RPC queue, behind all builds in it."""
        api = baserpc.BaseAPI(rpcapi.RPC_TOPIC)
        api.client.prepare(server=self._host).call(
            names.admin_context(), 'ping', arg=self._host)

    def give_up(self, build: SentBuild, reason: str,
                absent: abc.Callable[[], bool]) -> bool:
        # The allocation stays until the instance is deleted, as in nova.
        context = names.admin_context()
        try:
            instance = objects.Instance.get_by_uuid(context, build.instance)
            if (instance.host, instance.vm_state) != (
                    None, vm_states.BUILDING):
                return False
            if self._node(build.instance) != build.node:
                self._nodes = {}
                return False
            # Users see the fault only when the instance is in ERROR.
            nova_servers.note_fault(instance, nova_servers.BUILD, reason)
            before = instance.task_state
            instance.vm_state = vm_states.ERROR
            instance.task_state = None
            # Last: nova may begin a build without a task state.
            if not absent():
                return False
            instance.save(expected_vm_state=[vm_states.BUILDING],
                          expected_task_state=[before])
        except (exception.InstanceNotFound,
                exception.InstanceUpdateConflict):
            return False
        except messaging.MessagingTimeout:
            # The write may have been carried out.
            instance = objects.Instance.get_by_uuid(context, build.instance)
            return (instance.host, instance.vm_state) == (
                None, vm_states.ERROR)
        return True


class BuildAttempts:
    """Attempts at builds (port Attempts). Several threads use it."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    def count(self, instance: str) -> int:
        """Count the attempts that have not ended or have failed."""
        context = names.admin_context()
        requests = [
            action for action
            in objects.InstanceActionList.get_by_instance_uuid(
                context, instance)
            if action.action == instance_actions.CREATE]
        if not requests:
            # nova has lost the request: no build can record its start.
            return forwarding.BUILD_ATTEMPTS
        return sum(
            event.event == nova_servers.BUILD.event
            and (event.finish_time is None or event.result == 'Error')
            for action in requests
            for event in objects.InstanceActionEventList.get_by_action(
                context, action.id))

    def repeatable(self, instance: objects.Instance) -> bool:
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


class EvacuationUndo:
    """nova's evacuations (port Evacuations)."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver
        self._machines = ironic.IronicMachines(driver)

    def found(self) -> dict[str, Evacuated]:
        context = names.admin_context()
        now = timeutils.utcnow(with_timezone=True)
        nodes: dict[str, str] = {}
        unrefused = collections.defaultdict(set)
        for statuses, until in (([REFUSED, GIVEN_UP], now - GIVEN_UP_SINCE),
                                (IN_PROGRESS, None)):
            for migration in _evacuations(context, statuses, until):
                refused = migration.status == REFUSED
                if migration.source_node is not None and not (
                        refused and migration.created_at
                        < now - REFUSED_SINCE):
                    nodes[migration.instance_uuid] = migration.source_node
                    if not refused:
                        unrefused[migration.instance_uuid].add(migration.uuid)
        records = {
            record.node: record
            for record in db.records(sorted(set(nodes.values())))
            if record.row.hypervisor_type
            == self._driver._get_hypervisor_type()}
        return {uuid: Evacuated(records[node], frozenset(unrefused[uuid]))
                for uuid, node in nodes.items() if node in records}

    def refuse(self, uuid: str) -> bool:
        """Undo what nova has done for the evacuations of an instance.

        The migrations are written last: until then no host takes the instance
        over, and found() still returns it.
        """
        context = names.admin_context()
        with contextlib.suppress(exception.InstanceNotFound):
            self._free_nodes(context, uuid)
        evacuated = list(objects.MigrationList.get_by_filters(context, {
            'instance_uuid': uuid,
            'migration_type': fields.MigrationType.EVACUATION}))
        refused = [migration for migration in evacuated
                   if migration.status in (*IN_PROGRESS, GIVEN_UP)]
        if evacuated:
            with contextlib.suppress(exception.InstanceNotFound):
                self._restore_states(context, uuid, again=not refused)
        if refused:
            self._record_failure(uuid)
        for migration in refused:
            migration.status = REFUSED
            migration.save()
        return bool(refused)

    def _free_nodes(self, context, uuid):
        """Free the nodes that an instance has allocated and is not on.

        :raises InstanceNotFound: it is deleted; nova frees all its nodes.
        """
        client = names.manager_of(self._driver.virtapi).reportclient
        allocated = client.get_allocs_for_consumer(
            context, uuid)['allocations']
        # Read after the allocations: a node allocated since then is not freed.
        instance = objects.Instance.get_by_uuid(
            context, uuid, expected_attrs=[])
        surplus = evacuation.surplus(instance.node, allocated.keys())
        for record in db.records(surplus):
            # Only nodes have records; bandwidth, for example, stays.
            if not client.remove_provider_tree_from_instance_allocation(
                    context, uuid, record.node):
                raise names.NovaException(
                    f'placement does not free node {record.node}')

    def _restore_states(self, context, uuid, again):
        """Restore both states of the instance.

        :param again: after a refusal; nova's conductor may have changed them.
        :raises InstanceUpdateConflict: the states have changed meanwhile.
        """
        instance = objects.Instance.get_by_uuid(
            context, uuid, expected_attrs=[])
        seen = instance.vm_state, instance.task_state
        if again and instance.task_state == evacuation.TASK:
            # nova's API has begun a rebuild and not yet recorded its action.
            return
        faults = objects.InstanceFaultList.get_by_instance_uuids(
            context, [uuid])
        instance.vm_state, instance.task_state = evacuation.left_by(
            *seen, nova_servers.actions_of(context, uuid),
            [fault.created_at for fault in faults],
            lambda: self._machines.vm_state(instance))
        if (instance.vm_state, instance.task_state) != seen:
            instance.save(expected_vm_state=[seen[0]],
                          expected_task_state=[seen[1]])

    def _record_failure(self, uuid):
        asked = nova_servers.last_action(uuid, evacuation.EVACUATE)
        if asked is None:
            return
        event = (nova_servers.context_of(asked), uuid, evacuation.REBUILT)
        with contextlib.suppress(exception.InstanceActionNotFound):
            objects.InstanceActionEvent.event_start(
                *event, want_result=False, host=names.CONF.host)
            objects.InstanceActionEvent.event_finish_with_failure(
                *event, exc_val=evacuation.REFUSED, exc_tb='',
                want_result=False)


def _evacuations(context: nova_context.RequestContext,
                 statuses: list[str], until: datetime.datetime | None
                 ) -> abc.Iterator[objects.Migration]:
    """Read the evacuations with these statuses, the latest first.

    The conductor cannot filter by time: a time arrives there as a text.

    :param until: leave out those created before; None to read all.
    """
    return itertools.takewhile(
        lambda migration: until is None or migration.created_at >= until,
        db.pages(lambda marker: objects.MigrationList.get_by_filters(
            context, {'migration_type': fields.MigrationType.EVACUATION,
                      'status': statuses},
            limit=db.BATCH, marker=marker), db.BATCH))
