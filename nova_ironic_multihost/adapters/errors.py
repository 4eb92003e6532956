# SPDX-License-Identifier: Apache-2.0

"""What an error says of whoever was asked: is it away, for a while?"""

from collections.abc import Iterator
from http import HTTPStatus

from keystoneauth1 import exceptions as ks_exception
from nova import exception
import oslo_messaging as messaging
from urllib3 import exceptions as urllib3_exception

#: Status of an answer that does not come from the API itself: a proxy finds
#: nobody behind it, or the API has no worker for it.
NOBODY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE)

#: What an error of the conductor is called that is the same the next time:
#: oslo.db's of what is to be written, and Python's own.
FOR_GOOD = frozenset({
    'AttributeError', 'DBConstraintError', 'DBDataError', 'DBDuplicateEntry',
    'DBInvalidUnicodeParameter', 'DBNonExistentTable', 'DBReferenceError',
    'KeyError', 'TypeError', 'ValueError'})

#: What its error is called while its database is away, or takes no writes.
DATABASE_AWAY = frozenset({'DBConnectionError', 'OperationalError'})


def away(exc: BaseException) -> bool:
    """Whether an API is away: the same request may be answered later.

    It may have been carried out, if nothing but the answer was lost.
    """
    return isinstance(exc, (
        ks_exception.RetriableConnectionFailure,
        # nova.utils.get_sdk_adapter
        exception.ServiceUnavailable)) or _status(exc) in NOBODY


def not_taken(exc: BaseException) -> bool:
    """Whether a request has not even been taken by an API."""
    return _status(exc) == HTTPStatus.SERVICE_UNAVAILABLE or any(
        isinstance(one, urllib3_exception.NewConnectionError)
        for one in chain(exc))


def for_good(exc: BaseException) -> bool:
    """Whether the conductor has failed in a way that is the same again."""
    return any(isinstance(one, messaging.RemoteError)
               and one.exc_type in FOR_GOOD for one in chain(exc))


def passing(exc: BaseException, again: bool = False) -> bool:
    """Whether what has failed may succeed another time.

    Some API, the conductor or its database has not answered or not as it
    should, or Ironic is busy with the node.

    :param exc: or an error that it was raised for.
    :param again: it has failed before; then it is no chance any more, and may
        succeed only if nobody has answered (or placement has an error: of
        that nova says no more than that it has).
    """
    if isinstance(exc, (exception.InstanceNotFound,
                        exception.InstanceUpdateConflict)):
        # Whatever has failed before it.
        return False
    return any(
        _silent(one) or not again and (
            _status(one) == HTTPStatus.CONFLICT
            or _status(one) >= HTTPStatus.INTERNAL_SERVER_ERROR
            # An error that the conductor did not expect: oslo.db's are.
            or isinstance(one, messaging.RemoteError)
            and one.exc_type not in FOR_GOOD)
        for one in chain(exc))


def _silent(exc: BaseException) -> bool:
    """Whether somebody does not answer: an API, the conductor, placement."""
    return (
        away(exc) or _status(exc) == HTTPStatus.GATEWAY_TIMEOUT
        or isinstance(exc, (
            messaging.MessagingTimeout, messaging.MessageDeliveryFailure,
            exception.AllocationDeleteFailed))
        or isinstance(exc, messaging.RemoteError)
        and exc.exc_type in DATABASE_AWAY)


def _status(exc: BaseException) -> int:
    """Return the HTTP status of an error, 0 if it has none.

    That of openstacksdk and of Neutron's client has one name for it,
    keystoneauth another.
    """
    for name in 'status_code', 'http_status':
        if isinstance(status := getattr(exc, name, None), int):
            return status
    return 0


def chain(exc: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and those that it was raised for."""
    seen: set[int] = set()
    while exc is not None and id(exc) not in seen:
        seen.add(id(exc))
        yield exc
        exc = exc.__cause__ or exc.__context__
