# SPDX-License-Identifier: Apache-2.0

"""Evacuations: nova rebuilds a server of a dead compute service elsewhere.

Over Ironic a server is its machine, so no evacuation is carried out. nova
finds that out late. Its API writes a task state over any other, a mark too
(nova.compute.api:API.evacuate); its conductor then allocates another machine
and has the server built there, or sets it to ERROR if none is free. These
rules say what has to be put back, as if no one had asked.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import datetime

from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

#: What an operator reads of one that is refused.
REFUSED = (
    'A server over Ironic cannot be evacuated, it stays on its machine. For '
    'another compute service to take it over, force its own down: openstack '
    '--os-compute-api-version 2.11 compute service set --down HOST '
    'nova-compute')

#: What an operator asks for to set the vm_state of a server.
_SET_STATE = 'resetState'

#: The actions that begin with one and the same task state, and that state.
EVACUATE, REBUILD = 'evacuate', 'rebuild'
ACTIONS = frozenset({EVACUATE, REBUILD})
TASK = 'rebuilding'

#: The event in which nova's conductor looks for another machine, and the one
#: in which a compute service rebuilds.
SCHEDULED, REBUILT = 'rebuild_server', 'compute_rebuild_instance'


@dataclasses.dataclass(frozen=True)
class EvacuationEvent:
    """A step of a service of nova in an action.

    :param name: nova's name, such as ``rebuild_server``.
    :param began: by the clock of the service that did it.
    :param ended: the same for its end; None if it is not noted.
    """

    name: str
    began: datetime.datetime
    ended: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class EvacuationAction:
    """A request for an instance.

    :param name: nova's name, such as ``evacuate``.
    :param began: by the clock of nova's API.
    :param failed: nova has noted that it failed.
    :param events: returns its steps; not always called.
    """

    name: str
    began: datetime.datetime
    failed: bool = False
    events: Callable[[], Sequence[EvacuationEvent]] = dataclasses.field(
        default=tuple, compare=False)

    def rebuilt(self) -> bool:
        """Return whether a compute service has ended a rebuild, however."""
        return any(event.name == REBUILT and event.ended is not None
                   for event in self.events())


@dataclasses.dataclass(frozen=True)
class Evacuated:
    """An instance that was to be evacuated.

    :param record: of its node.
    :param unrefused: uuids of the evacuations that were not refused yet.
        Without any it was refused shortly before: nova's conductor may still
        act on it.
    """

    record: Record
    unrefused: frozenset[str]


def asked_last(actions: Sequence[EvacuationAction]) -> str | None:
    """Return which of :data:`ACTIONS` an instance is at, or None.

    nova's API accepts an evacuation of a server that is to be rebuilt; the
    rebuild is still wanted then.

    :param actions: the requests, the latest first.
    """
    asked = iter(actions)
    last = next((one.name for one in asked if one.name in ACTIONS), None)
    if last != EVACUATE:
        return last
    before = next((one for one in asked if one.name != EVACUATE), None)
    return (REBUILD if before is not None and before.name == REBUILD
            and not before.rebuilt() else EVACUATE)


def interrupted(task_state: str | None,
                last: Callable[[], str | None]) -> str | None:
    """Return the task state that an instance had when it was taken over.

    As :func:`.takeover.marked`, but an evacuation counts as none.

    :param last: returns the result of :func:`asked_last`; not always called.
    """
    before = takeover.marked(task_state)
    return None if before == TASK and last() == EVACUATE else before


def surplus(node: str | None, allocated: Set[str]) -> frozenset[str]:
    """Return the nodes that an instance must not have allocated.

    :param node: the node of the instance. Without one it is on its way to its
        allocation.
    :param allocated: the nodes that it has allocated.
    """
    return frozenset(allocated - {node}) if node else frozenset()


def left_by(
    vm_state: str,
    task_state: str | None,
    actions: Sequence[EvacuationAction],
    faults: Iterable[datetime.datetime],
    machine: Callable[[], str | None],
) -> tuple[str, str | None]:
    """Return both states of an instance without the effect of evacuations.

    ERROR is removed only if an evacuation has caused it: nothing had gone
    wrong since the last other request.

    :param task_state: a mark stays: its host knows what to do, see
        :func:`interrupted`.
    :param actions: the requests, the latest first.
    :param faults: times of the faults that nova has noted.
    :param machine: returns the vm_state that fits its machine, or None; not
        always called.
    """
    if task_state == TASK and asked_last(actions) == EVACUATE:
        task_state = None
    if (vm_state == 'error'
            and (task_state is None or takeover.is_mark(task_state))
            and _failed_by(actions, list(faults))):
        vm_state = machine() or vm_state
    return vm_state, task_state


def _failed_by(actions: Sequence[EvacuationAction],
               faults: Sequence[datetime.datetime]) -> bool:
    """Whether nothing but evacuations has brought an instance into ERROR."""
    before = next((place for place, one in enumerate(actions)
                   if one.name != EVACUATE), None)
    if not before:
        # It was asked for something since, or nova has forgotten the rest.
        return False
    known = actions[before]
    if known.failed or known.name == _SET_STATE:
        return False
    # One process writes the event and the fault: no two clocks are compared.
    searches = [event for one in actions[:before] for event in one.events()
                if event.name == SCHEDULED]
    others = [moment for moment in faults
              if not any(event.began <= moment <= (event.ended or moment)
                         for event in searches)]
    return (len(others) < len(faults)
            and all(moment < known.began for moment in others))


def refuser(owner: HostKey | None, node: str, view: peers.View,
            preferences: ring.Preferences | None) -> HostKey | None:
    """Return the host that refuses a lost evacuation, None if there is none.

    It may have got lost, or wait in the queue of a dead compute service.

    :param owner: owner of the instance's node.
    :param preferences: None if not known.
    """
    if view.live(owner):
        return owner
    return preferences.host_for(node) if preferences else None
