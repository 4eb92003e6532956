# SPDX-License-Identifier: Apache-2.0

"""Classify errors: is a service unavailable, can a retry help?"""

from collections.abc import Iterator
from http import HTTPStatus

from keystoneauth1 import exceptions as ks_exception
from nova import exception
import oslo_messaging as messaging
from urllib3 import exceptions as urllib3_exception

#: Statuses of a proxy without an API behind it, or with no free worker.
NOBODY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)

#: Types of RemoteError that a retry does not change.
FOR_GOOD = frozenset({
    'AttributeError', 'DBConstraintError', 'DBDataError', 'DBDuplicateEntry',
    'DBInvalidUnicodeParameter', 'DBNonExistentTable', 'DBReferenceError',
    'KeyError', 'TypeError', 'ValueError'})

#: Types of RemoteError while the database is down or read-only.
DATABASE_AWAY = frozenset({'DBConnectionError', 'OperationalError'})


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


def chain(exc: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__
