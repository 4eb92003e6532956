# SPDX-License-Identifier: Apache-2.0

"""What a compute service says when it is told to end: its stop marker.

Pure. Since nova 33 a service that is told to end sends heartbeats for minutes
while it ends, and takes no more builds; earlier ones do so for as long as they
wait for what they are at. So it says that it is about to go, in the reason for
which nova's services table has it disabled, and others treat it as if it were
not disabled: most come back within seconds, and their nodes are to stay. Who
has not come back within ``service_down_time`` since it said so is no member
any more.

nova's API writes that reason whenever a service is enabled or disabled, with
None if there is none (nova.api.openstack.compute.services). So as long as the
stop marker is there no operator has said anything since.
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
    """Return what a service says that is told to end.

    :param moment: this moment in UTC. For people to read, and so that each
        stop marker of a host is another: clocks differ from host to host.
    """
    return f'{_BEGINNING}{moment:{_TIME}}{_END}'


def said(disabled_reason: str | None) -> str:
    """Return the stop marker in a disabled reason; '' if there is none."""
    reason = disabled_reason or ''
    return reason if reason.startswith(_BEGINNING) else ''


def said_at(words: str) -> datetime.datetime | None:
    """Return when a stop marker was said, in UTC; None if that is not legible.

    By the clock of the host that said it.
    """
    try:
        return datetime.datetime.strptime(
            words.removeprefix(_BEGINNING).removesuffix(_END), _TIME
        ).replace(tzinfo=datetime.UTC)
    except ValueError:
        return None


def may_close(view: peers.View, zones: Mapping[HostKey, str | None]
              ) -> bool:
    """Whether no more builds are to be sent to a host that is told to end.

    Only if at least half of those that could have them stay open: of computes
    that are restarted together builds wait in the queues, and a cloud without
    a compute that is enabled sets each of them to ERROR.

    :param view: who is there; this host is told to end, and has said so.
    :param zones: member -> its explicit availability zone or None.
    """
    zone = zones.get(view.host)
    others = [host for host in view.members
              if host != view.host and zones.get(host) == zone]
    still_open = sum(not view.services[host].stop_marker for host in others)
    return bool(others) and 2 * still_open >= 1 + len(others)


@dataclasses.dataclass(frozen=True)
class StopMarkers:
    """Since when others have been heard to write their stop marker.

    :param heard: host -> (its stop marker, when it was heard first, in seconds
        of a monotonic clock of the one that heard it).
    """

    heard: Mapping[HostKey, tuple[str, float]] = dataclasses.field(
        default_factory=lambda: types.MappingProxyType({}))

    def after(self, view: peers.View, now: float) -> 'StopMarkers':
        """Return the stop markers after one more look.

        :param view: what was seen.
        :param now: time of this look.
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
        """Return whose time is over, with what they have said.

        :param now: this moment.
        :param down_time: seconds for which a host that has written its stop
            marker may be away, ``service_down_time``.
        """
        return frozenset(
            (host, words) for host, (words, since) in self.heard.items()
            if now - since >= down_time)

    def next_over(self, now: float, down_time: float) -> float | None:
        """Return the seconds until the time of the next one is over.

        None if there is none.
        """
        return min((since + down_time - now
                    for _, since in self.heard.values()
                    if now - since < down_time), default=None)
