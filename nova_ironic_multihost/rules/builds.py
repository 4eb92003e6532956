# SPDX-License-Identifier: Apache-2.0


"""Which operations on an instance this host carries out.

The guard asks (:mod:`.engine.builds.guard`). It reads from nova's database
where the instance is at the moment of the operation.
"""

from collections.abc import Callable
import enum

from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


#: What a build does to its machine (methods of nova's virt drivers), but for
#: what frees the machine when the build has failed.
DEPLOYING = frozenset({
    'plug_vifs', 'prepare_for_spawn',
    'prepare_networks_before_block_device_mapping', 'spawn'})


class BuildStage(enum.Enum):
    """How far this host is with a build of the instance.

    :cvar NONE: it does not build, or has not begun.
    :cvar BEGUN: nova has removed the task state, and claims the node next.
    :cvar HELD: the node is claimed; the instance has this host.
    :cvar RETURNED: the claim was taken back, as the build has failed.
    :cvar SCHEDULED: the build was written to be scheduled again.
    """

    NONE = 'none'
    BEGUN = 'begun'
    HELD = 'held'
    RETURNED = 'returned'
    SCHEDULED = 'scheduled'


def elsewhere(state: InstanceState | None, host: HostKey,
              claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether an instance is on another compute service.

    An instance without a host is on none. But if this host has claimed it,
    another host has taken it over and undone the build to begin it again
    (:mod:`.backup_copies`).

    :param state: the instance as nova has it now, or None.
    :param host: this host.
    :param claim: stage of this host's build.
    """
    if state is None:
        return False
    if state.host_key is None:
        return claim is BuildStage.HELD
    return state.host_key != host


def contested(state: InstanceState | None, host: HostKey) -> bool:
    """Whether another compute service is taking over an instance of this host.

    That is decided soon. Until then an error may be caused by the takeover
    mark.
    """
    return (state is not None and state.host_key == host
            and takeover.is_anothers(state.task_state, host))


def begun_elsewhere(state: InstanceState | None, host: HostKey,
                    claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether another host works on a build that this host works on, too.

    Signs of that: the instance has another host, or a takeover mark (no build
    begins with one, :func:`outdated`); the task state is ``scheduling``
    although this host has begun, which nova itself writes only at the end
    (ComputeManager._do_build_and_run_instance); or, before the claim, a task
    state that only a running build leaves.
    """
    return state is not None and not state.deleted and (
        elsewhere(state, host, claim) or takeover.is_mark(state.task_state)
        or claim in (BuildStage.NONE, BuildStage.BEGUN) and left_over(state)
        or claim in (BuildStage.BEGUN, BuildStage.HELD, BuildStage.RETURNED)
        and state.task_state == 'scheduling')


def left_over(state: InstanceState | None) -> bool:
    """Whether a failed build was left before it was given up.

    nova removes the host first, cleans up, and then writes ``scheduling`` or
    ERROR (ComputeManager._do_build_and_run_instance). Between two attempts
    there is no other task state, and no attempt begins with one.
    """
    return (state is not None and not state.deleted
            and state.host_key is None and state.vm_state == 'building'
            and state.task_state in takeover.BUILDING_TASKS)


def given_up(state: InstanceState | None) -> bool:
    """Whether a build has failed for good, so that its node is to be freed."""
    return state is None or state.deleted or state.vm_state == 'error'


def may_change_machine(state: InstanceState | None,
                       owner: HostKey | None, host: HostKey,
                       claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether this host may change the machine of an instance.

    When the instance is deleted, the owner of the node decides.

    :param owner: owner of the node, or None; needed if the instance is deleted
        or nova does not have it.
    """
    if state is None or state.deleted:
        return owner in (None, host)
    return not elsewhere(state, host, claim)


def outdated(state: InstanceState | None, node: str | None, host: HostKey,
             allocated: Callable[[], bool]) -> bool:
    """Whether a requested build is done already, or is another host's.

    RabbitMQ can deliver a message twice. nova carries out a build whatever has
    become of the instance (ComputeManager._do_build_and_run_instance: any
    without a task state), finds the node in use and takes the running machine
    apart. A build that is still wanted has its node allocated in placement; it
    loses that when it fails or goes elsewhere.

    nova itself copes with an instance that is deleted, and with a node whose
    record is another host's: it schedules the build again.

    :param node: the node of the build; None if nova does not say.
    :param allocated: returns whether placement has the node allocated to the
        instance; called only if nothing else decides.
    """
    if state is None or state.deleted:
        return False
    if elsewhere(state, host):
        return True
    if state.host_key is None and state.vm_state not in (
            None, 'building', 'error'):
        # It was built; who has taken its host off has done so too late.
        return True
    if state.host_key == host and (
            node in (None, state.node)
            or state.vm_state not in ('building', 'error')):
        return True
    return node is not None and not allocated()
