# SPDX-License-Identifier: Apache-2.0

"""Fence a compute service: may it be fenced, and is it alive?

For the fence command and for tools that fence. A fenced compute service is
forced down and disabled in nova. Forced down: it is dead for certain, so
others take over its servers (:mod:`.rules.takeover`). Disabled: monitoring
tools start one again that is enabled and forced down.
"""

from collections import abc
import typing

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import services
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey

#: The beginning of nova's disabled_reason of a fenced compute service.
REASON = 'nova-ironic-multihost: fenced'


def refusal(known: tuple[cloud_state.Service, ...],
            service: cloud_state.Service) -> str | None:
    """Return why a compute service may not be fenced, None if it may."""
    if service.forced_down:
        return None
    if service.up:
        return (f'{service.host} is up: nova hears from it. Power it off, or '
                'end nova-compute there; nova calls it down after '
                '[DEFAULT]service_down_time, 60 s as a rule')
    return outage(known)


def outage(known: tuple[cloud_state.Service, ...]) -> str | None:
    """Return the sentence for a cloud without a live compute service."""
    if any(s.up for s in known):
        return None
    return ('No compute service is up, so nobody could take anything over. '
            'Look at RabbitMQ, nova-conductor and the database first: when '
            'one of them is down, each compute service looks dead and none is')


def missed(service: cloud_state.Service) -> bool:
    """Return whether nova misses a compute service that should run."""
    return service.reached and not (
        service.up or service.disabled or service.forced_down)


def not_alone(known: tuple[cloud_state.Service, ...],
              service: cloud_state.Service, at: float,
              window: float) -> str | None:
    """Return why a silent host is not the only dead one, None if it is.

    For tools that power a host off for its silence alone: several silent
    hosts mean an outage of nova rather than dead hosts. Beside a single other
    compute service that one has to be up.

    :param at: the time of ``known`` by nova's clock
    :param window: seconds in which one host may be fenced
    """
    unknown = sorted(other.host for other in known if not other.reached)
    if unknown:
        return (f'nova misses {service.host}, and does not reach the database '
                f'of the cell of {", ".join(unknown)}. Mend that first')
    if service.seen is None:
        return (f'nova has never had a heartbeat of {service.host}. Start '
                'nova-compute there, or delete its compute service')
    others = [other for key, other in cloud_state.by_host(known).items()
              if key != service.key]
    up = sum(other.up for other in others)
    silent = sorted(other.host for other in others if missed(other))
    if silent or 2 * up <= len(others):
        told = f', and it misses {", ".join(silent)}' if silent else ''
        return (f'nova misses {service.host}, and not it alone: {up} of '
                f'{len(others)} others are up{told}. Look at RabbitMQ, '
                'nova-conductor, the network and the clocks, and power off '
                'only hosts that are dead')
    # A fence is the last write to the row of a dead compute service.
    fenced = sorted(other.host for other in others if other.forced_down
                    and (other.seen is None or at - other.seen < window))
    if fenced:
        return (f'nova misses {service.host}, and {", ".join(fenced)} was '
                f'fenced within {window:.0f} s, or is fenced and alive. Look '
                'for the cause that ends them; unfence the hosts that are '
                'back')
    return None


def wanted(service: cloud_state.Service,
           why: str | None = None,
           renew: bool = False) -> dict[str, typing.Any]:
    """Return the request to nova that fences it, {} if it is fenced.

    If an operator has disabled it, the operator's reason stays.

    :param why: added to the reason
    :param renew: replace the reason of an earlier fence
    """
    # nova stores 255 characters.
    reason = (f'{REASON}: {why}' if why else REASON)[:255]
    body: dict[str, typing.Any] = {}
    if not service.forced_down:
        body['forced_down'] = True
    # With a stop marker it would enable itself at its next start.
    if not service.disabled or service.stop_marker or (
            renew and service.reason.startswith(REASON)
            and service.reason != reason):
        body['status'] = 'disabled'
        body['disabled_reason'] = reason
    return body


def unwanted(service: cloud_state.Service) -> dict[str, typing.Any]:
    """Return the request to nova that ends a fence, {} without a fence.

    It stays disabled if something other than a fence has disabled it.
    """
    body: dict[str, typing.Any] = {}
    if service.forced_down:
        body['forced_down'] = False
    if service.disabled and service.reason.startswith(REASON):
        body['status'] = 'enabled'
    return body


def alive(looks: abc.Sequence[cloud_state.Service]) -> bool:
    """Return whether a compute service sends heartbeats.

    ``seen`` changes with every write to the row, also those of operators. So
    two changes are needed while the operators' settings stay the same.
    """
    return len({look.seen for look in looks if (
        look.forced_down, look.disabled, look.reason) == (
            looks[-1].forced_down, looks[-1].disabled, looks[-1].reason)}) > 2


#: The least number of reads that can show heartbeats.
LOOKS = 3


class TooEarly(Exception):
    """nova does not report it as dead yet; the message names the remedy."""


def declare(cloud: cloud_client.CloudClient, host: str, sure: bool = False,
            why: str | None = None, patience: float = 0,
            tell: abc.Callable[[Exception], object] = lambda error: None,
            renew: bool = False) -> tuple[cloud_state.Service, bool]:
    """Force a compute service down and disable it, in one request.

    :param sure: it is off for certain, even if nova reports it as up
    :param why: added to the disabled_reason
    :param patience: seconds to retry while nova does not answer or does not
        report it as dead. New heartbeats end the retries: it is alive
    :param tell: called with the error before a retry
    :param renew: ``why`` replaces the reason of an earlier fence
    :returns: (the service before the change, whether it was changed)
    :raises TooEarly: nova reports it as up, or no other one as up
    :raises CloudError: it is alive, nova has not done it, or that is not known
    """
    reads: list[cloud_state.Service] = []

    def attempt() -> tuple[cloud_state.Service, bool]:
        known = cloud.computes(host)
        service = services.named(known, host)
        reads.append(service)
        refused = refusal(known, service)
        if refused and not sure:
            if alive(reads):
                raise cloud_state.CloudError(
                    f'{refused}. Its heartbeats go on coming: it is ALIVE, '
                    'and nobody waits for it to die.')
            raise TooEarly(f'{refused}.')
        body = wanted(service, why, renew)
        if body:
            services.expect_bare_metal(cloud, known, service)
        cloud.change(service, body)
        return service, bool(body)

    return services.patiently(
        attempt, patience, (cloud_state.Unanswered, TooEarly), tell)


def returned(looks: abc.Iterable[tuple[cloud_state.Service, ...]],
             hosts: abc.Iterable[str]) -> abc.Iterator[cloud_state.Service]:
    """Yield each compute service as soon as it may be unfenced.

    That is when it sends heartbeats, or is not forced down any more.

    :param looks: all compute services, as read several times
    """
    reads: dict[HostKey, list[cloud_state.Service]] = {
        host_key(host): [] for host in hosts}
    for known in looks:
        for host in list(reads):
            service = services.named(known, host)
            reads[host].append(service)
            if alive(reads[host]) or not service.forced_down:
                del reads[host]
                yield service
        if not reads:
            return
