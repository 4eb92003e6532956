# SPDX-License-Identifier: Apache-2.0

"""Connections to the APIs, their answers and errors.

Errors of openstacksdk and keystoneauth become a CloudError: its message has
the remedy. openstacksdk is imported when it is used: its import takes more
than a second, and ``--help`` needs none of it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
import contextlib
from email import utils
import time
import typing

if typing.TYPE_CHECKING:
    import openstack

from nova_ironic_multihost.client.cloud_state import CloudError
from nova_ironic_multihost.client.cloud_state import Unanswered

Json: typing.TypeAlias = dict[str, typing.Any]

Connection: typing.TypeAlias = 'openstack.connection.Connection'

#: (to nova and placement, to Ironic).
Connections: typing.TypeAlias = tuple[Connection, Connection]

#: Entries of a page; the default maximum of nova and Ironic.
PAGE = 1000

#: Timeout of a request in seconds, unless clouds.yaml sets another.
PATIENCE = 300.0

#: Clock differences up to so many seconds are ignored: the answer needed
#: time, and its Date header has whole seconds.
SAME_CLOCK = 5.0

# How often a list is read when its marker, the last entry, gets deleted.
_ATTEMPTS = 3

#: HTTP statuses of a busy Keystone. keystoneauth has no exceptions for them
#: before the constraints of nova 34.
_BUSY = frozenset({408, 429})

# HTTP status -> error; None for all others.
_ERRORS = {
    401: '{name} does not accept the token of this account. Look at the '
         'service user of its keystone_authtoken.',
    403: '{name} forbids this account {path}. {remedy}',
    406: '{name} is too old: it does not know microversion {microversion} of '
         'its API, which {path} is asked with. Upgrade it, or look at the '
         'endpoint in the catalog.',
    None: '{name} answered {path} with HTTP {status}{why}',
}

#: Remedies for HTTP 403.
AS_ADMIN = ('Ask with an account that has the role admin in a project: '
            '--os-cloud NAME, or OS_CLOUD.')
AS_SYSTEM = ('Ask with an account of system scope (system_scope: all in '
             'clouds.yaml): --os-baremetal-cloud NAME.')


class _EntryGone(Exception):
    """The marker of the next page has been deleted."""


def connections(cloud: str | None = None,
                baremetal_cloud: str | None = None) -> Connections:
    """Return the connections with the credentials of clouds.yaml or OS_*.

    :param cloud: entry of clouds.yaml for nova and placement; None for
        OS_CLOUD or the other OS_* variables
    :param baremetal_cloud: entry for Ironic; None for the same as cloud
    :raises CloudError: without usable credentials
    """
    project = _connection(cloud, '--os-cloud NAME, or OS_CLOUD')
    return project, (
        project if baremetal_cloud is None
        else _connection(baremetal_cloud, '--os-baremetal-cloud NAME'))


def _connection(cloud: str | None, how: str) -> Connection:
    from keystoneauth1 import exceptions as identity_exceptions
    import openstack
    from openstack import exceptions as sdk_exceptions
    try:
        connection = openstack.connect(
            cloud=cloud, app_name='nova-ironic-multihost')
        session = connection.session
    except (identity_exceptions.ClientException,
            sdk_exceptions.SDKException) as error:
        raise CloudError(
            f'There are no usable credentials: {message(error)}. Name an '
            f'entry of clouds.yaml ({how}), or set the OS_* variables.'
            ) from error
    if session.timeout is None:
        session.timeout = PATIENCE
    return connection


def message(error: BaseException) -> str:
    """Return the message of an error in one line, without full stop."""
    return ' '.join(str(error).split()).rstrip('.')


def _root_cause(error: BaseException) -> str:
    """Return why there was no answer: "Connection refused", "HTTP 503".

    The libraries wrap it into several errors, each with a longer text. An
    earlier error of ours is no cause: an answer to it may have failed now.
    """
    from keystoneauth1 import exceptions
    deepest, text = error, message(error)
    while ((inner := deepest.__cause__ or deepest.__context__)
           and not isinstance(inner, CloudError)):
        deepest = inner
        if isinstance(inner, OSError | exceptions.ClientException):
            text = getattr(inner, 'strerror', None) or message(inner)
    return text


def _ahead(date: str) -> float:
    """Return by how many seconds a Date header is ahead of our clock."""
    try:
        ahead = utils.parsedate_to_datetime(date).timestamp() - time.time()
    except ValueError:
        return 0.0
    return ahead if abs(ahead) > SAME_CLOCK else 0.0


def _fault_message(answer: typing.Any) -> str:
    """Return the error message of an answer, or ''."""
    try:
        [fault] = answer.json().values()
        # Placement has a list of errors.
        text = (fault[0]['detail'] if isinstance(fault, list)
                else fault['message'])
        return ' '.join(text.split()).rstrip('.')
    except (AttributeError, LookupError, TypeError, ValueError):
        return ''


class Api:
    """Client of one API: decodes answers, raises errors with the remedy.

    :param name: of the service, for messages
    :param service: the attribute of the connection with its adapter
    :param microversion: of requests that name no other one
    :param remedy: what to do when the service answers 403
    """

    def __init__(self, name: str, connection: Connection, service: str,
                 microversion: str, remedy: str) -> None:
        self._name = name
        self._connection = connection
        self._service = service
        self._microversion = microversion
        self._remedy = remedy
        # Seconds by which the clock of the service is ahead of ours.
        self._ahead = 0.0

    def moment(self) -> float:
        """Return the time by the clock of the service, as its answers give it.

        Its timestamps are compared with this, as our clock may be wrong by
        hours.
        """
        return time.time() + self._ahead

    def pages(self, path: str, key: str, identity: str,
              **parameters: typing.Any) -> list[Json]:
        """Return all entries of a list, read page by page.

        An empty page ends the list. A short page does not, because nova drops
        hypervisors after it has filled a page.

        :param key: of the entries in the answer
        :param identity: the field of an entry that serves as marker
        """
        for _ in range(_ATTEMPTS):
            entries: list[Json] = []
            marker: Json = {}
            with contextlib.suppress(_EntryGone):
                while page := self.get(
                        path, **parameters, **marker, limit=PAGE)[key]:
                    entries += page
                    marker = {'marker': page[-1][identity]}
                return entries
        raise Unanswered(
            f'{self._name} changes faster than {path} can be read. Ask '
            'again, or wait until things are settled with --wait SECONDS.')

    def get(self, path: str, microversion: str | None = None,
            may_be_gone: bool = False, **parameters: typing.Any
            ) -> typing.Any:
        """Send a GET request and return the decoded answer.

        :param may_be_gone: return None for HTTP 404
        :raises CloudError: without success
        """
        gone = ((404,) if may_be_gone
                else (400, 404) if 'marker' in parameters else ())
        answer = self._ask('get', path, microversion, gone, params=parameters)
        if answer.status_code in gone:
            if may_be_gone:
                return None
            raise _EntryGone
        try:
            return answer.json()
        except ValueError:
            raise CloudError(
                f'{self._name} answered {path} with something that is not '
                'JSON. Look at the endpoint in the catalog.') from None

    def send(self, path: str, body: Json | None = None,
             microversion: str | None = None) -> None:
        """Send a PUT request; without body a DELETE request.

        :raises CloudError: without success
        """
        self._ask('delete' if body is None else 'put', path, microversion,
                  json=body)

    def _ask(self, method: str, path: str, microversion: str | None,
             passing: Collection[int] = (), **parameters: typing.Any
             ) -> typing.Any:
        microversion = microversion or self._microversion
        session = self._connection.session
        # First, so that an error of Keystone is not taken for the service's.
        with self._translated_errors(
                'Keystone', lambda: getattr(session.auth, 'auth_url', '')):
            session.get_auth_headers()
        with self._translated_errors(self._name, self._endpoint):
            answer = getattr(self._adapter(), method)(
                path, microversion=microversion, raise_exc=False,
                **parameters)
        self._ahead = _ahead(answer.headers.get('Date', ''))
        status = answer.status_code
        if status in (200, 204, *passing):
            return answer
        fails = status >= 500 or status == 429
        why = '' if fails else _fault_message(answer)
        raise (Unanswered if fails else CloudError)(_ERRORS.get(
            status, _ERRORS[None]).format(
                name=self._name, path=path, microversion=microversion,
                remedy=self._remedy, status=status,
                why=f': {why}.' if why else '. Look into its log.'))

    def _adapter(self) -> typing.Any:
        """Return the adapter; openstacksdk asks for the versions before.

        It says that there are none if the service does not answer: then a
        request shows the cause.
        """
        from openstack import exceptions
        try:
            return getattr(self._connection, self._service)
        except exceptions.NotSupported as error:
            url = self._endpoint()
            status = self._connection.session.get(
                url, authenticated=False, raise_exc=False).status_code
            if status >= 500 or status in _BUSY:
                raise Unanswered(f'{self._name} answered {url} with HTTP '
                                 f'{status}. Look into its log.') from error
            raise CloudError(
                f'{self._name} has no known version of its API at {url}. '
                'Look at the endpoint in the catalog.') from error

    def _endpoint(self) -> str:
        """Return the URL of the service by clouds.yaml or the catalog."""
        config = self._connection.config
        return str(config.get_endpoint(self._service)
                   or config.get_endpoint_from_catalog(self._service))

    @contextlib.contextmanager
    def _translated_errors(self, name: str,
                           url: Callable[[], str]) -> Iterator[None]:
        """Turn errors of the client libraries into CloudError.

        :param name: of the service that is asked
        :param url: returns where it is asked
        """
        from keystoneauth1 import exceptions as identity_exceptions
        from openstack import exceptions as sdk_exceptions
        try:
            yield
        except identity_exceptions.Unauthorized as error:
            raise CloudError(
                f'Keystone refuses the credentials: {message(error)}. Look at '
                'user, password and scope.') from error
        except (identity_exceptions.ConnectionError,
                identity_exceptions.DiscoveryFailure,
                identity_exceptions.HttpServerError,
                sdk_exceptions.ServiceDiscoveryException) as error:
            raise _unanswered(name, url(), error) from error
        except (identity_exceptions.CatalogException,
                sdk_exceptions.EndpointNotFound,
                sdk_exceptions.ServiceDisabledException) as error:
            raise CloudError(
                f'The catalog has no {self._service} service of this '
                f'region: {message(error)}. Look at region_name, interface '
                'and the project or scope.') from error
        except (identity_exceptions.ClientException,
                sdk_exceptions.SDKException) as error:
            if getattr(error, 'http_status', None) in _BUSY:
                raise _unanswered(name, url(), error) from error
            raise CloudError(
                f'{name} cannot be asked: {message(error)}.') from error


def _unanswered(name: str, url: str, error: Exception) -> Unanswered:
    return Unanswered(
        f'{name} does not answer at {url}: {_root_cause(error)}. Start it, or '
        'look at the URL and at proxies (no_proxy).')
