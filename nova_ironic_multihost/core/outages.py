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
import datetime
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


#: The most seconds between two looks. A host that died is noticed so long
#: after service_down_time; guarantee G4 leaves 5 s more for its nodes.
PERIOD = 10


@dataclasses.dataclass(frozen=True)
class Heartbeats:
    """How compute services show that they live.

    :param interval: seconds between two heartbeats, ``report_interval``.
    :param down_time: seconds of silence after which nova takes a service for
        dead, ``service_down_time``.
    """

    interval: float = 10
    down_time: float = 60

    @property
    def gap(self) -> float:
        """The most seconds from one look to the next that count.

        If nobody could write a heartbeat for longer, some may look dead at
        the second look, as the last heartbeat may be as old as the interval.
        """
        return max(2 * self.period, self.down_time - self.interval)

    @property
    def period(self) -> float:
        """Seconds between two looks: nothing changes faster."""
        return max(1, min(self.interval, PERIOD))


@dataclasses.dataclass(frozen=True)
class Outages:
    """Since when hosts have been seen down.

    Counted are looks one after the other, at each of which this host saw most
    of its peers up. When heartbeats cannot be written and reads go on, as with
    a database that is read-only, all look down to all, and come back one by
    one: whoever counted through that would take the last ones for dead. Time
    without looks is not counted. Who has sent a heartbeat since the look
    before, seen up or not, was alive, and is counted anew.

    :param since: host -> when it was first seen down, of those that have been
        down ever since; in seconds of a monotonic clock, and later by the time
        that is not counted.
    :param beats: the last heartbeat of each of them.
    :param last: when the last look was over, None before the first one.
    :param heard: whether the heartbeats of this host arrived then.
    :param over: when they did for the first time after an outage of its own,
        None if there was none: they did not arrive, or it could not look.
    """

    since: Mapping[HostKey, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    beats: Mapping[HostKey, datetime.datetime | None] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    last: float | None = None
    heard: bool = True
    over: float | None = None

    def after(self, view: membership.View, now: float,
              heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after one more look.

        :param view: what was seen; a host that it lacks may be met again.
        :param now: time of this look.
        :param heartbeats: how often they are sent.
        """
        heard = _heard(view)
        over = (now if heard and self._in_outage(now, heartbeats)
                else self.over)
        if not sees_most_up(view):
            return Outages(last=now, heard=heard, over=over)
        blind = (0 if self.last is None
                 else max(0, now - self.last - heartbeats.gap))
        down = {host: service.beat for host, service in view.services.items()
                if not service.up}
        before = {host: since + blind for host, since in self.since.items()
                  if not view.live(host)
                  and down.get(host, self.beats[host]) == self.beats[host]}
        since = {**before, **{host: before.get(host, now) for host in down}}
        return Outages(
            types.MappingProxyType(since),
            types.MappingProxyType({
                host: down.get(host, self.beats.get(host))
                for host in since}), now, heard, over)

    def looked(self, now: float, heartbeats: Heartbeats) -> 'Outages':
        """Return the outages when what a look leads to is done.

        Who takes many nodes looks on only then, and is in no outage. But
        nobody was seen to be down meanwhile.

        :param now: this moment.
        :param heartbeats: how often they are sent.
        """
        if self.last is None:
            return self
        blind = max(0, now - self.last - heartbeats.gap)
        return dataclasses.replace(
            self, last=now, since=types.MappingProxyType({
                host: since + blind for host, since in self.since.items()}))

    def overdue(self, now: float, heartbeats: Heartbeats) -> bool:
        """Whether the last look was so long ago that it says nothing."""
        return self.last is not None and now - self.last > heartbeats.gap

    def _in_outage(self, now: float, heartbeats: Heartbeats) -> bool:
        return not self.heard or self.overdue(now, heartbeats)

    def recent(self, now: float, heartbeats: Heartbeats) -> bool:
        """Whether an outage goes on, or has been over for a short time only.

        An outage that has hit this host has likely hit others, and they come
        back one by one, within ``down_time``.

        :param now: this moment.
        :param heartbeats: how often they are sent.
        """
        return self._in_outage(now, heartbeats) or (
            self.over is not None and now - self.over < heartbeats.down_time)

    def any_since(self, moment: float, now: float, heartbeats: Heartbeats
                  ) -> bool:
        """Whether there may have been an outage of this host since a moment.

        Others may then have taken it for dead. Only who looks can tell.

        :param now: this moment.
        :param heartbeats: how often they are sent.
        """
        return (self.last is None or self.recent(now, heartbeats)
                or self.over is not None and self.over >= moment)

    def silent(self, view: membership.View, now: float,
               heartbeats: Heartbeats) -> frozenset[HostKey]:
        """Return the hosts that an outage may have silenced.

        :param view: the compute services of this moment.
        :param now: this moment.
        :param heartbeats: how often they are sent.
        """
        if not self.recent(now, heartbeats):
            return frozenset()
        return merely_silent(view)

    def lengths(self, now: float, heartbeats: Heartbeats
                ) -> dict[HostKey, float]:
        """Return host -> seconds for which it has been down.

        Of none while an outage may have silenced it, and no more than was
        seen: a look may be overdue.

        :param now: this moment.
        :param heartbeats: how often they are sent.
        """
        if self.last is None or self.recent(now, heartbeats):
            return {}
        return {host: now - since for host, since in self.since.items()}


def _heard(view: membership.View) -> bool:
    """Whether the heartbeats of the host whose view it is arrive.

    It may be no member for another reason: it is disabled, or fenced.
    """
    service = view.services.get(view.host)
    return (service is None or service.up or service.forced_down
            or view.starting)
