# SPDX-License-Identifier: Apache-2.0

"""Decide of which hosts the nodes are audited between two audits of nova.

They are hosts that have died, or were disabled, fenced or stopped. A host that
joins or is enabled takes nodes by its own audits.
"""

from collections.abc import Callable
from collections.abc import Iterable
import time

from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey


def due(before: peers.View | None, after: peers.View
        ) -> frozenset[HostKey]:
    """Return the hosts of which this host may get nodes now.

    When a member leaves, this host may also be preferred for nodes of hosts
    that left earlier, as the member did not take them.

    :param before: the view of the last poll, None if there was none.
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
    """Return (up, disabled, forced down), None for a host in service."""
    service = view.services.get(host)
    if service is None or (service.up and not service.disabled
                           and not view.gone(host)):
        return None
    return service.up, service.disabled, service.forced_down


class PeerChanges:
    """What the last polls have found, and the hosts that are due.

    :ivar seen: the last view that was acted on, or None.
    :ivar eligible: the hosts then with instances that could be taken over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.seen: peers.View | None = None
        self._clock = clock
        self._backoffs: dict[HostKey, backoff.Backoff] = {}
        self.eligible: frozenset[HostKey] = frozenset()
        self._waiting: frozenset[HostKey] = frozenset()

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of that view, as nova spells them."""
        return self.seen.hosts if self.seen else ()

    def due(self, view: peers.View,
            eligible: frozenset[HostKey] = frozenset()
            ) -> frozenset[HostKey]:
        """Return the hosts with nodes that are to be audited now.

        :param eligible: hosts with instances that may be taken over now.
        """
        now = self._clock()
        again = {host for host in {
                     *self._waiting, *(host for host, pause
                                       in self._backoffs.items()
                                       if pause.until <= now)}
                 if _down_state(view, host) is not None}
        return due(self.seen, view) | again | (eligible - self.eligible)

    def done(self, view: peers.View, audited: Iterable[HostKey] = (),
             eligible: frozenset[HostKey] = frozenset(),
             waiting: Iterable[HostKey] = (),
             hindered: Iterable[HostKey] = ()) -> None:
        """Note the result of a poll; without it the next one does the same.

        :param waiting: hosts for the next poll: they have more nodes or
            instances than one poll takes, or a service did not answer.
        :param hindered: hosts with a node that could not be taken: for the
            next poll, then with backoff.
        """
        self.seen = view
        self.eligible = eligible
        self._waiting = frozenset(waiting)
        tried, last, now = frozenset(audited), self._backoffs, self._clock()
        self._backoffs = {
            **{host: pause for host, pause in last.items()
               if host not in tried and _down_state(view, host) is not None},
            # The first backoff has no length.
            **{host: backoff.Backoff(
                now + (last[host].seconds if host in last else 0),
                backoff.longer(last.get(host), False))
               for host in hindered}}
