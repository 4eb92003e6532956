# SPDX-License-Identifier: Apache-2.0

"""Evacuations: nova builds a server of a dead compute service anew elsewhere.

Pure. Over Ironic that cannot be done, as a server is its machine, and none is.
nova finds out late. When its API accepts an evacuation it writes a task state
over whatever there was, a mark too (nova.compute.api:API.evacuate); its
conductor allocates another machine to the server and tells its compute service
to build the server there, or sets the server to ERROR if none is free. The
rules here say what has to be put back, so that the server is as if nobody had
asked.
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
    """Something that a service of nova did for an action.

    :param name: as nova calls it, such as ``rebuild_server``.
    :param began: when that was, by the clock of the service that did it.
    :param ended: the same for its end; None if it is not noted.
    """

    name: str
    began: datetime.datetime
    ended: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class EvacuationAction:
    """Something that an instance was asked for.

    :param name: as nova calls it, such as ``evacuate``.
    :param began: when it was asked for, by the clock of nova's API.
    :param failed: nova has noted that it failed.
    :param events: returns what was done for it; not always called.
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

    :param record: of the node that it is on.
    :param unrefused: uuids of the evacuations that nobody has refused. Without
        any it was refused shortly before: nova's conductor may come to it
        after that, and do what it does all the same.
    """

    record: Record
    unrefused: frozenset[str]


def asked_last(actions: Sequence[EvacuationAction]) -> str | None:
    """Return which of :data:`ACTIONS` an instance is at, None if at neither.

    nova's API accepts an evacuation of a server that is to be rebuilt: that
    is still to be, for all who evacuate it.

    :param actions: what it was asked for, the latest first.
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
    """Return what an instance was in the middle of when it was taken over.

    As :func:`.takeover.marked`, but an evacuation is nothing: nobody is
    rebuilding a server that was to be evacuated.

    :param task_state: its task state, a mark or not.
    :param last: returns what :func:`asked_last` does; not always called.
    """
    before = takeover.marked(task_state)
    return None if before == TASK and last() == EVACUATE else before


def surplus(node: str | None, allocated: Set[str]) -> frozenset[str]:
    """Return which nodes an instance must not have allocated.

    :param node: the node that it is on. One that is on none is on its way to
        what it has allocated.
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
    """Return both states of an instance without what evacuations did to them.

    The ERROR is taken off only if an evacuation has brought it, and it was
    none before: nothing had gone wrong since the server was asked for
    something else last.

    :param vm_state: what it has.
    :param task_state: what it has. A mark stays: whoever has written it knows
        what to do, see :func:`interrupted`; and whoever takes it off does not
        write the other state.
    :param actions: what it was asked for, the latest first.
    :param faults: when nova has noted faults of it.
    :param machine: returns the vm_state that its machine speaks for, None if
        for none; not always called.
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
    """Say who refuses an evacuation that nobody has refused.

    It may have got lost, or wait in the queue of a compute service that is
    dead itself.

    :param owner: owner of the node that the instance is on.
    :param preferences: who is preferred for which node, None if not known.
    :returns: None if nobody can be chosen.
    """
    if view.live(owner):
        return owner
    return preferences.host_for(node) if preferences else None
