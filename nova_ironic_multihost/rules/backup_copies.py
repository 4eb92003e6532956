# SPDX-License-Identifier: Apache-2.0

"""Copies of builds, for as long as their compute service alone has them.

Pure. A compute service takes all builds that wait for it at once, and carries
out a few at a time: what a message asks for is then in its memory alone, until
Ironic has been told. So a compute service puts a *copy* of each build that
comes into a queue of its own, and holds it from there, unacknowledged, until
the build is over. When the process ends, however, the copies are in that queue
again, and whoever comes next judges them by what nova has of the instance.
"""

from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules.takeover import Step

#: How often a build is begun at most that ends each time with its process: it
#: may be what ends it.
ATTEMPTS = 5

#: Seconds for which a build that was left waits for its copy. That may be with
#: a process that has ended, until RabbitMQ knows of it; and with whoever reads
#: for a compute service that is dead, until it is handed on.
PATIENCE = 300

#: The same without a word from who has the copies: RabbitMQ does not answer.
LONGEST = 1800

#: Provision states of the node of a build of which Ironic was not told: none,
#: as it is not reserved yet, or as it was before.
UNTOLD = frozenset({None, 'available'})


def judge(copy: QueuedRequest, home: HostKey, situation: RequestFacts,
          refused: bool = False) -> Disposition:
    """Say what to do with a copy of a build that nobody here is at.

    A build that has not claimed its node is asked for again, as it is if it
    still waited (:func:`.forwarding.judge`). One that has is finished
    by the host that it is on (:mod:`.engine.servers.recovery`), which may need
    it.

    :param home: the host whose copy it is.
    :param situation: what is known of the build.
    :param refused: whether that host has refused it, as done or another's; it
        is not asked for there again.
    """
    state = situation.state
    if copy.kind is not RequestKind.BUILD or copy.node is None:
        return Disposition(Action.KEEP)
    if state is None or state.deleted:
        return Disposition(Action.DROP)
    if state.host_key is None:
        if situation.attempts >= ATTEMPTS:
            return Disposition(Action.DROP)
        verdict = forwarding.judge(copy, home, situation)
        return (Disposition(Action.DROP) if refused and verdict.host == home
                else verdict)
    if not forwarding.goes_on(copy, state):
        return Disposition(Action.DROP)
    if state.host_key == home:
        return Disposition(Action.KEEP)
    return Disposition(Action.HAND_ON, state.host_key, copy=True)


def step(provision_state: str | None, waited: float, has_copy: bool,
         all_seen: bool, attempts: int) -> Step:
    """Say what becomes of a build that was begun and that nobody is at.

    At first it is looked at again: what a process has asked Ironic for in its
    last moment may be on its way.

    :param provision_state: of its node in Ironic, None if that is not
        reserved for it.
    :param waited: seconds since it was seen for the first time; 0 then.
    :param has_copy: whether its copy is here.
    :param all_seen: whether all copies were seen that there are here.
    :param attempts: how often it was begun and not ended.
    :returns: FAIL, AWAIT or REPEAT.
    """
    if provision_state not in UNTOLD or attempts >= ATTEMPTS:
        return Step.FAIL
    if not has_copy:
        return (Step.FAIL if waited >= (PATIENCE if all_seen else LONGEST)
                else Step.AWAIT)
    return Step.REPEAT if waited else Step.AWAIT
