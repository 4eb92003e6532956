# SPDX-License-Identifier: Apache-2.0

"""Which compute services are dead, and for how long.

nova calls a compute service down when its last heartbeat, written by a
conductor, is more than ``service_down_time`` away from the clock of the host
that asks. That alone proves no death. The clock of that host may be wrong or
may have stood still, the clock of a conductor may have stepped, and in an
outage no host can write a heartbeat. So this host compares the heartbeats of
others with its own.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import datetime
import math
import types

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey


def sees_most_up(view: peers.View) -> bool:
    """Whether a host may trust what it sees of down hosts.

    It is a member, and more than half of the hosts that share its nodes are
    up, itself included. Not counted are hosts that are fenced or disabled, and
    hosts without a heartbeat where heartbeats have time stamps.
    """
    mine = view.services.get(view.host)
    stamps = mine is not None and mine.beat is not None
    counted = [service for host, service in view.services.items()
               if host != view.host and view.peer(host)
               and not service.forced_down
               and (service.up or not service.disabled)
               and not (stamps and service.beat is None)]
    up = 1 + sum(service.up for service in counted)
    return view.member(view.host) and 2 * up > 1 + len(counted)


#: The most seconds between two looks. A host that died is noticed so long
#: after service_down_time; guarantee G4 leaves 5 s more for its nodes.
PERIOD = 10


@dataclasses.dataclass(frozen=True)
class Heartbeats:
    """How compute services show that they live.

    :param interval: seconds between two heartbeats, ``report_interval``.
    :param down_time: seconds of silence after which nova calls a service down,
        ``service_down_time``.
    """

    interval: float = 10
    down_time: float = 60

    @property
    def gap(self) -> float:
        """The most seconds between two polls that count."""
        return max(2 * self.period, self.down_time - self.interval)

    @property
    def period(self) -> float:
        """Seconds between two polls."""
        return max(1, min(self.interval, PERIOD))

    @property
    def silence(self) -> float:
        """Seconds by which a dead host's last heartbeat is behind mine.

        My own last heartbeat is up to ``interval`` old when nova calls it
        down.
        """
        return max(0, self.down_time - self.interval)

    @property
    def quiet(self) -> float:
        """Seconds in which no poll sees a new heartbeat of a dead host.

        The last one may be ``interval`` old when a poll sees it. Polls see
        those of a live host at most ``interval`` and a period apart, but nova
        may call a host down sooner.
        """
        return max(0, min(
            self.down_time - self.period,
            max(self.silence - self.interval, self.interval + self.period)))

    @property
    def pause(self) -> float:
        """The most seconds between two heartbeats of mine without an outage.

        A host that lives through such a pause is silent for less than two
        intervals more, so that nova does not call it down.
        """
        return max(2.5 * self.interval, self.down_time - 2 * self.interval)

    def lost(self, seconds: float, unseen: float) -> float:
        """Return for how long no heartbeat was written though one was due.

        Less than half an interval counts as none, as a write may be slow.

        :param seconds: time between two of my heartbeats that I have seen.
        :param unseen: seconds without a poll; in them more of mine may have
            been written.
        """
        written = math.floor(unseen / self.interval + 0.1) + 1
        lost = seconds - written * self.interval
        return lost if lost > self.interval / 2 else 0


@dataclasses.dataclass(frozen=True)
class Outages:
    """Which hosts are dead, by their heartbeats and those of this host.

    A host is dead if nova calls it down, and if this host has gone on with its
    own heartbeats for :attr:`Heartbeats.silence` since the last one of that
    host. The time is that of the stamps. As the clocks of conductors may
    differ, no poll may have seen a new heartbeat of the host for
    :attr:`Heartbeats.quiet` either. A dead host stays dead until its stamp
    changes.

    Time in which this host missed its own heartbeats does not count: the other
    host could not write either, and may have been unlucky when this one was
    not. After a pause that is too long, and for a host that is seen for the
    first time, the count starts again and lasts ``down_time``, since after an
    outage hosts come back one by one.

    Without time stamps (``servicegroup_driver = mc``) nova's word is enough,
    except after a pause; the time is then that of a monotonic clock.

    :param own: last heartbeat of this host in seconds, None before one was
        seen.
    :param asked: when the services were read last, by a monotonic clock.
    :param heard: nova called this host up at that time.
    :param paused: the heartbeats of this host had paused by then.
    :param beats: host, as nova spells it -> its last heartbeat.
    :param changed: host -> when that was seen first, by a monotonic clock.
    :param due: host -> the heartbeat of this host that shows it dead.
    :param dead: hosts that are dead unless nova calls them up.
    :param since: host -> when it was first seen dead, by a monotonic clock and
        later by the time without polls; only of polls in a row at which this
        host saw most peers up.
    :param last: when the last poll ended, None before the first.
    """

    own: float | None = None
    asked: float | None = None
    heard: bool = False
    paused: bool = False
    beats: Mapping[str, datetime.datetime | None] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    changed: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    due: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    dead: frozenset[str] = frozenset()
    since: Mapping[HostKey, float] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))
    last: float | None = None

    def read(self, services: Iterable[peers.ComputeService],
             host: HostKey, now: float, heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after the services were read once more.

        :param services: as nova has them.
        :param host: this host.
        :param now: this moment, by a monotonic clock.
        """
        known = list(services)
        me = peers.by_host(known).get(host)
        others = [service for service in known if service.key != host]
        news = {service.host for service in others
                if service.host not in self.beats
                or self.beats[service.host] != service.beat
                or service.beat is None and service.up}
        found = dataclasses.replace(
            self, asked=now, heard=me is not None and me.up,
            paused=self.own is not None,
            beats=types.MappingProxyType({**self.beats, **{
                service.host: service.beat for service in others}}),
            changed=types.MappingProxyType({
                **self.changed, **dict.fromkeys(news, now)}),
            dead=self.dead - news)
        if me is None or not me.up:
            return found
        own = now if me.beat is None else _seconds(me.beat)
        last = self.own if self.heard and self.own is not None else own + 1
        steady = 0 <= own - last <= heartbeats.pause
        lost = (heartbeats.lost(own - last, now - self.asked)
                if self.asked is not None else 0)
        due = ({other: moment + lost for other, moment in self.due.items()}
               if steady else
               dict.fromkeys(self.due, own + heartbeats.down_time))
        for service in others:
            if service.beat is None and service.up:
                due[service.host] = own
            elif service.host not in due or not steady:
                due[service.host] = own + heartbeats.down_time
            elif service.host in news and service.beat is not None:
                # The conductor that wrote it may have another clock.
                due[service.host] = heartbeats.silence + min(max(
                    _seconds(service.beat), last), own + heartbeats.interval)
        return dataclasses.replace(
            found, own=own, paused=found.paused and not steady,
            due=types.MappingProxyType(due),
            dead=found.dead.union(
                service.host for service in others
                if not service.up and own >= due[service.host]
                and (service.beat is None or now - found.changed[service.host]
                     >= heartbeats.quiet)))

    def judged(self, services: Iterable[peers.ComputeService],
               host: HostKey) -> tuple[peers.ComputeService, ...]:
        """Return the services, with live ones up that nova calls down.

        :param services: as nova has them now.
        :param host: this host, for which the word of nova counts.
        """
        return tuple(
            service if service.key == host
            else dataclasses.replace(service, up=self.lives(service))
            for service in services)

    def lives(self, service: peers.ComputeService) -> bool:
        """Whether another host lives, as far as is known."""
        if service.up or service.forced_down:
            return service.up
        if service.host in self.dead:
            return self.beats[service.host] != service.beat
        return service.beat is not None or service.host in self.due

    def after(self, view: peers.View, now: float,
              heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after one more poll.

        :param view: with the services as :meth:`judged`.
        :param now: time of the poll.
        """
        if not sees_most_up(view):
            return dataclasses.replace(
                self, since=types.MappingProxyType({}), last=now)
        found = self.looked(now, heartbeats)
        down = dict.fromkeys((host for host, service in view.services.items()
                              if not service.up), now)
        before = {host: since for host, since in found.since.items()
                  if not view.live(host)}
        return dataclasses.replace(
            found, last=now, since=types.MappingProxyType({**down, **before}))

    def looked(self, now: float, heartbeats: Heartbeats) -> 'Outages':
        """Return the outages at the end of a poll and of what it led to.

        No host was seen down meanwhile.
        """
        if self.last is None:
            return self
        blind = max(0, now - self.last - heartbeats.gap)
        return dataclasses.replace(
            self, last=now, since=types.MappingProxyType({
                host: since + blind for host, since in self.since.items()}))

    def overdue(self, now: float, heartbeats: Heartbeats) -> bool:
        """Whether the last poll is so long ago that it says nothing."""
        return self.last is None or now - self.last > heartbeats.gap

    def lengths(self, now: float, heartbeats: Heartbeats
                ) -> Mapping[HostKey, float]:
        """Return host -> seconds for which it has been seen dead.

        Nothing if a poll is overdue.
        """
        if self.overdue(now, heartbeats):
            return {}
        return {host: now - since for host, since in self.since.items()}


def _seconds(moment: datetime.datetime) -> float:
    """Return a time stamp of nova's, in UTC, as a number."""
    return moment.replace(tzinfo=datetime.UTC).timestamp()
