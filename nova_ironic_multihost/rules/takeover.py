# SPDX-License-Identifier: Apache-2.0

"""Take-over of the instances of a dead compute service.

nova follows an instance when its ``host`` changes: the resource tracker moves
the record of the node at the next audit, and operations go to the new host.
The new host also does what a restarted compute service does for an interrupted
instance (nova: ComputeManager._init_instance).

Meanwhile the instance has a task state of its own, the *mark*: it names the
new host and the task state before. The first mark, ``taking-over``, is written
only if the task state is still the one of the decision. The second,
``taken-over``, is written with the new host, and only if the first mark is
still there. An instance without an interrupted operation gets no second mark
and can be used at once. So of two hosts that take over one instance, one
fails, and a later write only has to expect the mark. A mark tells all that is
needed to finish, and marks can be listed (:func:`sort_marked`), whichever
call, audit or process ended in between.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum
import hashlib

from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey

#: The values of ``[ironic_multihost]instance_takeover``.
NEVER = 'never'
FORCED_DOWN = 'forced_down'
DOWN = 'down'
POLICIES = (NEVER, FORCED_DOWN, DOWN)

#: How a mark begins while the host is the old one, and with the new one.
_TAKING, _TAKEN = 'taking-over', 'taken-over'


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which instances of dead compute services may be taken over.

    :param when: one of :data:`POLICIES`.
    :param after: seconds for which a host must have been seen down before
        ``down`` applies to it.
    """

    when: str = NEVER
    after: float = 0


def eligible(policy: Policy, view: peers.View,
             down_for: Mapping[HostKey, float],
             homes: Iterable[HostKey] = ()) -> frozenset[HostKey]:
    """Return the hosts with instances that may be taken over.

    Hosts of any partition: a node or a host may have changed its own, and
    :mod:`.ownership` decides which nodes this host takes.

    A host that was only seen down may be alive and cut off; a host that sees
    most others down is likely cut off itself. So ``down`` requires that more
    than half of the peers are up, this host included; for a host that is no
    peer also more than half of all compute services.

    :param down_for: host -> seconds for which it has been seen down without a
        break.
    :param homes: hosts of instances; a host without a service in nova counts
        as fenced.
    """
    if policy.when == NEVER or not view.member(view.host):
        return frozenset()
    others = {host: service for host, service in view.services.items()
              if host != view.host}
    fenced = {host for host, service in others.items()
              if service.forced_down}
    fenced.update(host for host in homes if host not in view.services)
    if policy.when == FORCED_DOWN or not liveness.sees_most_up(view):
        return frozenset(fenced)
    most_of_all = liveness.sees_most_up(dataclasses.replace(
        view, peers=None, other_partition_hosts=frozenset()))
    return frozenset(fenced | {
        host for host, service in others.items()
        if down_for.get(host, -1) >= policy.after and not service.up
        and (most_of_all or view.peer(host))})


def taking(task_state: str | None, host: HostKey) -> str:
    """Return the first mark; the host is still the old one.

    :param task_state: of the instance, possibly a mark.
    :param host: the host that takes it over.
    """
    return f'{_TAKING}:{_token(host)}:{marked(task_state) or ""}'


def taken(task_state: str | None, host: HostKey) -> str:
    """Return the second mark: the instance is the host's.

    :param task_state: of the instance, possibly a mark.
    :param host: the host that has taken it over.
    """
    return f'{_TAKEN}:{_token(host)}:{marked(task_state) or ""}'


def resting_or_taken(vm_state: str | None, task_state: str | None,
                     host: HostKey) -> str | None:
    """Return the task state that is written together with the new host.

    :param task_state: of the instance, possibly a mark.
    :returns: the second mark; None if nothing has to be done for the instance.
    """
    return None if rests(vm_state, task_state) else taken(task_state, host)


def marks(host: HostKey, task_states: Iterable[str]) -> list[str]:
    """Return all marks of a host, for the given earlier task states."""
    before = [None, *task_states]
    return [mark(state, host) for state in before for mark in (taking, taken)]


def _token(host: HostKey) -> str:
    """Return the text that names a host in its marks.

    A task state has 255 characters, as many as the name of a host.
    """
    return hashlib.sha256(host.encode()).hexdigest()[:12]


def is_mark(task_state: str | None) -> bool:
    """Whether a task state is a mark of any host."""
    return task_state is not None and task_state.startswith(
        (f'{_TAKING}:', f'{_TAKEN}:'))


def is_anothers(task_state: str | None, host: HostKey) -> bool:
    """Whether a task state is a mark of another host."""
    return (task_state is not None and is_mark(task_state)
            and task_state.split(':')[1] != _token(host))


def marked(task_state: str | None) -> str | None:
    """Return the task state that an instance had when it was taken over.

    A task state that is no mark is returned as it is.
    """
    if task_state is None or not is_mark(task_state):
        return task_state
    return task_state.split(':', 2)[2] or None


@dataclasses.dataclass(frozen=True)
class Marked:
    """The work on instances with marks.

    :param rest: uuids of instances of this host to be finished.
    :param astray: (uuid, mark) of marks of this host on instances of others:
        their take-over is between its two writes, or ended there.
    :param foreign: (uuid, mark) of marks of other hosts on instances of this
        host.
    """

    rest: frozenset[str]
    astray: frozenset[tuple[str, str]]
    foreign: frozenset[tuple[str, str]]


def sort_marked(host: HostKey, found: Mapping[str, InstanceState]) -> Marked:
    """Sort instances with marks, and leave out other hosts' business.

    :param host: this host.
    :param found: uuid -> state.
    """
    rest = set()
    astray = set()
    foreign = set()
    for uuid, state in found.items():
        mark = state.task_state
        if mark is None or not is_mark(mark):
            continue
        its = state.host_key == host
        own = not is_anothers(mark, host)
        if its and own:
            rest.add(uuid)
        elif own:
            astray.add((uuid, mark))
        elif its:
            foreign.add((uuid, mark))
    return Marked(frozenset(rest), frozenset(astray), frozenset(foreign))


class Step(enum.Enum):
    """The next step for an instance that was taken over.

    :cvar INIT: nova's own start of a compute service for it.
    :cvar DELETE: delete it.
    :cvar RESTORE: restore it: its user takes the delete back.
    :cvar AWAIT: wait for Ironic, which still deploys it, or for its copy.
    :cvar DEPLOYED: note that Ironic has deployed it.
    :cvar FAIL: set it to ERROR, with a fault that says why.
    :cvar REPEAT: undo the build and begin it again (:mod:`.backup_copies`).
    """

    INIT = 'init'
    DELETE = 'delete'
    RESTORE = 'restore'
    AWAIT = 'await'
    DEPLOYED = 'deployed'
    FAIL = 'fail'
    REPEAT = 'repeat'


#: Task states of a delete. nova's own start sets a build that is deleted to
#: ERROR, and does nothing for a server that is to be deleted some day.
_RESTING_STATES = frozenset({
    'active', 'stopped', 'rescued', 'paused', 'suspended', 'shelved'})
_DELETING_TASKS = frozenset({'deleting', 'soft-deleting'})

#: Task states of a build that has claimed its node.
BUILDING_TASKS = frozenset({'networking', 'block_device_mapping', 'spawning'})

_REBUILDING_TASKS = frozenset({
    'rebuilding', 'rebuild_block_device_mapping', 'rebuild_spawning'})

#: Task states that follow each other in one operation.
_OPERATIONS = tuple(map(frozenset, (
    BUILDING_TASKS | {'scheduling'},
    _REBUILDING_TASKS,
    # nova makes a hard reboot of a soft one whose machine is off.
    {'rebooting', 'reboot_pending', 'reboot_started', 'rebooting_hard',
     'reboot_pending_hard', 'reboot_started_hard'},
    {'image_snapshot_pending', 'image_snapshot', 'image_pending_upload',
     'image_uploading'})))

#: Task states of a build or a rebuild, in which nova's own start gives up.
_DEPLOYING_TASKS = _REBUILDING_TASKS | BUILDING_TASKS | {'scheduling'}

#: Provision states of a node on which Ironic deploys.
DEPLOYING = frozenset({
    'deploying', 'wait call-back', 'deploy hold', 'deploy complete'})

#: Provision states of a node that goes into rescue mode, or out of it.
_RESCUING = frozenset({
    'rescuing', 'rescue wait', 'unrescuing'})

#: Task states that nova's own start ends: what is still in one then has
#: failed (ComputeManager._init_instance).
_ENDED_BY_NOVA = _DELETING_TASKS | frozenset({
    'powering-off', 'powering-on', 'rebooting', 'reboot_pending',
    'reboot_started', 'rebooting_hard', 'reboot_pending_hard',
    'reboot_started_hard'})

#: All task states of which this package knows how they end.
TASKS = _ENDED_BY_NOVA.union(
    *_OPERATIONS, {'restoring', 'rescuing', 'unrescuing'})

#: Task states of a rebuild of which Ironic has not been told yet.
_BEFORE_REBUILD = frozenset({'rebuilding', 'rebuild_block_device_mapping'})

#: The one in which it is told: nova writes it first, makes a config drive,
#: which takes seconds, and asks Ironic then (IronicDriver.rebuild).
_TELLING = 'rebuild_spawning'


def step(vm_state: str | None, task_state: str | None,
         provision_state: str | None,
         redeployed: Callable[[], bool]) -> Step:
    """Return the next step for an instance with an interrupted operation.

    :param task_state: the one before, see :func:`marked`.
    :param provision_state: of its node in Ironic.
    :param redeployed: returns whether Ironic has deployed since the rebuild
        was asked for; not always called.
    """
    if task_state in _DELETING_TASKS or half_deleted(vm_state):
        # nova's own start deletes the record of one that is half deleted
        # first; if placement does not answer then its allocation is left.
        return Step.DELETE
    if task_state == 'restoring' and vm_state == 'soft-delete':
        # nova deletes at once what is neither restored nor being so.
        return Step.RESTORE
    if provision_state in _RESCUING:
        return Step.AWAIT
    building = vm_state == 'building'
    rebuilding = task_state in _BEFORE_REBUILD or task_state == _TELLING
    if (vm_state == 'soft-delete'
            # A server in ERROR may be rebuilt.
            or vm_state == 'error' and not rebuilding
            or not (building or task_state in _DEPLOYING_TASKS)):
        return Step.INIT
    if provision_state in DEPLOYING:
        return Step.AWAIT
    if provision_state != 'active' or not building and (
            task_state in _BEFORE_REBUILD
            or task_state == _TELLING and not redeployed()):
        # Ironic was never told to rebuild: what runs is the old system.
        return Step.FAIL
    return Step.DEPLOYED


def awaited_unmarked(vm_state: str | None) -> bool:
    """Whether users must see the task state while Ironic deploys.

    A rebuilt server is REBUILD by its task state alone, and ACTIVE with a
    mark; a build is BUILD either way
    (nova.api.openstack.common:status_from_state).
    """
    return vm_state != 'building'


def ended_by_nova(vm_state: str | None, task_state: str | None) -> bool:
    """Whether nova's start of a service ends the operation of an instance.

    It does nothing for a server in ERROR, which may be stopped, started and
    rebooted.
    """
    return (task_state in _ENDED_BY_NOVA
            and vm_state not in ('error', 'soft-delete')
            # compute.vm_states.ALLOW_SOFT_REBOOT
            and (task_state != 'reboot_pending' or vm_state == 'active'))


def mentions_mark(text: str) -> bool:
    """Whether an error quotes a mark: nova quotes the task state."""
    return f'{_TAKING}:' in text or f'{_TAKEN}:' in text


def same_operation(before: str | None, task_state: str | None) -> bool:
    """Whether an instance is still in the operation of before."""
    return task_state == before or any(
        {before, task_state} <= operation for operation in _OPERATIONS)


def at_rest(before: str | None, vm_state: str | None,
            task_state: str | None) -> bool:
    """Whether an interrupted operation is finished.

    :param before: its task state, see :func:`marked`.
    :param vm_state: of the instance now, ``deleted`` if it is gone.
    :param task_state: of the instance now; a different one is a new request.
    """
    if vm_state == 'deleted' or is_mark(task_state):
        return False
    if task_state is not None:
        return not same_operation(before, task_state)
    if vm_state == 'soft-delete':
        # nova deletes soon what was to be restored and is not.
        return before != 'restoring'
    return vm_state != 'building' and before not in _DELETING_TASKS


def lost_at_start(vm_state: str | None, task_state: str | None) -> bool:
    """Whether nova's start of a service gives up the operation.

    It sets builds and rebuilds to ERROR, also one that is to be deleted,
    whatever Ironic makes of them (ComputeManager._init_instance).
    """
    return vm_state == 'building' or (
        vm_state not in ('deleted', 'soft-delete')
        and task_state in _REBUILDING_TASKS
        and not may_wait(vm_state, task_state))


def rests_at_start(vm_state: str | None, task_state: str | None) -> bool:
    """Whether nova's start of a service has nothing to do for an instance.

    It asks Ironic twice for the power of the machine, and nothing follows from
    the answers (ComputeManager._init_instance).
    """
    return task_state is None and vm_state in _RESTING_STATES


def rests(vm_state: str | None, task_state: str | None) -> bool:
    """Whether an instance that is taken over has no interrupted operation."""
    return rests_at_start(vm_state, marked(task_state))


def may_wait(vm_state: str | None, task_state: str | None) -> bool:
    """Whether a request that nova's start gives up may still be in the queue.

    A build that waits has no host yet.
    """
    return vm_state != 'building' and task_state == 'rebuilding'


def may_be_done_twice(vm_state: str | None, task_state: str | None) -> bool:
    """Whether the interrupted operation may be done twice without harm.

    It may wait in a queue and begin once more.
    """
    return task_state in _DELETING_TASKS or half_deleted(vm_state)


def half_deleted(vm_state: str | None) -> bool:
    """Whether nova has noted the delete of an instance that is still there."""
    return vm_state == 'deleted'


def has_begun(vm_state: str | None, task_state: str | None) -> bool:
    """Whether a build was begun on its host and carries no mark.

    It waits in no queue then. After a take-over its former host may have
    written once more without a condition (ComputeManager._build_resources).
    """
    return vm_state == 'building' and not is_mark(task_state)


def needs_no_machine(vm_state: str | None, task_state: str | None) -> bool:
    """Whether an instance can be finished without its machine."""
    return (vm_state in ('building', 'deleted')
            or marked(task_state) in _DELETING_TASKS)


def resting(vm_state: str, provision_state: str | None) -> str:
    """Return the vm_state of an instance without an operation in progress."""
    if provision_state == 'rescue':
        return 'rescued'
    if vm_state == 'rescued' and provision_state == 'active':
        return 'active'
    return vm_state
