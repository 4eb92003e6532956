# SPDX-License-Identifier: Apache-2.0

"""Tells nova that a compute service is dead, for whoever has seen to it.

For commands and for tools that fence. nova alone is asked. What is told twice,
or by two at the same moment, is what is told once.
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

#: Looks that show at least whether heartbeats go on.
LOOKS = 3


class TooEarly(Exception):
    """nova does not see that it is dead; a sentence or two, the remedy."""


class NotYet(TooEarly):
    """The same, and it may soon: nova has not heard from it meanwhile."""


def declare(cloud: cloud_client.CloudClient, host: str, sure: bool = False,
            why: str | None = None, patience: float = 0,
            tell: Callable[[Exception], object] = lambda error: None,
            renew: bool = False) -> tuple[cloud_state.Service, bool]:
    """Force a compute service down and disable it, in one request.

    :param host: in any spelling
    :param sure: whether it is off for certain, whatever nova sees
    :param why: added to the reason for which it is disabled
    :param patience: seconds to try again in, while nova does not answer or
        does not see that it is dead. Of one that goes on sending heartbeats
        nobody waits until it is down: it lives, or has come back, and would
        be down for another reason by then
    :param tell: told why it is tried again
    :param renew: whether ``why`` takes the place of that of another fence
    :returns: (it as it was, whether anything had to be changed)
    :raises TooEarly: unless nova calls it down, and another one up
    :raises SurveyError: when nova has not done it, or that is not known
    """
    looks: list[cloud_state.Service] = []

    def attempt() -> tuple[cloud_state.Service, bool]:
        known = cloud.computes(host)
        service = services.named(known, host)
        looks.append(service)
        refused = fencing.refusal(known, service)
        if refused and not sure:
            if fencing.alive(looks):
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

    That is when nova hears from it, or somebody else has unfenced it.

    :param looks: all compute services, at each look
    :param hosts: in any spelling; what is not yielded is not heard of
    """
    seen: dict[HostKey, list[cloud_state.Service]] = {
        host_key(host): [] for host in hosts}
    for known in looks:
        for host in list(seen):
            service = services.named(known, host)
            seen[host].append(service)
            if fencing.alive(seen[host]) or not service.forced_down:
                del seen[host]
                yield service
        if not seen:
            return
