# SPDX-License-Identifier: Apache-2.0

"""Which errors a retry can cure; operations that wait for Ironic.

nova would try other nodes of the same Ironic at once and use up all attempts
of a build. The options ``[ironic]connect_retries`` and ``status_code_retries``
do not fit: they let callers retry that must not wait, and the latter repeats
conflicts, which nova's driver handles.
"""

from __future__ import annotations

from collections import abc
import contextlib
import functools
from http import HTTPStatus
import threading
import types
import typing

from keystoneauth1 import exceptions as ks_exception
from nova import exception
from openstack.baremetal.v1 import _proxy
from openstack import exceptions
from oslo_log import log as logging
import oslo_messaging as messaging
import tenacity
from urllib3 import exceptions as urllib3_exception

from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Statuses of a proxy without an API behind it, or with no free worker.
NOBODY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)

#: Types of RemoteError that a retry does not change.
FOR_GOOD = frozenset({
    'AttributeError', 'DBConstraintError', 'DBDataError', 'DBDuplicateEntry',
    'DBInvalidUnicodeParameter', 'DBNonExistentTable', 'DBReferenceError',
    'KeyError', 'TypeError', 'ValueError'})

#: Types of RemoteError while the database is down or read-only.
DATABASE_AWAY = frozenset({'DBConnectionError', 'OperationalError'})

#: Seconds between two attempts.
PAUSE = 5

#: Target of a request -> provision states that show that it was accepted.
ACCEPTED = {
    'active': takeover.DEPLOYING | {'active'},
    'rebuild': takeover.DEPLOYING,
    'deleted': frozenset({'deleting', 'cleaning', 'clean wait', 'clean hold',
                          'clean failed', 'available'}),
}

#: Requests that must not be carried out twice.
ONCE = ('inject_nmi_to_node', 'set_node_power_state')


def away(exc: BaseException) -> bool:
    """Whether an API is unavailable; it may have carried out the request."""
    return isinstance(exc, (
        ks_exception.RetriableConnectionFailure,
        # nova.utils.get_sdk_adapter
        exception.ServiceUnavailable)) or _status(exc) in NOBODY


def not_taken(exc: BaseException) -> bool:
    """Whether an API has not even received a request."""
    return _status(exc) == HTTPStatus.SERVICE_UNAVAILABLE or any(
        isinstance(one, urllib3_exception.NewConnectionError)
        for one in chain(exc))


def for_good(exc: BaseException) -> bool:
    """Whether the conductor would fail in the same way again."""
    return any(isinstance(one, messaging.RemoteError)
               and one.exc_type in FOR_GOOD for one in chain(exc))


def passing(exc: BaseException, again: bool = False) -> bool:
    """Whether an error or one of its causes may be gone at a retry.

    :param again: it has failed before. Then only a missing answer counts, or
        any error of placement, as nova does not tell which.
    """
    if isinstance(exc, (exception.InstanceNotFound,
                        exception.InstanceUpdateConflict)):
        # Final, even with another error as its cause.
        return False
    return any(
        _no_answer(one) or not again and (
            # Ironic is busy with the node.
            _status(one) == HTTPStatus.CONFLICT
            or _status(one) >= HTTPStatus.INTERNAL_SERVER_ERROR
            # An error that the conductor did not expect, such as oslo.db's.
            or isinstance(one, messaging.RemoteError)
            and one.exc_type not in FOR_GOOD)
        for one in chain(exc))


def _no_answer(exc: BaseException) -> bool:
    """Whether an API, the conductor or placement does not answer."""
    return (
        away(exc) or _status(exc) == HTTPStatus.GATEWAY_TIMEOUT
        or isinstance(exc, (
            messaging.MessagingTimeout, messaging.MessageDeliveryFailure,
            exception.AllocationDeleteFailed))
        or isinstance(exc, messaging.RemoteError)
        and exc.exc_type in DATABASE_AWAY)


def _status(exc: BaseException) -> int:
    """Return the HTTP status of an error, 0 if it has none."""
    # Of openstacksdk and Neutron's client; of keystoneauth.
    for name in 'status_code', 'http_status':
        if isinstance(status := getattr(exc, name, None), int):
            return status
    return 0


def chain(exc: BaseException | None) -> abc.Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__


class IronicRetry:
    """Decides whether a thread waits for Ironic, for up to ``seconds()``.

    Audits and peer polls do not wait: they are repeated, and nova audits under
    a lock that builds need. Nor does a service that starts, as its peers would
    take it for dead, or an operation with an RPC caller that waits for less
    time.
    """

    def __init__(self, seconds: abc.Callable[[], float],
                 may_wait: abc.Callable[[], bool]) -> None:
        self.seconds = seconds
        self._may_wait = may_wait
        self._thread = threading.local()

    @contextlib.contextmanager
    def none(self) -> abc.Iterator[None]:
        """Forbid this thread to wait."""
        before = self._no_wait
        self._thread.no_wait = True
        try:
            yield
        finally:
            self._thread.no_wait = before

    @property
    def _no_wait(self):
        return getattr(self._thread, 'no_wait', False)

    def connection(self, connect: abc.Callable[[], typing.Any]) -> typing.Any:
        """Return a connection to Ironic that waits if this thread may."""
        if self._no_wait or not self._may_wait():
            return connect()
        return RetryingConnection(connect, self)


class RetryingConnection:
    """A connection to Ironic with methods that retry."""

    def __init__(self, connect: abc.Callable[[], typing.Any],
                 retry: IronicRetry) -> None:
        self._connect = connect
        self._retry = retry

    def __getattr__(self, name):
        if callable(getattr(_proxy.Proxy, name, None)):
            return functools.partial(self._call, name)
        return getattr(self._connect(), name)

    def _call(self, name, *args, **kwargs):
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                not_taken if name in ONCE else away),
            wait=tenacity.wait_fixed(PAUSE),
            stop=lambda state: tenacity.stop_after_delay(
                self._retry.seconds())(state),
            before_sleep=functools.partial(self._warn, name),
            reraise=True)
        return retrying(lambda: self._call_once(
            name, retrying.statistics['attempt_number'] > 1, *args, **kwargs))

    def _warn(self, name, state):
        if state.attempt_number == 1:
            LOG.warning(
                'Ironic does not answer, and %(name)s waits for it, for up '
                'to %(seconds)d s: %(exc)s. If that lasts: does the Ironic '
                'API run, and does [ironic] of nova.conf lead to it?',
                {'name': name, 'seconds': self._retry.seconds(),
                 'exc': state.outcome.exception()})

    def _call_once(self, name, again, *args, **kwargs):
        connection = self._connect()
        try:
            found = getattr(connection, name)(*args, **kwargs)
        except (exceptions.BadRequestException, exceptions.ConflictException):
            # The request before may have succeeded, and its answer be lost.
            if again and name == 'set_node_provision_state' and _is_accepted(
                    connection, *args):
                return None
            raise
        # Read all pages here, so that an error of any page is retried.
        return (iter(list(found)) if isinstance(found, types.GeneratorType)
                else found)


def _is_accepted(connection, node_id, target, *args):
    return connection.get_node(
        node_id).provision_state in ACCEPTED.get(target, ())
