# SPDX-License-Identifier: Apache-2.0

"""Takeover of instances: which hosts may do it, and what each instance needs.

nova follows an instance to a new ``host``: the tracker moves the record of its
node at the next audit, and operations go there. The new host does for it what
nova does at its start (ComputeManager._init_instance).

During a takeover the task state is a *mark*: the new host and the task state
before. ``taking-over`` is written only if the task state is as it was at the
decision. ``taken-over`` is written with the new host, only over the first
mark, and only if there is a task to finish. So one of two competing hosts
fails. Later writes require the mark as well. The first mark has the number of
its attempt: a write of an earlier attempt may come late, and must not allow
that of a later one. A mark has all that is needed to finish, and is found
after any crash (:func:`sort_marked`).
"""

from collections import abc
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

#: Prefixes of a mark: before and after the host is the new one.
_TAKING, _TAKEN = 'taking-over', 'taken-over'

#: Attempts at takeovers until their numbers begin again.
ATTEMPTS = 16


@dataclasses.dataclass(frozen=True)
class Policy:
    """Which instances may be taken over; ``after`` seconds for ``down``."""

    when: str = NEVER
    after: float = 0


def eligible(policy: Policy, view: peers.View,
             dead_for: abc.Mapping[HostKey, float],
             homes: abc.Iterable[HostKey] = ()) -> frozenset[HostKey]:
    """Return the hosts, of any partition, with instances to be taken over."""
    # ``down`` requires more than half of the peers up, with this host; for a
    # host that is no peer more than half of all compute services. Otherwise
    # this host may be the one that is cut off. A host of an instance
    # (``homes``) without a service in nova counts as fenced.
    if policy.when == NEVER or not view.member(view.host):
        return frozenset()
    others = {host: service for host, service in view.services.items()
              if host != view.host}
    fenced = {host for host, service in others.items()
              if service.forced_down}
    fenced.update(host for host in homes if host not in view.services)
    if policy.when == FORCED_DOWN or not liveness.may_trust_view(view):
        return frozenset(fenced)
    sees_most_of_all = liveness.may_trust_view(dataclasses.replace(
        view, peers=None, other_partition_hosts=frozenset()))
    return frozenset(fenced | {
        host for host, service in others.items()
        if dead_for.get(host, -1) >= policy.after and not service.up
        and (sees_most_of_all or view.peer(host))})


def taking(task_state: str | None, host: HostKey, attempt: int = 0) -> str:
    """Return the first mark: the instance is still on the old host."""
    return (f'{_TAKING}:{_host_digest(host)}.{attempt % ATTEMPTS}:'
            f'{before_mark(task_state) or ""}')


def taken(task_state: str | None, host: HostKey) -> str:
    """Return the second mark: the instance is on the new host."""
    return f'{_TAKEN}:{_host_digest(host)}:{before_mark(task_state) or ""}'


def resting_or_taken(vm_state: str | None, task_state: str | None,
                     host: HostKey) -> str | None:
    """Return the task state to write with the new host; None for no mark."""
    return None if rests(vm_state, task_state) else taken(task_state, host)


def marks(host: HostKey, task_states: abc.Iterable[str]) -> list[str]:
    """Return all marks of a host for these task states, and for none."""
    return [mark for state in [None, *task_states] for mark in (
        taken(state, host),
        *(taking(state, host, attempt) for attempt in range(ATTEMPTS)))]


def _host_digest(host: HostKey) -> str:
    """Return the text for a host in its marks, as task states are short."""
    return hashlib.sha256(host.encode()).hexdigest()[:12]


def is_mark(task_state: str | None) -> bool:
    """Return whether a task state is a mark of any host."""
    return task_state is not None and task_state.startswith(
        (f'{_TAKING}:', f'{_TAKEN}:'))


def is_anothers(task_state: str | None, host: HostKey) -> bool:
    """Return whether a task state is a mark of another host."""
    return (task_state is not None and is_mark(task_state)
            and task_state.split(':')[1].split('.')[0] != _host_digest(host))


def before_mark(task_state: str | None) -> str | None:
    """Return the task state from before the takeover, of a mark or not."""
    if task_state is None or not is_mark(task_state):
        return task_state
    return task_state.split(':', 2)[2] or None


@dataclasses.dataclass(frozen=True)
class Marked:
    """What to do about instances that carry marks."""

    #: uuids of instances of this host with an operation to finish.
    to_finish: frozenset[str]
    #: (uuid, mark) of others' marks on instances of this host.
    foreign: frozenset[tuple[str, str]]


def sort_marked(host: HostKey, found: abc.Mapping[str, InstanceState]
               ) -> Marked:
    """Sort the instances that carry marks; leave out those of other hosts."""
    here = {uuid: state.task_state for uuid, state in found.items()
            if state.host_key == host and is_mark(state.task_state)}
    foreign = {(uuid, mark) for uuid, mark in here.items()
               if mark is not None and is_anothers(mark, host)}
    return Marked(frozenset(here.keys() - dict(foreign)), frozenset(foreign))


class Step(enum.Enum):
    """What to do next for an instance that was taken over."""

    #: What nova does for it at the start of a compute service.
    INIT = 'init'
    DELETE = 'delete'
    #: Undo a soft delete, as its user wants.
    RESTORE = 'restore'
    #: Wait for Ironic, which still deploys, or for its backup.
    AWAIT = 'await'
    DEPLOYED = 'deployed'
    #: Set it to ERROR, with a fault that says why.
    FAIL = 'fail'
    #: Undo the build and begin it again (:mod:`.forwarding`).
    REPEAT = 'repeat'


#: nova's own start sets a deleted build to ERROR and leaves soft-delete alone.
_RESTING_STATES = frozenset({
    'active', 'stopped', 'rescued', 'paused', 'suspended', 'shelved'})
DELETING = frozenset({'deleting', 'soft-deleting'})

#: Task states of a build that has claimed its node.
BUILDING_TASKS = frozenset({'networking', 'block_device_mapping', 'spawning'})

_REBUILDING_TASKS = frozenset({
    'rebuilding', 'rebuild_block_device_mapping', 'rebuild_spawning'})

#: Task states that follow each other in one operation.
_OPERATIONS = tuple(map(frozenset, (
    BUILDING_TASKS | {'scheduling'},
    _REBUILDING_TASKS,
    # nova makes a hard reboot of a soft one if the machine is off.
    {'rebooting', 'reboot_pending', 'reboot_started', 'rebooting_hard',
     'reboot_pending_hard', 'reboot_started_hard'},
    {'image_snapshot_pending', 'image_snapshot', 'image_pending_upload',
     'image_uploading'})))

#: Task states of builds and rebuilds, which nova's own start gives up.
_DEPLOYING_TASKS = _REBUILDING_TASKS | BUILDING_TASKS | {'scheduling'}

#: Provision states of a node on which Ironic deploys.
DEPLOYING = frozenset({
    'deploying', 'wait call-back', 'deploy hold', 'deploy complete'})

#: Provision states of a node that enters or leaves rescue mode.
_RESCUING = frozenset({
    'rescuing', 'rescue wait', 'unrescuing'})

#: Task states that nova's own start ends (ComputeManager._init_instance).
_ENDED_BY_NOVA = DELETING | frozenset({
    'powering-off', 'powering-on', 'rebooting', 'reboot_pending',
    'reboot_started', 'rebooting_hard', 'reboot_pending_hard',
    'reboot_started_hard'})

#: All task states that this package can finish.
TASKS = _ENDED_BY_NOVA.union(
    *_OPERATIONS, {'restoring', 'rescuing', 'unrescuing'})

#: Task states of a rebuild before nova tells Ironic.
_BEFORE_REBUILD = frozenset({'rebuilding', 'rebuild_block_device_mapping'})

#: Task state in which nova makes a config drive, for seconds, and then tells
#: Ironic (IronicDriver.rebuild).
_REBUILD_SPAWNING = 'rebuild_spawning'


def step(vm_state: str | None, task_state: str | None,
         provision_state: str | None,
         redeployed: abc.Callable[[], bool]) -> Step:
    """Return the next step for an instance with an interrupted operation."""
    # ``task_state`` is from before the takeover. ``redeployed`` asks whether
    # Ironic has deployed since the rebuild began.
    if task_state in DELETING or half_deleted(vm_state):
        # nova's own start deletes the record of the instance first, and leaves
        # its allocation if placement does not answer.
        return Step.DELETE
    if task_state == 'restoring' and vm_state == 'soft-delete':
        # nova soon deletes an instance in soft-delete that nobody restores.
        return Step.RESTORE
    if provision_state in _RESCUING:
        return Step.AWAIT
    building = vm_state == 'building'
    rebuilding = (task_state in _BEFORE_REBUILD
                  or task_state == _REBUILD_SPAWNING)
    if (vm_state == 'soft-delete'
            # A server in ERROR may be rebuilt.
            or vm_state == 'error' and not rebuilding
            or not (building or task_state in _DEPLOYING_TASKS)):
        return Step.INIT
    if provision_state in DEPLOYING:
        return Step.AWAIT
    if provision_state != 'active' or not building and (
            task_state in _BEFORE_REBUILD
            or task_state == _REBUILD_SPAWNING and not redeployed()):
        # Ironic was never told to rebuild: the old system runs.
        return Step.FAIL
    return Step.DEPLOYED


def ended_by_nova(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether nova's start ends this operation."""
    # It ignores servers in ERROR, which users may stop, start and reboot.
    return (task_state in _ENDED_BY_NOVA
            and vm_state not in ('error', 'soft-delete')
            # compute.vm_states.ALLOW_SOFT_REBOOT
            and (task_state != 'reboot_pending' or vm_state == 'active'))


def mentions_mark(text: str) -> bool:
    """Return whether an error contains a mark: nova quotes the task state."""
    return f'{_TAKING}:' in text or f'{_TAKEN}:' in text


def same_operation(before: str | None, task_state: str | None) -> bool:
    """Return whether both task states belong to one operation."""
    return task_state == before or any(
        {before, task_state} <= operation for operation in _OPERATIONS)


def at_rest(before: str | None, vm_state: str | None,
            task_state: str | None) -> bool:
    """Return whether the operation with task state ``before`` is finished."""
    if vm_state == 'deleted' or is_mark(task_state):
        return False
    if task_state is not None:
        return not same_operation(before, task_state)
    if vm_state == 'soft-delete':
        # The restore was not done: nova would soon delete the instance.
        return before != 'restoring'
    return vm_state != 'building' and before not in DELETING


def lost_at_start(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether nova's start would set the instance to ERROR."""
    # It gives up builds and rebuilds (ComputeManager._init_instance).
    return vm_state == 'building' or (
        vm_state not in ('deleted', 'soft-delete')
        and task_state in _REBUILDING_TASKS
        and not may_wait(vm_state, task_state))


def rests_at_start(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether nova's start has nothing to do for an instance."""
    # It only reads the power state (ComputeManager._init_instance).
    return task_state is None and vm_state in _RESTING_STATES


def rests(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether an instance that is taken over has no task to finish."""
    return rests_at_start(vm_state, before_mark(task_state))


def may_wait(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether an operation that nova's start gives up may be queued."""
    # A build in the queue of a service has no host yet.
    return vm_state != 'building' and task_state == 'rebuilding'


def may_be_done_twice(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether the operation may safely run again from a queue."""
    return task_state in DELETING or half_deleted(vm_state)


def half_deleted(vm_state: str | None) -> bool:
    """Return whether the instance is 'deleted' while its row is not."""
    return vm_state == 'deleted'


def has_begun(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether a build began on its host and carries no mark."""
    # So it is in no queue. After a takeover its former host may have written
    # over the mark (ComputeManager._build_resources).
    return vm_state == 'building' and not is_mark(task_state)


def needs_no_machine(vm_state: str | None, task_state: str | None) -> bool:
    """Return whether the operation can be finished without the machine."""
    return (vm_state in ('building', 'deleted')
            or before_mark(task_state) in DELETING)


def resting(vm_state: str, provision_state: str | None) -> str:
    """Return the vm_state of an instance without an operation."""
    if provision_state == 'rescue':
        return 'rescued'
    if vm_state == 'rescued' and provision_state == 'active':
        return 'active'
    return vm_state
