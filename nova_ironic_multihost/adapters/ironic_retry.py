# SPDX-License-Identifier: Apache-2.0

"""Operations wait while Ironic is away.

Another node is no remedy, as it is one of the same Ironic. nova would try the
next one at once, and use up all attempts of a build within seconds.

openstacksdk could repeat requests itself (``[ironic]connect_retries``,
``status_code_retries``), but it repeats for all that ask, those who had better
give up included; and the latter for each conflict, too, which nova's driver
meets in the normal course of things and knows how to answer.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import threading
import time
import types
import typing

from openstack.baremetal.v1 import _proxy
from openstack import exceptions
from oslo_log import log as logging
import tenacity

from nova_ironic_multihost.adapters import errors
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Seconds between two requests while Ironic is away.
PAUSE = 5

#: Target of a request -> provision states of a node that has accepted it.
ACCEPTED = {
    'active': takeover.DEPLOYING | {'active'},
    'rebuild': takeover.DEPLOYING,
    'deleted': frozenset({'deleting', 'cleaning', 'clean wait', 'clean hold',
                          'clean failed', 'available'}),
}

#: Requests that make a difference when they are made twice.
ONCE = ('inject_nmi_to_node', 'set_node_power_state')


class IronicRetry:
    """Who waits for Ironic, and for how long.

    Audits and looks do not: they are repeated in any case, what they have read
    gets old, and nova audits a node under a lock that all builds want. Nor
    does anybody before the service has started, as others would take it for
    dead meanwhile, or whose sender does not wait as long.

    :param seconds: returns for how many seconds at most.
    :param may_wait: returns whether this thread may wait.
    :param clock: monotonic clock, in seconds.
    :param sleep: waits for so many seconds.
    """

    def __init__(self, seconds: Callable[[], float],
                 may_wait: Callable[[], bool],
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        self._seconds = seconds
        self._may_wait = may_wait
        self._clock = clock
        self._sleep = sleep
        self._thread = threading.local()

    @contextlib.contextmanager
    def none(self) -> Iterator[None]:
        """Let this thread not wait."""
        before = self._lost
        self._thread.lost = True
        try:
            yield
        finally:
            self._thread.lost = before

    @property
    def _lost(self):
        return getattr(self._thread, 'lost', False)

    def connection(self, connect: Callable[[], typing.Any]) -> typing.Any:
        """Return a connection to Ironic that waits if this thread may.

        :param connect: returns one that does not.
        """
        if self._lost or not self._may_wait():
            return connect()
        return RetryingConnection(
            connect, self._seconds, self._clock, self._sleep)


class RetryingConnection:
    """A connection to Ironic whose methods wait for an answer.

    :param connect: returns a connection that does not.
    :param seconds: returns for how long each of them waits at most.
    :param clock: monotonic clock, in seconds.
    :param sleep: waits for so many seconds.
    """

    def __init__(self, connect: Callable[[], typing.Any],
                 seconds: Callable[[], float], clock: Callable[[], float],
                 sleep: Callable[[float], None]) -> None:
        self._connect = connect
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep

    def __getattr__(self, name):
        if callable(getattr(_proxy.Proxy, name, None)):
            return functools.partial(self._ask, name)
        return getattr(self._connect(), name)

    def _ask(self, name, *args, **kwargs):
        begun = self._clock()
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                errors.not_taken if name in ONCE else errors.away),
            wait=tenacity.wait_fixed(PAUSE),
            stop=lambda state: self._clock() - begun >= self._seconds(),
            before_sleep=functools.partial(self._warn, name),
            sleep=self._sleep, reraise=True)
        return retrying(lambda: self._ask_once(
            name, retrying.statistics['attempt_number'] > 1, *args, **kwargs))

    def _warn(self, name, state):
        if state.attempt_number == 1:
            LOG.warning(
                'Ironic does not answer, and %(name)s waits for it, for up '
                'to %(seconds)d s: %(exc)s. If that lasts: does the Ironic '
                'API run, and does [ironic] of nova.conf lead to it?',
                {'name': name, 'seconds': self._seconds(),
                 'exc': state.outcome.exception()})

    def _ask_once(self, name, again, *args, **kwargs):
        connection = self._connect()
        try:
            found = getattr(connection, name)(*args, **kwargs)
        except (exceptions.BadRequestException, exceptions.ConflictException):
            # The answer to the request before may have been lost.
            if again and name == 'set_node_provision_state' and _is_accepted(
                    connection, *args):
                return None
            raise
        # What is listed page by page fails page by page.
        return (iter(list(found)) if isinstance(found, types.GeneratorType)
                else found)


def _is_accepted(connection, node_id, target, *args):
    return connection.get_node(
        node_id).provision_state in ACCEPTED.get(target, ())
