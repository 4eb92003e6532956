# SPDX-License-Identifier: Apache-2.0

"""Undo what nova has done for an evacuation that this package refuses.

nova's API writes a task state and a migration ``accepted``; its conductor
allocates another node and sends the rebuild to a host. There the claim would
fail, as nova's driver does not know the host's address
(ResourceTracker._claim_existing_migration). ComputeManager.rebuild_instance
would then write outdated states, or ERROR if the node has another owner by
now. So a rebuild is refused before nova begins it.
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
from nova_ironic_multihost.adapters import ironic
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.evacuation import Evacuated

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


class EvacuationUndo:
    """nova's evacuations (port Evacuations)."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver
        self._machines = ironic.IronicMachines(driver)

    def found(self) -> dict[str, Evacuated]:
        """Read the evacuations that are not refused, or only recently."""
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
            self._record_failure(context, uuid)
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
        for record in db.records(context, surplus):
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
            *seen, actions_of(context, uuid),
            [fault.created_at for fault in faults],
            lambda: self._machines.vm_state(instance))
        if (instance.vm_state, instance.task_state) != seen:
            instance.save(expected_vm_state=[seen[0]],
                          expected_task_state=[seen[1]])

    def _record_failure(self, context, uuid):
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


def _evacuations(context: nova_context.RequestContext,
                 statuses: list[str], until: datetime.datetime | None
                 ) -> Iterator[objects.Migration]:
    """Read the evacuations with these statuses, the latest first.

    The conductor cannot filter by time: a time arrives there as a text.

    :param until: leave out those created before; None to read all.
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
