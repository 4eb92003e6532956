# SPDX-License-Identifier: Apache-2.0


"""Evacuations of nova, and what is undone when one is refused.

nova's API writes a task state and a migration of the status ``accepted``, its
conductor allocates another machine to the server, and this host, or any other,
is told to build it there. nova would fail at the claim, as its driver does not
know the address of the host (ResourceTracker._claim_existing_migration), write
both states of the server as they were when the message was sent, over whatever
there is by then, and set it to ERROR if the machine has another owner by then
(ComputeManager.rebuild_instance). So nova does not even begin.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
import contextlib
import datetime
import functools

from nova.compute import utils as compute_utils
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.objects import fields
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import machines
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.evacuation import Evacuated

#: Statuses of an evacuation that nova has not given up: the API's, and that of
#: a claim (ResourceTracker._claim_existing_migration).
IN_PROGRESS = ['accepted', 'pre-migrating']

#: The status with which nova's conductor gives one up when it finds no other
#: machine: the server is in ERROR then (ComputeTaskManager.rebuild_instance).
GIVEN_UP = 'error'

#: The one of an evacuation that is refused, as with nova's own refusal.
REFUSED = 'failed'

#: For so long one that was given up is looked for, by the clock of nova's API;
#: and one that was refused, for the conductor may come to it later.
GIVEN_UP_SINCE = datetime.timedelta(days=1)
REFUSED_SINCE = datetime.timedelta(minutes=30)


class EvacuationUndo:
    """The evacuations of nova.

    Implements the port :class:`.engine.base.ports.EvacuationUndo`.

    :param driver: the virt driver.
    """

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver
        self._machines = machines.IronicMachines(driver)

    def found(self) -> dict[str, Evacuated]:
        """Read which evacuations nobody has refused, or only just."""
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
            for record in db.records(context, sorted(set(nodes.values())))
            if record.row.hypervisor_type
            == self._driver._get_hypervisor_type()}
        return {uuid: Evacuated(records[node], frozenset(unrefused[uuid]))
                for uuid, node in nodes.items() if node in records}

    def refuse(self, uuid: str) -> bool:
        """Undo what nova has done for the evacuations of an instance.

        The migrations come last: while one is in progress nobody takes the
        instance over, and whoever looks for them finds what is left to do.

        :param uuid: of the instance.
        :returns: whether there was one that nobody had refused.
        :raises Exception: not all of it could be done; it is to be repeated.
        """
        context = names.admin_context()
        with contextlib.suppress(exception.InstanceNotFound):
            self._free(context, uuid)
        evacuated = list(objects.MigrationList.get_by_filters(context, {
            'instance_uuid': uuid,
            'migration_type': fields.MigrationType.EVACUATION}))
        refused = [migration for migration in evacuated
                   if migration.status in (*IN_PROGRESS, GIVEN_UP)]
        if evacuated:
            with contextlib.suppress(exception.InstanceNotFound):
                self._put_back(context, uuid, again=not refused)
        if refused:
            self._tell(context, uuid)
        for migration in refused:
            migration.status = REFUSED
            migration.save()
        return bool(refused)

    def _free(self, context, uuid):
        """Free the machines that an instance has allocated and is not on.

        :raises InstanceNotFound: it is deleted, and nova frees all it has.
        """
        client = names.manager_of(self._driver.virtapi).reportclient
        allocated = client.get_allocs_for_consumer(
            context, uuid)['allocations']
        # Read in this order: one that gets a machine since is not freed.
        instance = objects.Instance.get_by_uuid(
            context, uuid, expected_attrs=[])
        surplus = evacuation.surplus(instance.node, allocated.keys())
        for record in db.records(context, surplus):
            # What else there may be, such as bandwidth, is no machine.
            if not client.remove_provider_tree_from_instance_allocation(
                    context, uuid, record.node):
                raise names.NovaException(
                    f'placement does not free node {record.node}')

    def _put_back(self, context, uuid, again):
        """Write both states as they were before.

        :param again: only what nova's conductor may have done since.
        :raises InstanceUpdateConflict: they are others by now.
        """
        instance = objects.Instance.get_by_uuid(
            context, uuid, expected_attrs=[])
        seen = instance.vm_state, instance.task_state
        if again and instance.task_state == evacuation.TASK:
            # nova's API begins a rebuild, and has not noted yet that it does.
            return
        faults = objects.InstanceFaultList.get_by_instance_uuids(
            context, [uuid])
        instance.vm_state, instance.task_state = evacuation.left_by(
            *seen, actions_of(context, uuid),
            [fault.created_at for fault in faults],
            lambda: self._machines.vm_state(instance))
        if (instance.vm_state, instance.task_state) != seen:
            instance.save(expected_vm_state=[seen[0]],
                          expected_task_state=[seen[1]])

    def _tell(self, context, uuid):
        """Note at the request for the evacuation why it has failed."""
        asked = next((
            action for action
            in objects.InstanceActionList.get_by_instance_uuid(context, uuid)
            if action.action == evacuation.EVACUATE), None)
        if asked is None:
            return
        context = names.admin_context()
        context.request_id = asked.request_id
        error = names.NovaException(evacuation.REFUSED)
        with contextlib.suppress(exception.InstanceActionNotFound):
            try:
                with compute_utils.EventReporter(
                        context, evacuation.REBUILT, names.CONF.host, uuid):
                    raise error
            except names.NovaException as exc:
                if exc is not error:
                    raise


def actions_of(context: nova_context.RequestContext, uuid: str
               ) -> list[evacuation.EvacuationAction]:
    """Read what an instance was asked for, the latest first.

    :param uuid: of the instance.
    """
    def events(action):
        return [
            evacuation.EvacuationEvent(
                row.event, row.start_time, row.finish_time
            )
            for row in objects.InstanceActionEventList.get_by_action(
                context, action.id
            )
        ]

    return [evacuation.EvacuationAction(
        action.action, action.start_time, action.message is not None,
        functools.partial(events, action)) for action
        in objects.InstanceActionList.get_by_instance_uuid(context, uuid)]


def _evacuations(context: nova_context.RequestContext,
                 statuses: list[str], until: datetime.datetime | None
                 ) -> Iterator[objects.Migration]:
    """Read the evacuations of some statuses, the latest first.

    The conductor cannot be asked for those since a moment: a time is a text
    when it comes there, and nova does not read it.

    :param until: the moment before which they are left out, None to read all.
    """
    marker = None
    while True:
        some = objects.MigrationList.get_by_filters(
            context, {'migration_type': fields.MigrationType.EVACUATION,
                      'status': statuses},
            limit=db.BATCH, marker=marker)
        for migration in some:
            if until is not None and migration.created_at < until:
                return
            yield migration
        if len(some) < db.BATCH:
            return
        marker = some[-1].uuid
