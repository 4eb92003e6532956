# SPDX-License-Identifier: Apache-2.0

"""The stop marker: how a compute service says that it is about to stop.

A service that is told to stop goes on with heartbeats while it finishes its
work, for minutes since nova 33. So it writes a marker into the reason for
which nova has it disabled. Other services treat it as enabled, since most come
back within seconds and their nodes should stay. After ``service_down_time`` it
is no member any more.

nova's API overwrites that reason whenever a service is enabled or disabled
(nova.api.openstack.compute.services). So while the marker is there, no
operator has changed anything since.
"""

from collections.abc import Mapping
import dataclasses
import datetime
import types

from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import HostKey

_BEGINNING = 'nova-ironic-multihost: stopping since '
_END = ('. Its next start enables it again. To keep it disabled disable it '
        'with a reason of your own.')
_TIME = '%Y-%m-%dT%H:%M:%SZ'


def text(moment: datetime.datetime) -> str:
    """Return the stop marker of this moment.

    :param moment: in UTC. It is for people to read, and makes each marker of a
        host different; clocks of hosts differ.
    """
    return f'{_BEGINNING}{moment:{_TIME}}{_END}'


def said(disabled_reason: str | None) -> str:
    """Return the stop marker in a disabled reason; '' if there is none."""
    reason = disabled_reason or ''
    return reason if reason.startswith(_BEGINNING) else ''


def said_at(words: str) -> datetime.datetime | None:
    """Return the UTC time in a stop marker; None if it cannot be read.

    By the clock of the host that wrote it.
    """
    try:
        return datetime.datetime.strptime(
            words.removeprefix(_BEGINNING).removesuffix(_END), _TIME
        ).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def may_close(view: peers.View, zones: Mapping[HostKey, str | None]
              ) -> bool:
    """Whether a stopping host may have no more builds sent to it.

    Only if at least half of the hosts that could get the builds stay open.
    When all are restarted together builds wait in the queues; a cloud without
    an enabled compute service sets each of them to ERROR.

    :param view: this host has written its stop marker.
    :param zones: member -> its explicit availability zone or None.
    """
    zone = zones.get(view.host)
    others = [host for host in view.members
              if host != view.host and zones.get(host) == zone]
    still_open = sum(not view.services[host].stop_marker for host in others)
    return bool(others) and 2 * still_open >= 1 + len(others)


@dataclasses.dataclass(frozen=True)
class StopMarkers:
    """Since when this host has seen the stop markers of others.

    :param heard: host -> (its stop marker, when it was seen first, in seconds
        of a monotonic clock of this host).
    """

    heard: Mapping[HostKey, tuple[str, float]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))

    def after(self, view: peers.View, now: float) -> 'StopMarkers':
        """Return the stop markers after one more poll.

        :param view: result of the poll.
        :param now: time of the poll.
        """
        heard = {}
        for host, service in view.services.items():
            if service.stop_marker and host != view.host:
                words, since = self.heard.get(host, ('', now))
                heard[host] = (service.stop_marker,
                               since if words == service.stop_marker else now)
        return StopMarkers(types.MappingProxyType(heard))

    def over(self, now: float, down_time: float
             ) -> frozenset[tuple[HostKey, str]]:
        """Return the (host, stop marker) that are too old.

        :param now: this moment.
        :param down_time: seconds for which a stopping host may be away,
            ``service_down_time``.
        """
        return frozenset(
            (host, words) for host, (words, since) in self.heard.items()
            if now - since >= down_time)

    def next_over(self, now: float, down_time: float) -> float | None:
        """Return the seconds until the next marker is too old, or None."""
        return min((since + down_time - now
                    for _, since in self.heard.values()
                    if now - since < down_time), default=None)
