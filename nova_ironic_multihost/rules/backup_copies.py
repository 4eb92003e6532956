# SPDX-License-Identifier: Apache-2.0

"""Backups of build requests, for as long as only one process has them.

A compute service reads all waiting builds at once. Until a build is over, it
holds a *backup* of the request unacknowledged in a queue of its own. If the
process ends, RabbitMQ requeues the backups, and the next reader judges them by
the instance in nova.
"""

from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.forwarding import Action
from nova_ironic_multihost.rules.forwarding import Disposition
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestFacts
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules.takeover import Step

#: The most attempts of a build that end with its process: it may kill it.
ATTEMPTS = 5

#: Seconds to wait for a backup that an ended process or another host may hold.
PATIENCE = 300

#: The same while RabbitMQ does not answer.
LONGEST = 1800

#: Provision states before nova tells Ironic to deploy; None: not reserved.
UNTOLD = frozenset({None, 'available'})


def judge(copy: QueuedRequest, home: HostKey, facts: RequestFacts,
          refused: bool = False, ended: bool = False) -> Disposition:
    """Return what to do with a backup if no thread works on its build."""
    state = facts.state
    if copy.kind is not RequestKind.BUILD or copy.node is None:
        return Disposition(Action.KEEP)
    # A build that ended on its ``home`` may have come back by a takeover.
    if state is None or state.deleted or ended and state.host_key != home:
        return Disposition(Action.DROP)
    if state.host_key is None:
        if facts.attempts >= ATTEMPTS:
            return Disposition(Action.DROP)
        disposition = forwarding.judge(copy, home, facts)
        # The host does not get a build again that it has refused.
        if refused and disposition.host == home:
            return Disposition(Action.DROP)
        return disposition
    if not forwarding.goes_on(copy, state):
        return Disposition(Action.DROP)
    # The host finishes the build, and may need the backup for that.
    if state.host_key == home:
        return Disposition(Action.KEEP)
    return Disposition(Action.HAND_ON, state.host_key, copy=True)


def step(provision_state: str | None, waited: float, has_copy: bool,
         all_seen: bool, attempts: int) -> Step:
    """Return FAIL, AWAIT or REPEAT for a begun build that has no thread."""
    # ``waited``: seconds since the build was first seen so; 0 then.
    if provision_state not in UNTOLD or attempts >= ATTEMPTS:
        return Step.FAIL
    # Backups may be unread until ``all_seen``.
    if not has_copy:
        return (Step.FAIL if waited >= (PATIENCE if all_seen else LONGEST)
                else Step.AWAIT)
    # It waits at least once: its last request to Ironic may be on the way.
    return Step.REPEAT if waited else Step.AWAIT
