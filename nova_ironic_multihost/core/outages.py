# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Who is silent, since when, and whether that means anything.

Pure. nova takes a compute service for dead when no heartbeat of it has been
written for ``service_down_time``. That is all that the others see, and an
outage that hits many of them, such as a database that cannot be written, looks
the same as many deaths, for a time.
"""

from collections.abc import Mapping
import dataclasses
import types

from nova_ironic_multihost.core.host import HostKey
from nova_ironic_multihost.core import membership


def sees_most_up(view: membership.View) -> bool:
    """Whether a host may believe its eyes as to who is down.

    It is a member, and more than half of those that share its nodes are up,
    itself included. Those that are down on purpose, fenced or disabled, are
    not counted.
    """
    counted = [service for host, service in view.services.items()
               if host != view.host and view.peer(host)
               and not service.forced_down
               and (service.up or not service.disabled)]
    up = 1 + sum(service.up for service in counted)
    return view.member(view.host) and 2 * up > 1 + len(counted)


def merely_silent(view: membership.View) -> frozenset[HostKey]:
    """Return the hosts that are down, and not by the word of an operator.

    Their heartbeat may be about to arrive.
    """
    return frozenset(
        host for host, service in view.services.items()
        if not (service.up or service.disabled or service.forced_down))


#: The most seconds from one look to the next that count. Nova calls a service
#: up for so long after a heartbeat (service_down_time, by default), so that
#: none goes unseen in between.
BREAK = 60


@dataclasses.dataclass(frozen=True)
class Outages:
    """Since when hosts have been seen down.

    Counted are looks one after the other, at each of which this host saw most
    of its peers up. When heartbeats cannot be written and reads go on, as with
    a database that is read-only, all look down to all, and come back one by
    one: whoever counted through that would take the last ones for dead. Time
    without looks is not counted.

    :param since: host -> when it was first seen down, of those that have been
        down ever since; in seconds of a monotonic clock, and later by the time
        that is not counted.
    :param last: when the last look was, None before the first one.
    :param member: whether this host was a member then.
    :param over: when it was one for the first time after an outage of its
        own, None if there was none: its heartbeat did not arrive, or it could
        not look.
    """

    since: Mapping[HostKey, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    last: float | None = None
    member: bool = True
    over: float | None = None

    def after(self, view: membership.View, now: float) -> 'Outages':
        """Return the outages after one more look.

        :param view: what was seen; a host that it lacks may be met again.
        :param now: time of this look.
        """
        member = view.member(view.host)
        over = now if member and self._in_outage(now) else self.over
        if not sees_most_up(view):
            return Outages(last=now, member=member, over=over)
        blind = (0 if self.last is None
                 else max(0, now - self.last - BREAK))
        before = {host: since + blind for host, since in self.since.items()}
        return Outages(types.MappingProxyType({
            **{host: since for host, since in before.items()
               if not view.live(host)},
            **{host: before.get(host, now)
               for host, service in view.services.items()
               if not service.up}}), now, member, over)

    def _in_outage(self, now: float) -> bool:
        return self.last is not None and (
            not self.member or now - self.last > BREAK)

    def silent(self, view: membership.View, now: float, down_time: float
               ) -> frozenset[HostKey]:
        """Return the hosts that an outage may have silenced.

        An outage that has hit this host has likely hit others, and they come
        back one by one.

        :param view: the compute services of this moment.
        :param now: this moment.
        :param down_time: seconds of silence after which nova takes a service
            for dead; so long after an outage whoever is merely silent is
            excused.
        """
        if not self._in_outage(now) and (
                self.over is None or now - self.over >= down_time):
            return frozenset()
        return merely_silent(view)

    def lengths(self, now: float) -> dict[HostKey, float]:
        """Return host -> seconds for which it has been down."""
        return {host: now - since for host, since in self.since.items()}
