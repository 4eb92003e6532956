# SPDX-License-Identifier: Apache-2.0

"""Changes compute services in nova, as an operator asks for it.

All that is asked for goes to nova in one request, which it writes down at
once: there is no half of it. Whatever is there already is not asked for, so a
command can be given again and again.
"""

from collections.abc import Mapping
import typing

from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules.peers import host_key

# Hosts that are named where somebody has to choose one.
_SHOWN = 20


def named(services: tuple[cloud_state.Service, ...],
          host: str) -> cloud_state.Service:
    """Return the compute service of a host, in any spelling.

    :raises SurveyError: when there is none; says which there are
    """
    found = [s for s in services if s.key == host_key(host)]
    if found:
        # A host that was renamed in case has two: the one that is at work.
        return max(found, key=lambda s: (s.at_work, s.host == host))
    known = sorted(s.host for s in services)
    more = len(known) - _SHOWN
    raise cloud_client.SurveyError(
        f'nova has no compute service on {host}. Name one of those that it '
        f'has: {", ".join(known[:_SHOWN]) or "none"}'
        f'{f" and {more} more" if more > 0 else ""}.')


def expect_bare_metal(cloud: cloud_client.CloudClient,
                      services: tuple[cloud_state.Service, ...],
                      service: cloud_state.Service) -> None:
    """Refuse a compute service that is known to have virtual machines.

    :param services: as for :func:`has_virtual_machines`
    :raises SurveyError: if it has some
    """
    if has_virtual_machines(cloud, services, service):
        raise cloud_client.SurveyError(
            f'{service.host} has virtual machines: the commands here are for '
            'compute services of bare metal. Evacuate or migrate its servers '
            'instead.')


def has_virtual_machines(cloud: cloud_client.CloudClient,
                         services: tuple[cloud_state.Service, ...],
                         service: cloud_state.Service) -> bool:
    """Whether a compute service is known to have some.

    One that nobody knows counts as bare metal: an operator has named it.

    :param services: all; while nova does not reach one of them nobody asks,
        as nova would wait a minute before it answers
    """
    try:
        return (all(one.reached for one in services)
                and cloud.bare_metal(service.host) is False)
    except cloud_client.SurveyError:
        return False


def change(cloud: cloud_client.CloudClient, service: cloud_state.Service,
           body: Mapping[str, typing.Any]) -> None:
    """Have nova change a compute service; nothing is asked for with {}.

    :param cloud: asks nova
    :param service: as it was seen
    :param body: as for :meth:`.cloud_client.CloudClient.change`
    :raises SurveyError: when nova has not done it, or that is not known;
        says what state the compute service is in
    """
    if not body:
        return
    try:
        cloud.change(service, dict(body))
    except cloud_client.SurveyError as error:
        # nova writes it down first and tells the compute service then, which
        # a proxy may not wait for.
        now = _look(cloud, service, error)
        if not _has(now, body):
            raise type(error)(
                f'{error} {service.host} is {state(now)}.') from error


def _look(cloud: cloud_client.CloudClient, service: cloud_state.Service,
          error: cloud_client.SurveyError) -> cloud_state.Service:
    try:
        return named(cloud.computes(service.host), service.host)
    except cloud_client.SurveyError as another:
        raise type(another)(
            f'{error} Whether {service.host} is changed is not known: '
            f'{another} Then give the same command again.') from another


def _has(service: cloud_state.Service,
         body: Mapping[str, typing.Any]) -> bool:
    return (
        body.get('forced_down', service.forced_down) == service.forced_down
        and body.get('disabled_reason', service.reason) == service.reason
        and ('status' not in body
             or service.disabled == (body['status'] == 'disabled')))


def state(service: cloud_state.Service) -> str:
    """Say what nova has: enabled and up, forced down and disabled, ..."""
    if service.forced_down:
        return ('forced down and disabled' if service.disabled
                else 'forced down and not disabled')
    return (f'{"disabled" if service.disabled else "enabled"} and '
            f'{"up" if service.up else "down"}')
