# SPDX-License-Identifier: Apache-2.0


"""Which operations on an instance are this host's to carry out.

Pure. The gate asks (:mod:`nova_ironic_multihost.engine.builds.guard`), and
knows from nova's database where an instance is, at the moment of the
operation.
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
    """How far whoever asks is with a build of the instance.

    :cvar NONE: not at it, or not as far as that.
    :cvar BEGUN: nova has taken the task state off, and claims the node next.
    :cvar HELD: the node is claimed: the instance was written to this host.
    :cvar RETURNED: that was taken back, as the build has failed.
    :cvar SCHEDULED: and was written to be carried out elsewhere.
    """

    NONE = 'none'
    BEGUN = 'begun'
    HELD = 'held'
    RETURNED = 'returned'
    SCHEDULED = 'scheduled'


def elsewhere(state: InstanceState | None, host: HostKey,
              claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether an instance is on another compute service.

    One that is on none, as its build has not begun or has failed, is not. But
    one that this host has claimed is about to be: another has taken it over
    and undone what was begun, to begin it again (:mod:`.backup_copies`).

    :param state: :class:`.model.InstanceState` as nova has it now, or None if
        nova does not have it.
    :param host: this host.
    :param claim: of whoever asks.
    """
    if state is None:
        return False
    if state.host_key is None:
        return claim is BuildStage.HELD
    return state.host_key != host


def contested(state: InstanceState | None, host: HostKey) -> bool:
    """Whether another compute service is about to take an instance of this.

    That is soon decided. Until then what fails may fail because of the mark.

    :param state: as for :func:`elsewhere`.
    """
    return (state is not None and state.host_key == host
            and takeover.is_anothers(state.task_state, host))


def begun_elsewhere(state: InstanceState | None, host: HostKey,
                    claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether a build that this host is at was begun by another one, too.

    That has claimed it, and it may have been taken over since, by this very
    host: no build begins with a mark (:func:`outdated`). Or that has found its
    node on another host, and had it scheduled anew: whoever has begun a build
    finds it ``scheduling`` for no other reason, before nova itself writes
    that at the end (ComputeManager._do_build_and_run_instance). Or that was
    at it just now, and has left a task state with which no build begins.

    :param state: as for :func:`elsewhere`.
    :param host: this host.
    :param claim: as for :func:`elsewhere`.
    """
    return state is not None and not state.deleted and (
        elsewhere(state, host, claim) or takeover.is_mark(state.task_state)
        or claim in (BuildStage.NONE, BuildStage.BEGUN) and left_over(state)
        or claim in (BuildStage.BEGUN, BuildStage.HELD, BuildStage.RETURNED)
        and state.task_state == 'scheduling')


def left_over(state: InstanceState | None) -> bool:
    """Whether a build was left when it had failed and was not yet given up.

    nova takes the host off first, cleans up, and writes that the instance is
    ``scheduling`` or in ERROR then (ComputeManager.
    _do_build_and_run_instance). Between two attempts there is no other task
    state, and no attempt begins with one.

    :param state: as for :func:`elsewhere`.
    """
    return (state is not None and not state.deleted
            and state.host_key is None and state.vm_state == 'building'
            and state.task_state in takeover.BUILDING_TASKS)


def given_up(state: InstanceState | None) -> bool:
    """Whether it is written that a build has failed for good.

    Then nobody carries it out again, and its node is to be freed.

    :param state: as for :func:`elsewhere`.
    """
    return state is None or state.deleted or state.vm_state == 'error'


def may_change_machine(state: InstanceState | None,
                       owner: HostKey | None, host: HostKey,
                       claim: BuildStage = BuildStage.NONE) -> bool:
    """Whether this host may change the machine of an instance.

    Where an instance is says nothing any more when it is deleted; its machine
    is then a matter of the owner of the node.

    :param state: as for :func:`elsewhere`.
    :param owner: owner of its node, or None; needed only if the
        instance is deleted or nova does not have it.
    :param host: this host.
    :param claim: as for :func:`elsewhere`.
    """
    if state is None or state.deleted:
        return owner in (None, host)
    return not elsewhere(state, host, claim)


def outdated(state: InstanceState | None, node: str | None, host: HostKey,
             allocated: Callable[[], bool]) -> bool:
    """Whether a build that this host is asked for was another's, or is done.

    A message of RabbitMQ can arrive twice. nova carries out a build whatever
    the instance is by now (ComputeManager._do_build_and_run_instance: any
    without a task state), finds its node in use, by itself, and takes the
    running machine apart. But a build that is still to be carried out has a
    node allocated in placement, which it loses when it fails or goes
    elsewhere, and the instance gets its host and its node in the moment in
    which it is claimed.

    What nova can cope with is left to nova: an instance that is deleted, and a
    node whose record is another's, for then the build is scheduled again.

    :param state: as for :func:`elsewhere`.
    :param node: the node that the build is for; None if nova does not say.
    :param host: this host.
    :param allocated: says whether placement has the node allocated to the
        instance; asked only if nothing else decides.
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
