# SPDX-License-Identifier: Apache-2.0

"""The stop marker: a stopping compute service announces that it stops.

A stopping service sends heartbeats for minutes and takes no builds: always
since nova 33, earlier while it waits for its operations. So it writes the
marker as its disabled reason in nova, and disables itself if :func:`may_close`
allows it. Other hosts ignore that it is disabled, as most services are back in
seconds and should keep their nodes. After ``service_down_time`` the service is
no member. The API of nova replaces the reason at each enable and disable
(nova.api.openstack.compute.services): no operator has changed a marked one.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import types

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey

_PREFIX = 'nova-ironic-multihost: stopping since '
_SUFFIX = ('. Its next start enables it again. To keep it disabled disable it '
           'with a reason of your own.')
_TIME = '%Y-%m-%dT%H:%M:%SZ'


def text(moment: datetime.datetime) -> str:
    """Return the marker of a UTC time; each marker of a host is unique."""
    return f'{_PREFIX}{moment:{_TIME}}{_SUFFIX}'


def said(disabled_reason: str | None) -> str:
    """Return the stop marker in a disabled reason, '' if there is none."""
    reason = disabled_reason or ''
    return reason if reason.startswith(_PREFIX) else ''


def said_at(marker: str) -> datetime.datetime | None:
    """Return the UTC time in a stop marker, by its host's clock, or None."""
    try:
        return datetime.datetime.strptime(
            marker.removeprefix(_PREFIX).removesuffix(_SUFFIX), _TIME
        ).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def may_close(view: peers.View, zones: Mapping[HostKey, str | None]
              ) -> bool:
    """Return whether this stopping host should get no more builds."""
    # At least half of its zone must stay open: without an enabled compute
    # service builds end in ERROR; during a common restart they wait in queues.
    zone = zones.get(view.host)
    others = [host for host in view.members
              if host != view.host and zones.get(host) == zone]
    still_open = sum(not view.services[host].stop_marker for host in others)
    return bool(others) and 2 * still_open >= 1 + len(others)


@dataclasses.dataclass(frozen=True)
class StopMarkers:
    """The stop markers of others, and the monotonic time of first sight."""

    heard: Mapping[HostKey, tuple[str, float]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))

    def after(self, view: peers.View, now: float) -> 'StopMarkers':
        """Return the stop markers after another poll."""
        heard = {}
        for host, service in view.services.items():
            if service.stop_marker and host != view.host:
                marker, since = self.heard.get(host, ('', now))
                heard[host] = (service.stop_marker,
                               since if marker == service.stop_marker else now)
        return StopMarkers(types.MappingProxyType(heard))

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
