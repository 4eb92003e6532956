# SPDX-License-Identifier: Apache-2.0

"""Find compute services, and read them until something is so."""

from collections import abc
import contextlib
import dataclasses
import time
import typing

from nova_ironic_multihost.client import arguments
from nova_ironic_multihost.client import cloud_client
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.rules.peers import host_key

#: A compute service that runs sends a heartbeat within so many seconds: nova's
#: default report_interval and 5.
HEARTBEAT = 15.0


def named(services: tuple[cloud_state.Service, ...],
          host: str) -> cloud_state.Service:
    """Return the compute service of a host, in any spelling.

    :raises CloudError: when there is none; the message lists the others
    """
    found = cloud_state.by_host(services).get(host_key(host))
    if found:
        return found
    known = sorted(s.host for s in services)
    raise cloud_state.CloudError(
        f'nova has no compute service on {host}. Name one of those that it '
        f'has: {arguments.some(known, 20) or "none"}.')


def with_heartbeats(cloud: cloud_client.CloudClient,
                    seen: cloud_state.CloudState) -> cloud_state.CloudState:
    """Find the compute services that are forced down and send heartbeats.

    nova dates a heartbeat and a fence alike. A service that was dated just
    now is read until its date changes again, or is too old for a heartbeat.
    """
    doubtful = {one.id: one for one in seen.services
                if one.forced_down and one.seen is not None
                and seen.at - one.seen < HEARTBEAT}
    if not doubtful:
        return seen
    alive: set[str] = set()
    with contextlib.suppress(cloud_state.CloudError):
        for _, known in looks(
                cloud.computes, HEARTBEAT - seen.at
                + max(one.seen or 0 for one in doubtful.values())):
            # Only a heartbeat may lie between both reads.
            alive.update(
                now.id for now in known
                if (before := doubtful.get(now.id)) and before.seen != now.seen
                and before == dataclasses.replace(
                    now, seen=before.seen, mapped=before.mapped))
            if len(alive) == len(doubtful):
                break
    return dataclasses.replace(seen, services=tuple(
        dataclasses.replace(one, alive=one.id in alive)
        for one in seen.services))


def has_virtual_machines(cloud: cloud_client.CloudClient,
                         services: tuple[cloud_state.Service, ...],
                         service: cloud_state.Service) -> bool:
    """Return whether a compute service is known to have virtual machines.

    One without servers counts as bare metal.

    :param services: all. If nova does not reach the cell of one, its answer
        would take a minute, so it is not asked
    """
    with contextlib.suppress(cloud_state.CloudError):
        return (all(one.reached for one in services)
                and cloud.bare_metal(service.host) is False)
    return False


def expect_bare_metal(cloud: cloud_client.CloudClient,
                      services: tuple[cloud_state.Service, ...],
                      service: cloud_state.Service) -> None:
    """Raise CloudError if :func:`has_virtual_machines` is true."""
    if has_virtual_machines(cloud, services, service):
        raise cloud_state.CloudError(
            f'{service.host} has virtual machines: the commands here are for '
            'compute services of bare metal. Evacuate or migrate its servers '
            'instead.')


_Seen = typing.TypeVar('_Seen')

#: The least seconds between two reads.
PAUSE = 2.0


def looks(read: abc.Callable[[], _Seen], seconds: float,
          clock: abc.Callable[[], float] = time.monotonic,
          sleep: abc.Callable[[float], object] = time.sleep,
          least: int = 1, passing: tuple[type[Exception], ...] = (),
          tell: abc.Callable[[Exception], object] = lambda error: None,
          ) -> abc.Iterator[tuple[float, _Seen]]:
    """Yield (seconds since the beginning, result of a read) repeatedly.

    :param read: reads once
    :param seconds: at most; 0 reads once
    :param least: the least number of reads, even if the time is over
    :param passing: transient errors, after which it reads again
    :param tell: called with such an error, unless its text is that of the
        error before
    :raises Exception: that of the last read
    """
    began = clock()
    told = ''
    while True:
        read_began = clock()
        failure = None
        try:
            seen = read()
        except passing as error:
            failure = error
        now = clock()
        if not failure:
            yield now - began, seen
        least -= 1
        # Half of the time at most is spent on requests.
        pause = max(PAUSE, now - read_began)
        left = began + seconds - clock()
        if left <= 0 and least <= 0:
            if failure:
                raise failure
            return
        if failure and told != str(failure):
            told = str(failure)
            tell(failure)
        sleep(min(left, pause) if left > 0 else PAUSE)


def patiently(act: abc.Callable[[], _Seen], seconds: float,
              passing: tuple[type[Exception], ...],
              tell: abc.Callable[[Exception], object] = lambda error: None,
              ) -> _Seen:
    """Call ``act`` until it succeeds or the time is over; return its result.

    The parameters are those of :func:`looks`.
    """
    return next(looks(act, seconds, passing=passing, tell=tell))[1]
