# SPDX-License-Identifier: Apache-2.0

"""Evacuations: nova's API and conductor begin them, the driver refuses them.

As in adapters/undo.py: what is freed and restored is decided by
rules/evacuation.py, and the migration is written last.
"""

import dataclasses
import datetime

from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.simulation.threads import pause
from nova_ironic_multihost.tests.simulation import world as worlds


@dataclasses.dataclass
class Evacuation:
    """A migration of nova, and what its conductor does for it.

    :ivar status: ``accepted``, ``error`` without another node, ``failed``
        when it is refused.
    :ivar conductor: it has not looked for another node yet.
    :ivar cast_to: host that is told to rebuild, until it is.
    """

    uuid: str
    instance: object
    began: datetime.datetime
    status: str = 'accepted'
    conductor: bool = True
    cast_to: str | None = None
    ended: datetime.datetime | None = None

    @property
    def action(self):
        return evacuation.EvacuationAction(
            evacuation.EVACUATE, self.began, events=lambda: (
                evacuation.EvacuationEvent(
                    evacuation.SCHEDULED, self.began, self.ended),))


class Nova:
    """nova's API and conductor."""

    def __init__(self, world):
        self._world = world
        self.all = []
        self.faults = {}

    def now(self):
        self._world.serials['second'] += 1
        return (worlds.START + datetime.timedelta(
            seconds=self._world.serials['second'])).replace(
                tzinfo=datetime.UTC)

    def of(self, uuid):
        """Return the evacuations of an instance, the latest first."""
        return [one for one in reversed(self.all)
                if one.instance.uuid == uuid]

    def evacuate(self, instance):
        """API.evacuate writes the task state, then the migration."""
        instance.task = evacuation.TASK
        self.all.append(Evacuation(
            self._world.new('migration'), instance, self.now()))

    def schedule(self, one, node):
        """ComputeTaskManager.rebuild_instance."""
        one.conductor, one.ended = False, self.now()
        instance = one.instance
        if node and self._world.allocate(node, instance.uuid):
            one.cast_to = self._world.owner(node)
            return
        # nova's conductor writes without a look.
        if not instance.deleted:
            instance.error, instance.task = True, None
            self.faults[instance.uuid] = [
                *self.faults.get(instance.uuid, ()), one.ended]
        if one.status == 'accepted':
            one.status = 'error'

    def actions(self, uuid):
        return [*(one.action for one in self.of(uuid)),
                evacuation.EvacuationAction('create', worlds.START.replace(
                    tzinfo=datetime.UTC))]

    def in_progress(self, uuid):
        return any(one.status == 'accepted' for one in self.of(uuid))


class Evacuations:
    """The port of that name, of one host."""

    def __init__(self, world, writes):
        self._world = world
        self._writes = writes

    def found(self):
        pause()
        world = self._world
        return {
            one.instance.uuid: evacuation.Evacuated(
                Record(one.instance.node, world.owner(one.instance.node)),
                frozenset(its.uuid for its
                          in world.nova.of(one.instance.uuid)
                          if its.status != 'failed'))
            for one in world.nova.all if world.owner(one.instance.node)}

    def refuse(self, uuid):
        world, nova = self._world, self._world.nova
        pause()
        instance = world.instances[uuid]
        allocated = {node for node, provider in world.providers.items()
                     if provider.consumer == uuid}
        if not instance.deleted:
            for node in evacuation.surplus(instance.node, allocated):
                self._writes.write(lambda: world.deallocate(uuid, node))
        refused = [one for one in nova.of(uuid) if one.status != 'failed']
        self._restore(instance, again=not refused)
        for one in refused:
            pause()
            one.status = 'failed'
        return bool(refused)

    def _restore(self, instance, again):
        """adapters.undo.EvacuationUndo._restore_states."""
        pause()
        world, state = self._world, instance.state
        if instance.deleted or again and state.task_state == evacuation.TASK:
            return
        restored = evacuation.left_by(
            state.vm_state, state.task_state,
            world.nova.actions(instance.uuid),
            world.nova.faults.get(instance.uuid, ()),
            lambda: world.machines.get(instance.node) == instance.uuid
            and takeover.resting('active', 'active') or None)
        seen = state.vm_state, state.task_state
        if restored != seen and not self._writes.write(
                lambda: world.set_states(instance.uuid, seen, *restored)):
            raise RuntimeError('its states have changed')
