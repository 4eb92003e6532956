# SPDX-License-Identifier: Apache-2.0

"""Connections to the APIs, their answers and errors.

Errors of keystoneauth become a CloudError: its message has the remedy. A
request goes to the endpoint of the catalog, without a look for versions there:
Ironic and placement have one, and nova's endpoint names its own.

openstacksdk is imported when it is used: its import takes more than a second,
and ``--help`` needs none of it.
"""

from __future__ import annotations

import dataclasses
from email import utils
import time
import typing

if typing.TYPE_CHECKING:
    import openstack

from nova_ironic_multihost.client.cloud_state import CloudError
from nova_ironic_multihost.client.cloud_state import Unanswered

Json: typing.TypeAlias = dict[str, typing.Any]

Connection: typing.TypeAlias = 'openstack.connection.Connection'

#: Entries of a page; the default maximum of nova and Ironic.
PAGE = 1000

#: Timeout of a request in seconds, unless clouds.yaml sets another.
PATIENCE = 300.0

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


def connection(cloud: str | None, how: str) -> Connection:
    """Return a connection with the credentials of clouds.yaml or OS_*.

    :param cloud: entry of clouds.yaml; None for OS_CLOUD or other variables
    :param how: the option for another entry
    :raises CloudError: without usable credentials
    """
    from keystoneauth1 import exceptions as identity_exceptions
    import openstack
    from openstack import exceptions as sdk_exceptions
    try:
        found = openstack.connect(
            cloud=cloud, app_name='nova-ironic-multihost')
        session = found.session
    except (identity_exceptions.ClientException,
            sdk_exceptions.SDKException) as error:
        raise CloudError(
            f'There are no usable credentials: {message(error)}. Name an '
            f'entry of clouds.yaml ({how}), or set the OS_* variables.'
            ) from error
    if session.timeout is None:
        session.timeout = PATIENCE
    return found


def message(error: BaseException) -> str:
    """Return the message of an error in one line, without full stop."""
    return ' '.join(str(error).split()).rstrip('.')


def _root_cause(error: BaseException) -> str:
    """Return why there was no answer: "Connection refused", "HTTP 503".

    The libraries wrap it into several errors, each with a longer text. An
    earlier error of ours is no cause: an answer to it may have failed now.
    """
    while ((inner := error.__cause__ or error.__context__)
           and not isinstance(inner, CloudError)):
        error = inner
    return getattr(error, 'strerror', None) or message(error)


def _passes(status: int) -> bool:
    """Return whether another request may succeed after an HTTP status."""
    return status >= 500 or status in (408, 429)


def _moment(answer: typing.Any) -> float:
    """Return the time by the clock of the service; ours if it gives none."""
    try:
        return utils.parsedate_to_datetime(answer.headers['Date']).timestamp()
    except (LookupError, ValueError):
        return time.time()


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


@dataclasses.dataclass
class Api:
    """Client of one API: decodes answers, raises errors with the remedy.

    :ivar name: of the service, for messages
    :ivar service: its type in the catalog
    :ivar microversion: of requests that name no other one
    :ivar remedy: what to do when the service answers 403
    :ivar at: time of the last answer by the clock of the service, as ours may
        be wrong by hours
    """

    name: str
    connection: Connection
    service: str
    microversion: str
    remedy: str
    at: float = 0.0

    def pages(self, path: str, key: str, identity: str,
              **parameters: typing.Any) -> list[Json]:
        """Return all entries of a list, read page by page.

        An empty page ends the list. A short page does not, because nova drops
        hypervisors after it has filled a page.

        :param key: of the entries in the answer
        :param identity: the field of an entry that serves as marker
        """
        entries: list[Json] = []
        marker: Json = {}
        while page := self.get(path, **parameters, **marker, limit=PAGE)[key]:
            entries += page
            marker = {'marker': page[-1][identity]}
        return entries

    def get(self, path: str, microversion: str | None = None,
            may_be_gone: bool = False, **parameters: typing.Any
            ) -> typing.Any:
        """Send a GET request and return the decoded answer.

        :param may_be_gone: return None for HTTP 404
        :raises CloudError: without success
        """
        answer = self._ask(
            'get', path, microversion, may_be_gone, params=parameters)
        if answer is None:
            return None
        try:
            return answer.json()
        except ValueError:
            raise CloudError(
                f'{self.name} answered {path} with something that is not '
                'JSON. Look at the endpoint in the catalog.') from None

    def send(self, path: str, body: Json | None = None,
             microversion: str | None = None) -> None:
        """Send a PUT request; without body a DELETE request.

        :raises CloudError: without success
        """
        self._ask('delete' if body is None else 'put', path, microversion,
                  json=body)

    def _ask(self, method: str, path: str, microversion: str | None,
             may_be_gone: bool = False, **parameters: typing.Any
             ) -> typing.Any:
        from keystoneauth1 import exceptions
        microversion = microversion or self.microversion
        session, config = self.connection.session, self.connection.config
        # First, so that an error of Keystone is not taken for the service's.
        name, url = 'Keystone', getattr(session.auth, 'auth_url', '')
        try:
            session.get_auth_headers()
            name, url = self.name, config.get_session_endpoint(self.service)
            if not url:
                raise CloudError(
                    f'The catalog has no {self.service} service of this '
                    'region. Look at region_name, interface and the project '
                    'or scope.')
            answer = session.request(
                url.rstrip('/') + path, method, microversion=microversion,
                microversion_service_type=self.service, raise_exc=False,
                **parameters)
        except exceptions.ClientException as error:
            if (isinstance(error, exceptions.ConnectionError
                           | exceptions.DiscoveryFailure)
                    or _passes(getattr(error, 'http_status', 0))):
                raise Unanswered(
                    f'{name} does not answer at {url}: {_root_cause(error)}. '
                    'Start it, or look at the URL and at proxies (no_proxy).'
                    ) from error
            raise CloudError(
                f'Keystone refuses the credentials: {message(error)}. Look at '
                'user, password and scope.') from error
        self.at = _moment(answer)
        status = answer.status_code
        if status in (200, 204):
            return answer
        if status == 404 and may_be_gone:
            return None
        why = '' if status >= 500 else _fault_message(answer)
        # The last entry of a page may have been deleted before the next one.
        passes = _passes(status) or 'marker' in parameters.get('params', ())
        raise (Unanswered if passes else CloudError)(_ERRORS.get(
            status, _ERRORS[None]).format(
                name=self.name, path=path, microversion=microversion,
                remedy=self.remedy, status=status,
                why=f': {why}.' if why else '. Look into its log.'))
