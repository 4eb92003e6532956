# SPDX-License-Identifier: Apache-2.0


"""What follows from members that come and go between two audits.

nova audits every ``update_resources_interval`` seconds. Nodes of a compute
service that dies should not wait for that. So every few seconds each compute
service polls its peers, and at once audits the nodes of hosts that have died,
were disabled or fenced, or were told to stop and have not come back. A host
that joins, or is enabled again, takes its nodes by its own audits.
"""

from collections.abc import Callable
from collections.abc import Iterable
import time

from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey


def due(before: peers.View | None, after: peers.View
        ) -> frozenset[HostKey]:
    """Return the hosts with nodes that may have become mine.

    When a member leaves, this host may be preferred for nodes of hosts that
    left earlier, too: the member was to take those and has not.

    :param before: result of the poll before, or None.
    :param after: result of this poll.
    :returns: hosts that are no members.
    """
    if not after.member(after.host):
        return frozenset()
    absent = {host: state for host, state
              in ((host, _down_state(after, host)) for host in after.services)
              if state is not None and host != after.host}
    if (before is None or not before.member(before.host)
            or before.members - after.members):
        return frozenset(absent)
    return frozenset(host for host, state in absent.items()
                     if _down_state(before, host) != state)


def _down_state(view: peers.View, host: HostKey
                ) -> tuple[bool, bool, bool] | None:
    """Return why others may take nodes of a host; None if they may not."""
    service = view.services.get(host)
    if service is None or (service.up and not service.disabled
                           and not view.gone(host)):
        return None
    return service.up, service.disabled, service.forced_down


class PeerChanges:
    """The results of the polls so far, and the work that is left.

    :param clock: monotonic clock, in seconds.
    :ivar seen: the last result that was acted on, or None.
    :ivar eligible: the hosts with instances that might be taken over then.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen: peers.View | None = None
        self._clock = clock
        self._pauses: dict[HostKey, backoff.Backoff] = {}
        self.eligible: frozenset[HostKey] = frozenset()
        self._waiting: frozenset[HostKey] = frozenset()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The known hosts, as nova spells them."""
        return self.seen.hosts if self.seen else ()

    def due(self, view: peers.View,
            eligible: frozenset[HostKey] = frozenset()
            ) -> frozenset[HostKey]:
        """Return the hosts with nodes that are to be audited now.

        :param view: result of this poll.
        :param eligible: hosts with instances that may be taken over by now.
        """
        now = self._clock()
        again = {host for host in {
                     *self._waiting, *(host for host, pause
                                       in self._pauses.items()
                                       if pause.until <= now)}
                 if _down_state(view, host) is not None}
        return due(self.seen, view) | again | (eligible - self.eligible)

    def done(self, view: peers.View, audited: Iterable[HostKey] = (),
             eligible: frozenset[HostKey] = frozenset(),
             waiting: Iterable[HostKey] = (),
             hindered: Iterable[HostKey] = ()) -> None:
        """Note that this was done.

        Without it the next poll finds the same work.

        :param view: result of this poll.
        :param audited: hosts with nodes that were audited.
        :param eligible: as for :meth:`due`.
        :param waiting: hosts left to the next poll: they have more nodes or
            instances than can be taken at a time, or a service does not
            answer.
        :param hindered: hosts with a node that could not be taken. They are
            tried again by the next poll, and then ever more seldom.
        """
        self.seen = view
        self.eligible = eligible
        self._waiting = frozenset(waiting)
        tried, last, now = frozenset(audited), self._pauses, self._clock()
        self._pauses = {
            **{host: pause for host, pause in last.items()
               if host not in tried and _down_state(view, host) is not None},
            # At first it is none at all.
            **{host: backoff.Backoff(
                now + (last[host].seconds if host in last else 0),
                backoff.longer(last.get(host), False))
               for host in hindered}}
