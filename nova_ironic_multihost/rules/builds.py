# SPDX-License-Identifier: Apache-2.0

"""Which operations on an instance this host may do."""

from collections import abc
import dataclasses
import enum

from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover


#: Methods of nova's virt drivers by which a build changes its machine.
DEPLOY_METHODS = frozenset({
    'plug_vifs', 'prepare_for_spawn',
    'prepare_networks_before_block_device_mapping', 'spawn'})

class BuildStage(enum.Enum):
    """How far this thread is with a build of the instance."""

    NONE = 'none'
    #: nova has cleared the task state and claims the node next.
    BEGUN = 'begun'
    #: The instance has this host and its node.
    HELD = 'held'
    #: The build has failed and the claim was undone.
    RETURNED = 'returned'
    #: Then the build was sent to another host.
    SCHEDULED = 'scheduled'


def elsewhere(state: InstanceState | None, host: HostKey,
              claim: BuildStage = BuildStage.NONE) -> bool:
    """Return whether an instance is on another compute service."""
    if state is None:
        return False
    if state.host_key is None:
        # Only if this thread had claimed it: another host has then taken it
        # over and begins the build again (:mod:`.forwarding`).
        return claim is BuildStage.HELD
    return state.host_key != host


def contested(state: InstanceState | None, host: HostKey) -> bool:
    """Return whether another host is taking over an instance of this host."""
    return (state is not None and state.host_key == host
            and takeover.is_anothers(state.task_state, host))


def begun_elsewhere(state: InstanceState | None, host: HostKey,
                    claim: BuildStage = BuildStage.NONE) -> bool:
    """Return whether another host has also begun the build of this thread."""
    # No build begins with a mark, or as left_over() describes. nova writes
    # ``scheduling`` at the end (ComputeManager._do_build_and_run_instance), so
    # another host has written it: that host found the node elsewhere.
    return state is not None and not state.deleted and (
        elsewhere(state, host, claim) or takeover.is_mark(state.task_state)
        or claim in (BuildStage.NONE, BuildStage.BEGUN) and left_over(state)
        or claim in (BuildStage.BEGUN, BuildStage.HELD, BuildStage.RETURNED)
        and state.task_state == 'scheduling')


def left_over(state: InstanceState | None) -> bool:
    """Return whether a failed build has not finished its cleanup."""
    # nova removes the host, cleans up, then writes ``scheduling`` or ERROR
    # (ComputeManager._do_build_and_run_instance); no attempt begins otherwise.
    return (state is not None and not state.deleted
            and state.host_key is None and state.vm_state == 'building'
            and state.task_state in takeover.BUILDING_TASKS)


def crossed(task_state: str | None, held: bool) -> bool:
    """Return whether a build finds a task state that another build wrote.

    A fenced host that lives may go on with a build that was begun again here:
    nova checks the task state, not the host (Instance.save).
    """
    return held and task_state in takeover.BUILDING_TASKS


def in_progress(state: InstanceState, host: HostKey) -> bool:
    """Return whether a build has begun on a host and has not ended."""
    return state.host_key == host and state.vm_state == 'building'


def given_up(state: InstanceState | None) -> bool:
    """Return whether a build has failed for good and its node can be freed."""
    return state is None or state.deleted or state.vm_state == 'error'


def may_change_machine(state: InstanceState | None,
                       owner: HostKey | None, host: HostKey,
                       claim: BuildStage = BuildStage.NONE) -> bool:
    """Return whether this host may change the machine of an instance."""
    if state is None or state.deleted:
        # The machine belongs to ``owner``, the owner of the node.
        return owner in (None, host)
    return not elsewhere(state, host, claim)


def outdated(state: InstanceState | None, node: str | None, host: HostKey,
             allocated: abc.Callable[[], bool]) -> bool:
    """Return whether a requested build is done, or belongs to another host.

    RabbitMQ can deliver a message twice. nova builds any instance without a
    task state (ComputeManager._do_build_and_run_instance), finds its node in
    use by the instance itself, and tears down the running machine. But a
    pending build has an allocation of its node until it fails or moves, and
    the claim writes host and node together. nova itself handles a deleted
    instance and a node with another owner.
    """
    if state is None or state.deleted:
        return False
    if elsewhere(state, host):
        return True
    if state.host_key is None and state.vm_state not in (
            None, 'building', 'error'):
        # It was built; its host was removed by mistake, too late.
        return True
    if state.host_key == host and (
            node in (None, state.node)
            or state.vm_state not in ('building', 'error')):
        return True
    return node is not None and not allocated()


@dataclasses.dataclass(frozen=True)
class SentBuild:
    """A build that has an allocation of a node and no host yet."""

    instance: str
    node: str
