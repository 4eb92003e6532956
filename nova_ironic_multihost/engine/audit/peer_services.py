# SPDX-License-Identifier: Apache-2.0

"""The compute services: as nova has them, and by their heartbeats.

Shared parameters: ``hosts`` were seen before, as nova lists only enabled
services; ``outages`` were noted by the peer poll; ``now`` is in monotonic
seconds; ``starting`` is :attr:`.peers.View.starting`.
"""

from collections import abc
import dataclasses
import threading

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import AuditState
from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.base.ports import Cloud
from nova_ironic_multihost.rules.liveness import Outages
from nova_ironic_multihost.rules.liveness import StopMarkers
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

Services = tuple[peers.ComputeService, ...]


@dataclasses.dataclass(frozen=True)
class Peers:
    """The services, the view of them and the hash ring, as of one moment."""

    services: Services
    view: peers.View
    preferences: ring.Preferences
    host_aggregates: peers.KnownAggregates
    outages: Outages


class HeartbeatLog:
    """The heartbeats and stop markers that this host has seen.

    Several threads note heartbeats. ``_lock`` is held for no I/O, so that an
    idle peer poll waits for no audit. Only the peer poll notes which hosts are
    down: each audit asks about different peers, so it cannot measure for how
    long.
    """

    def __init__(self, cloud: Cloud, clock: abc.Callable[[], float]) -> None:
        self.outages = Outages()
        #: The hosts of the last peer poll.
        self.hosts: tuple[str, ...] = ()
        self._cloud = cloud
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._stop_markers = StopMarkers()
        #: Whether this host was no member when the services were last read.
        self.excluded = False
        self._excluded_at = float('-inf')

    def read(self, settings: Settings, hosts: abc.Iterable[str]
             ) -> tuple[Services, Outages]:
        """Read the services and note their heartbeats."""
        begun = self._clock()
        known = services(self._cloud, settings, hosts)
        with self._lock:
            # Another thread may have noted a newer answer.
            if self._read_at is None or begun >= self._read_at:
                self._read_at = self._clock()
                self.outages = self.outages.read(
                    known, host_key(settings.host), self._read_at,
                    settings.heartbeats)
            return known, self.outages

    def note_member(self, view: peers.View, begun: float) -> None:
        """Note whether this host is a member; ``begun``: when it was asked."""
        with self._lock:
            if begun >= self._excluded_at:
                self._excluded_at = begun
                self.excluded = not view.member(view.host)

    def due(self, settings: Settings, often: bool) -> bool:
        """Whether a slow peer poll must note heartbeats meanwhile.

        Else this host seems paused. ``often``: the poll takes nodes, and reads
        no heartbeats itself.
        """
        heard, periods = self._read_at, 0.5 if often else 1.5
        return heard is not None and (
            self._clock() - heard > periods * settings.heartbeats.period)

    def lives(self, host: str,
              ask: abc.Callable[[str], peers.ComputeService | None] | None
              = None) -> bool:
        """Whether a host lives, by ``ask`` or else ``cloud.service``."""
        service = (ask or self._cloud.service)(host)
        return service is not None and self.outages.lives(service)

    def note_down(self, settings: Settings, view: peers.View
                  ) -> frozenset[HostKey]:
        """Note hosts down or stopping; return those to take over from."""
        now = self._clock()
        self.hosts = view.hosts
        with self._lock:
            self.outages = outages = self.outages.after(
                view, now, settings.heartbeats)
            self._stop_markers = self._stop_markers.after(view, now)
        return takeover.eligible(
            settings.policy, view, outages.lengths(now, settings.heartbeats))

    def over(self, settings: Settings) -> frozenset[tuple[HostKey, str]]:
        """Return :meth:`.StopMarkers.over` as of now."""
        return self._stop_markers.over(
            self._clock(), settings.heartbeats.down_time)

    def next_over(self, settings: Settings) -> float | None:
        """Return seconds until the next stopping host is given up, or None."""
        return self._stop_markers.next_over(
            self._clock(), settings.heartbeats.down_time)

    def note_poll(self, settings: Settings) -> bool:
        """Note the end of a peer poll; True if too late to call hosts dead."""
        now = self._clock()
        with self._lock:
            late = self.outages.overdue(now, settings.heartbeats)
            self.outages = self.outages.polled(now, settings.heartbeats)
        return late


def services(cloud: Cloud, settings: Settings,
             hosts: abc.Iterable[str] = ()) -> Services:
    """Read the services, with one request more for each disabled host."""
    return with_services_of(
        cloud, tuple(cloud.services()), [settings.host, *hosts])


def judged(known: Services, outages: Outages | None, memory: AuditState,
           settings: Settings, starting: bool = False
          ) -> tuple[Services, peers.View]:
    """Return the services as their heartbeats say, and the view of them."""
    label = settings.partition.label
    if outages:
        known = outages.judged(known, host_key(settings.host))
    return known, peers.view(
        known, settings.partition, settings.host,
        other_partition_hosts=(
            host for host, theirs in memory.partition_labels.items()
            if theirs != label),
        starting=starting, over=memory.over)


def read_peers(cloud: Cloud, memory: AuditState, settings: Settings,
               outages: Outages, hosts: abc.Iterable[str],
               before: ring.Preferences | None = None,
               starting: bool = False, zones: bool = True) -> Peers:
    """Read the compute services and make the hash ring of the members.

    :param zones: read the zones, too; else the known ones count.
    """
    known, view = judged(services(cloud, settings, hosts), outages, memory,
                         settings, starting)
    host_aggregates = (_host_aggregates(cloud, memory) if zones
                       else memory.host_aggregates)
    zone_of = peers.host_zones(host_aggregates.aggregates)
    preferences = ring.refreshed(
        before, {host: zone_of.get(host) for host in view.members},
        settings.points, settings.move_across_zones)
    return Peers(known, view, preferences, host_aggregates, outages)


def _host_aggregates(cloud: Cloud, memory: AuditState
                    ) -> peers.KnownAggregates:
    known = memory.host_aggregates
    try:
        return known.after(cloud.aggregates())
    except Exception as exc:
        if not known.read:
            # nova logs only that the driver is not ready.
            LOG.warning('Nothing is audited until the host aggregates can be '
                        'read: %s', exc)
            raise
        LOG.debug('The last known host aggregates are used: %s', exc)
        return known


def with_services_of(cloud: Cloud, known: Services, hosts: abc.Iterable[str]
                     ) -> Services:
    """Add services that nova did not list: disabled, or without nodes."""
    keys = {service.key for service in known}
    missing = {host_key(host): host for host in hosts
               if host_key(host) not in keys}
    found = [cloud.service(host) for host in missing.values()]
    return known + tuple(
        # Only this driver writes a stop marker.
        dataclasses.replace(service, ironic=bool(service.stop_marker))
        for service in found if service)
