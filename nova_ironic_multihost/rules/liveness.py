# SPDX-License-Identifier: Apache-2.0

"""Which compute services are dead, and for how long.

nova calls a service down when its last heartbeat, stamped by a conductor, is
more than ``service_down_time`` from the clock of the asking host. But clocks
may be wrong or stand still, and without a conductor all heartbeats get old. So
this host compares the heartbeats of others with its own.
"""

from collections import abc
import dataclasses
import datetime
import math

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey


def may_trust_view(view: peers.View) -> bool:
    """Return whether this host can trust its view of which hosts are down."""
    # It is a member, and more than half of its peers, with itself, are up. Not
    # counted: peers fenced, down and disabled, or without any heartbeat.
    mine = view.services.get(view.host)
    stamps = mine is not None and mine.beat is not None
    counted = [service for host, service in view.services.items()
               if host != view.host and view.peer(host)
               and not service.forced_down
               and (service.up or not service.disabled)
               and not (stamps and service.beat is None)]
    up = 1 + sum(service.up for service in counted)
    return view.member(view.host) and 2 * up > 1 + len(counted)


#: The most seconds between two peer polls; guarantee G4 leaves 5 s more.
PERIOD = 10


@dataclasses.dataclass(frozen=True)
class Heartbeats:
    """The seconds of ``report_interval`` and ``service_down_time``."""

    interval: float = 10
    down_time: float = 60

    @property
    def gap(self) -> float:
        """The most seconds between two polls that count as unbroken."""
        return max(2 * self.period, self.down_time - self.interval)

    @property
    def period(self) -> float:
        """Seconds between two polls; nothing changes faster."""
        return max(1, min(self.interval, PERIOD))

    @property
    def silence(self) -> float:
        """Seconds by which a dead host's last heartbeat is behind mine."""
        # My own is up to ``interval`` old when nova calls that host down.
        return max(0, self.down_time - self.interval)

    @property
    def quiet(self) -> float:
        """Seconds in which no poll sees a new heartbeat of a dead host."""
        # A poll may see one that is ``interval`` old. A live host's are seen
        # up to ``interval`` + ``period`` apart; nova may call it down sooner.
        return max(0, min(
            self.down_time - self.period,
            max(self.silence - self.interval, self.interval + self.period)))

    @property
    def pause(self) -> float:
        """The most seconds between two of my heartbeats without an outage."""
        # A host that survives such a pause is silent for less than two
        # intervals more, so nova does not call it down.
        return max(2.5 * self.interval, self.down_time - 2 * self.interval)

    def lost(self, seconds: float, unseen: float) -> float:
        """Return the seconds without a heartbeat although one was due.

        :param seconds: from one of my heartbeats to the next that was read.
        :param unseen: between these two reads; others may have been written.
        """
        # After a missed or slow poll none is taken to have been written.
        if unseen > 1.5 * max(self.interval, self.period):
            unseen = 0
        written = math.floor(unseen / self.interval + 0.1) + 1
        lost = seconds - written * self.interval
        # A write may be slow.
        return lost if lost > self.interval / 2 else 0


@dataclasses.dataclass(frozen=True)
class Outages:
    """Which hosts are dead, by their heartbeats and those of this host.

    A host is dead if it is forced down; or if nova calls it down and this
    host's heartbeats have gone on for :attr:`Heartbeats.silence` since its
    last, by time stamps and without a pause. As conductors' clocks may differ,
    also no poll has seen a new heartbeat of it for :attr:`Heartbeats.quiet`.
    After a pause, and for a new host, the time begins again and is
    ``down_time``, as hosts come back one by one. A dead host stays dead until
    its time stamp changes. Without time stamps (``servicegroup_driver = mc``)
    nova's word is enough, except after a pause.
    """

    #: Last heartbeat of this host, in seconds.
    own: float | None = None
    #: Monotonic time of the last read of the services.
    asked: float | None = None
    #: nova called this host up then.
    heard: bool = False
    #: The heartbeats of this host had paused then.
    paused: bool = False
    #: Host, as nova spells it -> its last heartbeat.
    beats: abc.Mapping[str, datetime.datetime | None] = dataclasses.field(
        default_factory=dict)
    #: Host -> monotonic time when that heartbeat was first seen.
    changed: abc.Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: Host -> the heartbeat of this host that proves it dead.
    due: abc.Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: Hosts that are dead unless nova calls them up.
    dead: frozenset[str] = frozenset()
    #: Host -> monotonic time since when every poll saw it dead and most peers
    #: up, moved on by the time without polls.
    since: abc.Mapping[HostKey, float] = dataclasses.field(
        default_factory=dict)
    #: Monotonic time of the end of the last poll.
    last: float | None = None

    def read(self, services: abc.Iterable[peers.ComputeService],
             host: HostKey, now: float, heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after another read of the services."""
        known = list(services)
        me = peers.by_host(known).get(host)
        others = [service for service in known if service.key != host]
        new_beats = {service.host for service in others
                     if service.host not in self.beats
                     or self.beats[service.host] != service.beat
                     or service.beat is None and service.up}
        found = dataclasses.replace(
            self, asked=now, heard=me is not None and me.up,
            paused=self.own is not None,
            beats={**self.beats, **{
                service.host: service.beat for service in others}},
            changed={**self.changed, **dict.fromkeys(new_beats, now)},
            dead=self.dead - new_beats)
        if me is None or not me.up:
            return found
        own = now if me.beat is None else _seconds(me.beat)
        last = self.own if self.heard and self.own is not None else own + 1
        steady = 0 <= own - last <= heartbeats.pause
        missed = (heartbeats.lost(own - last, now - self.asked)
                  if self.asked is not None else 0)
        due = ({other: moment + missed for other, moment in self.due.items()}
               if steady else
               dict.fromkeys(self.due, own + heartbeats.down_time))
        for service in others:
            if service.beat is None and service.up:
                due[service.host] = own
            elif service.host not in due or not steady:
                due[service.host] = own + heartbeats.down_time
            elif service.host in new_beats and service.beat is not None:
                # The conductor that wrote it may have another clock.
                due[service.host] = heartbeats.silence + min(max(
                    _seconds(service.beat), last), own + heartbeats.interval)
        return dataclasses.replace(
            found, own=own, paused=found.paused and not steady,
            due=due, dead=found.dead.union(
                service.host for service in others
                if not service.up and own >= due[service.host]
                and (service.beat is None or now - found.changed[service.host]
                     >= heartbeats.quiet)))

    def judged(self, services: abc.Iterable[peers.ComputeService],
               host: HostKey) -> tuple[peers.ComputeService, ...]:
        """Return the services; those that nova wrongly calls down are up."""
        return tuple(
            service if service.key == host
            else dataclasses.replace(service, up=self.lives(service))
            for service in services)

    def lives(self, service: peers.ComputeService) -> bool:
        """Return whether another host lives, as far as is known."""
        if service.up or service.forced_down:
            return service.up
        if service.host in self.dead:
            return self.beats[service.host] != service.beat
        return service.beat is not None or service.host in self.due

    def after(self, view: peers.View, now: float,
              heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after another poll of :meth:`judged` services."""
        if not may_trust_view(view):
            return dataclasses.replace(self, since={}, last=now)
        found = self.polled(now, heartbeats)
        down = dict.fromkeys((host for host, service in view.services.items()
                              if not service.up), now)
        before = {host: since for host, since in found.since.items()
                  if not view.live(host)}
        return dataclasses.replace(found, last=now, since={**down, **before})

    def polled(self, now: float, heartbeats: Heartbeats) -> 'Outages':
        """Return the outages after the work of a poll, as of its end."""
        if self.last is None:
            return self
        unpolled = max(0, now - self.last - heartbeats.gap)
        return dataclasses.replace(
            self, last=now, since={
                host: since + unpolled for host, since in self.since.items()})

    def overdue(self, now: float, heartbeats: Heartbeats) -> bool:
        """Return whether the last poll is too old to say anything."""
        return self.last is None or now - self.last > heartbeats.gap

    def lengths(self, now: float, heartbeats: Heartbeats
                ) -> abc.Mapping[HostKey, float]:
        """Return host -> seconds seen dead; empty if a poll is overdue."""
        if self.overdue(now, heartbeats):
            return {}
        return {host: now - since for host, since in self.since.items()}


def _seconds(moment: datetime.datetime) -> float:
    return moment.replace(tzinfo=datetime.UTC).timestamp()


# A stopping service sends heartbeats for minutes and takes no builds: always
# since nova 33, earlier while it waits for its operations. So it writes the
# *stop marker* as its disabled reason in nova, and disables itself if
# may_close() allows it. Other hosts ignore that it is disabled, as most
# services are back in seconds and should keep their nodes. After
# ``service_down_time`` the service is no member. The API of nova replaces the
# reason at each enable and disable (nova.api.openstack.compute.services): no
# operator has changed a marked one.
_MARKER_PREFIX = 'nova-ironic-multihost: stopping since '
_MARKER_SUFFIX = (
    '. Its next start enables it again. To keep it disabled disable it '
    'with a reason of your own.')
_MARKER_TIME = '%Y-%m-%dT%H:%M:%SZ'


def stop_marker_text(moment: datetime.datetime) -> str:
    """Return the marker of a UTC time; each marker of a host is unique."""
    return f'{_MARKER_PREFIX}{moment:{_MARKER_TIME}}{_MARKER_SUFFIX}'


def find_stop_marker(disabled_reason: str | None) -> str:
    """Return the stop marker in a disabled reason, '' if there is none."""
    reason = disabled_reason or ''
    return reason if reason.startswith(_MARKER_PREFIX) else ''


def stop_marker_time(marker: str) -> datetime.datetime | None:
    """Return the UTC time in a stop marker, by its host's clock, or None."""
    try:
        return datetime.datetime.strptime(
            marker.removeprefix(_MARKER_PREFIX).removesuffix(_MARKER_SUFFIX),
            _MARKER_TIME).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def may_close(view: peers.View, zones: abc.Mapping[HostKey, str | None]
              ) -> bool:
    """Return whether this stopping host should get no more builds."""
    # At least half of its zone must stay open: without an enabled compute
    # service builds end in ERROR; during a common restart they wait in queues.
    # The zone of a host that is not in ``zones`` is not known.
    others = [host for host in view.members - {view.host}
              if {host, view.host} <= zones.keys()
              and zones[host] == zones[view.host]]
    still_open = sum(not view.services[host].stop_marker for host in others)
    return bool(others) and 2 * still_open >= 1 + len(others)


@dataclasses.dataclass(frozen=True)
class StopMarkers:
    """The stop markers of others, and the monotonic time of first sight."""

    heard: abc.Mapping[HostKey, tuple[str, float]] = dataclasses.field(
        default_factory=dict)

    def after(self, view: peers.View, now: float) -> 'StopMarkers':
        """Return the stop markers after another poll."""
        heard = {}
        for host, service in view.services.items():
            if service.stop_marker and host != view.host:
                marker, since = self.heard.get(host, ('', now))
                heard[host] = (service.stop_marker,
                               since if marker == service.stop_marker else now)
        return StopMarkers(heard)

    def over(self, now: float, down_time: float
             ) -> frozenset[tuple[HostKey, str]]:
        """Return (host, stop marker) of hosts that are not back in time."""
        return frozenset(
            (host, marker) for host, (marker, since) in self.heard.items()
            if now - since >= down_time)

    def next_over(self, now: float, down_time: float) -> float | None:
        """Return the seconds until the next host is late, None without one."""
        return min((since + down_time - now
                    for _, since in self.heard.values()
                    if now - since < down_time), default=None)
