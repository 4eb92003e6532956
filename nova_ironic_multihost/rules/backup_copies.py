# SPDX-License-Identifier: Apache-2.0

"""Copies of builds, while their compute service alone has them.

A compute service takes all waiting builds from its queue at once and carries
out a few at a time. Until Ironic is told, only its memory knows what is to be
built. So it sends a *copy* of each build into a queue of its own, and holds it
unacknowledged until the build is over. When the process ends the copies are in
that queue again, and the next reader judges them by the instance in nova.
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
    """Return the disposition of a copy whose build no thread here works on.

    A build without a claimed node is asked for again, as if it still waited
    (:func:`.forwarding.judge`). The host of the instance finishes a build with
    a node, and may need the copy for that (:mod:`.engine.servers.recovery`).

    :param home: the host whose copy it is.
    :param situation: facts of the build.
    :param refused: that host has refused it, as done or taken by another host,
        and is not asked again.
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
    """Return the next step for a build that was begun and abandoned.

    The first time it waits: a last request to Ironic may be on its way.

    :param provision_state: of the node in Ironic; None if the node is not
        reserved for the build.
    :param waited: seconds since it was seen first; 0 the first time.
    :param has_copy: its copy is here.
    :param all_seen: all copies that exist here were seen.
    :param attempts: how often it was begun and not ended.
    :returns: FAIL, AWAIT or REPEAT.
    """
    if provision_state not in UNTOLD or attempts >= ATTEMPTS:
        return Step.FAIL
    if not has_copy:
        return (Step.FAIL if waited >= (PATIENCE if all_seen else LONGEST)
                else Step.AWAIT)
    return Step.REPEAT if waited else Step.AWAIT
