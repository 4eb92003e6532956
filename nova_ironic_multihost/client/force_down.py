# SPDX-License-Identifier: Apache-2.0

"""Force a compute service down in nova.

For the fence command and for tools that fence. It calls nova only. Repeated
and concurrent calls do no harm.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import polling
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

#: The least number of reads that can show heartbeats.
LOOKS = 3


class TooEarly(Exception):
    """nova does not report it as dead; the message names the remedy."""


class NotYet(TooEarly):
    """nova does not report it as dead yet, but has had no heartbeat since."""


def declare(cloud: cloud_client.CloudClient, host: str, sure: bool = False,
            why: str | None = None, patience: float = 0,
            tell: Callable[[Exception], object] = lambda error: None,
            renew: bool = False) -> tuple[cloud_state.Service, bool]:
    """Force a compute service down and disable it, in one request.

    :param host: in any spelling
    :param sure: it is off for certain, even if nova reports it as up
    :param why: added to the disabled_reason
    :param patience: seconds to retry while nova does not answer or does not
        report it as dead. New heartbeats end the retries: it is alive
    :param tell: called with the error before a retry
    :param renew: ``why`` replaces the reason of an earlier fence
    :returns: (the service before the change, whether it was changed)
    :raises TooEarly: nova reports it as up, or no other one as up
    :raises SurveyError: nova has not done it, or that is not known
    """
    reads: list[cloud_state.Service] = []

    def attempt() -> tuple[cloud_state.Service, bool]:
        known = cloud.computes(host)
        service = services.named(known, host)
        reads.append(service)
        refused = fencing.refusal(known, service)
        if refused and not sure:
            if fencing.alive(reads):
                raise TooEarly(f'{refused}. Its heartbeats go on coming: it '
                               'is ALIVE, and nobody waits for it to die.')
            raise NotYet(f'{refused}.')
        body = fencing.wanted(service, why, renew)
        if body:
            services.expect_bare_metal(cloud, known, service)
        services.change(cloud, service, body)
        return service, bool(body)

    return polling.patiently(
        attempt, patience, (cloud_client.Unanswered, NotYet), tell)


def returned(looks: Iterable[tuple[cloud_state.Service, ...]],
             hosts: Iterable[str]) -> Iterator[cloud_state.Service]:
    """Yield each compute service as soon as it may be unfenced.

    That is when it sends heartbeats, or is not forced down any more. The
    others are not yielded.

    :param looks: all compute services, as read several times
    :param hosts: in any spelling
    """
    reads: dict[HostKey, list[cloud_state.Service]] = {
        host_key(host): [] for host in hosts}
    for known in looks:
        for host in list(reads):
            service = services.named(known, host)
            reads[host].append(service)
            if fencing.alive(reads[host]) or not service.forced_down:
                del reads[host]
                yield service
        if not reads:
            return
