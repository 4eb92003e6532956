# SPDX-License-Identifier: Apache-2.0

"""Evacuations: how a server is restored after nova tried to evacuate it.

Over Ironic the server is the machine and cannot be evacuated. nova finds that
out late: its API writes a task state over the current one, even over a mark
(nova.compute.api:API.evacuate). Its conductor allocates another machine and
tells the compute service there to build, or sets ERROR if none is free.
"""

from collections import abc
import dataclasses
import datetime

from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

#: The fault that an operator reads after a refused evacuation.
REFUSED = (
    'A server over Ironic cannot be evacuated, it stays on its machine. For '
    'another compute service to take it over, force its own down: openstack '
    '--os-compute-api-version 2.11 compute service set --down HOST '
    'nova-compute')

#: The action that sets the vm_state of a server.
_SET_STATE = 'resetState'

#: The two actions that begin with one task state, and that state.
EVACUATE, REBUILD = 'evacuate', 'rebuild'
ACTIONS = frozenset({EVACUATE, REBUILD})
TASK = 'rebuilding'

#: Events: the conductor looks for another machine; a compute service rebuilds.
SCHEDULED, REBUILT = 'rebuild_server', 'compute_rebuild_instance'


@dataclasses.dataclass(frozen=True)
class EvacuationEvent:
    """One step of an action, with the clock of the service that did it."""

    name: str
    began: datetime.datetime
    ended: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class EvacuationAction:
    """An action requested of an instance; ``events`` is called if needed."""

    name: str
    began: datetime.datetime
    failed: bool = False
    events: abc.Callable[[], abc.Sequence[EvacuationEvent]] = (
        dataclasses.field(default=tuple, compare=False))

    def rebuilt(self) -> bool:
        """Return whether a compute service has ended a rebuild in any way."""
        return any(event.name == REBUILT and event.ended is not None
                   for event in self.events())


@dataclasses.dataclass(frozen=True)
class Evacuated:
    """An instance with an evacuation to clean up."""

    record: Record
    #: Evacuations to refuse; if none, nova may still act on a refused one.
    unrefused: frozenset[str]


def asked_last(actions: abc.Sequence[EvacuationAction]) -> str | None:
    """Return the action of :data:`ACTIONS` that an instance is in, or None."""
    # The latest is first. nova's API accepts an evacuation during a rebuild;
    # that is still a rebuild.
    requests = iter(actions)
    last = next((action.name for action in requests
                 if action.name in ACTIONS), None)
    if last != EVACUATE:
        return last
    before = next((action for action in requests
                   if action.name != EVACUATE), None)
    return (REBUILD if before is not None and before.name == REBUILD
            and not before.rebuilt() else EVACUATE)


def interrupted(task_state: str | None,
                last: abc.Callable[[], str | None]) -> str | None:
    """Return the task state from before a takeover; None for an evacuation."""
    before = takeover.before_mark(task_state)
    return None if before == TASK and last() == EVACUATE else before


def surplus(node: str | None, allocated: abc.Set[str]) -> frozenset[str]:
    """Return the allocated nodes to remove; none while it has no node."""
    return frozenset(allocated - {node}) if node else frozenset()


def left_by(vm_state: str, task_state: str | None,
            actions: abc.Sequence[EvacuationAction],
            faults: abc.Iterable[datetime.datetime],
            machine: abc.Callable[[], str | None]) -> tuple[str, str | None]:
    """Return vm_state and task_state without the effects of evacuations."""
    # ``machine`` returns the vm_state that fits the machine, or None. A mark
    # stays, see interrupted(). ERROR goes only if an evacuation has caused it,
    # and nothing has failed since the last other action.
    if task_state == TASK and asked_last(actions) == EVACUATE:
        task_state = None
    if (vm_state == 'error'
            and (task_state is None or takeover.is_mark(task_state))
            and _failed_by(actions, list(faults))):
        vm_state = machine() or vm_state
    return vm_state, task_state


def _failed_by(actions: abc.Sequence[EvacuationAction],
               faults: abc.Sequence[datetime.datetime]) -> bool:
    last_other = next((index for index, action in enumerate(actions)
                       if action.name != EVACUATE), None)
    if not last_other:
        # There is a later action, or nova has deleted the earlier ones.
        return False
    previous = actions[last_other]
    if previous.failed or previous.name == _SET_STATE:
        return False
    # One process writes the event and the fault: their clock is the same.
    schedulings = [event for action in actions[:last_other]
                   for event in action.events()
                   if event.name == SCHEDULED]
    other_faults = [
        moment for moment in faults
        if not any(event.began <= moment <= (event.ended or moment)
                   for event in schedulings)]
    return (len(other_faults) < len(faults)
            and all(moment < previous.began for moment in other_faults))


def refuser(owner: HostKey | None, node: str, view: peers.View,
            preferences: ring.Preferences | None) -> HostKey | None:
    """Return the host that refuses an evacuation that nobody has refused."""
    if view.live(owner):
        return owner
    return preferences.host_for(node) if preferences else None
