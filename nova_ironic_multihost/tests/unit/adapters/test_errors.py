# SPDX-License-Identifier: Apache-2.0

import socket
from unittest import mock

from keystoneauth1 import exceptions as ksa_exception
from keystoneauth1 import session
from nova import exception
from openstack import exceptions
import oslo_messaging as messaging
from oslotest import base

from nova_ironic_multihost.adapters import errors


def ironic(status):
    """Return what openstacksdk raises for an answer."""
    with mock.patch('requests.Response') as response:
        response.status_code, response.headers = status, {}
        response.json.return_value = {}
        response.url, response.reason = 'http://ironic', 'reason'
        try:
            exceptions.raise_from_response(response)
        except exceptions.SDKException as exc:
            return exc


class AnswersTestCase(base.BaseTestCase):

    def test_nobody_answers(self):
        for exc in (ksa_exception.ConnectFailure(),
                    ksa_exception.ConnectTimeout(),
                    ksa_exception.ServiceUnavailable(),
                    ksa_exception.BadGateway(),
                    exception.ServiceUnavailable(),
                    ironic(502), ironic(503)):
            self.assertTrue(errors.away(exc), repr(exc))
            self.assertTrue(errors.passing(exc), repr(exc))

    def test_somebody_answers(self):
        for exc in (ironic(400), ironic(404), ironic(409), ironic(500),
                    ksa_exception.InternalServerError(),
                    ksa_exception.SSLError(), ksa_exception.Unauthorized(),
                    exception.InstanceNotFound(instance_id='i1'),
                    messaging.MessagingTimeout(), KeyError()):
            self.assertFalse(errors.away(exc), repr(exc))

    def test_what_may_succeed_another_time(self):
        for exc in (ironic(409), ironic(500), ironic(504),
                    ksa_exception.InternalServerError(),
                    messaging.MessagingTimeout(),
                    messaging.MessageDeliveryFailure(),
                    messaging.RemoteError('DBConnectionError', 'gone', [])):
            self.assertTrue(errors.passing(exc), repr(exc))

    def test_what_fails_again(self):
        for exc in (ksa_exception.ConnectFailure(), ironic(503), ironic(504),
                    messaging.MessagingTimeout(),
                    messaging.MessageDeliveryFailure(),
                    messaging.RemoteError('DBConnectionError', 'gone', []),
                    # Whatever placement has answered.
                    exception.AllocationDeleteFailed(
                        consumer_uuid='i1', error='Service Unavailable')):
            self.assertTrue(errors.passing(exc, again=True), repr(exc))
            self.assertTrue(errors.passing(exc), repr(exc))
        for exc in (ironic(409), ironic(500),
                    messaging.RemoteError('ValueError', 'wrong', [])):
            self.assertFalse(errors.passing(exc, again=True), repr(exc))

    def test_what_was_not_even_taken(self):
        self.assertTrue(errors.not_taken(ironic(503)))
        for exc in (ironic(502), ironic(500), ksa_exception.ConnectFailure(),
                    ksa_exception.ConnectTimeout()):
            self.assertFalse(errors.not_taken(exc), repr(exc))
        # Nobody listens there.
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            port = taken.getsockname()[1]
            exc = self.assertRaises(
                ksa_exception.ConnectFailure, session.Session().get,
                f'http://127.0.0.1:{port}')
        self.assertTrue(errors.not_taken(exc))

    def test_what_the_database_refuses_each_time(self):
        for kind in 'DBDataError', 'DBReferenceError', 'TypeError':
            self.assertFalse(errors.passing(
                messaging.RemoteError(kind, 'too long', [])), kind)
        # MariaDB that is being failed over.
        self.assertTrue(errors.passing(
            messaging.RemoteError('OperationalError', 'read-only', [])))

    def test_instance_that_is_gone_is_so_whatever_has_failed_before(self):
        for gone in (exception.InstanceNotFound(instance_id='i1'),
                     exception.UnexpectedTaskStateError(
                         instance_uuid='i1', expected={}, actual={})):
            gone.__context__ = ironic(409)
            self.assertFalse(errors.passing(gone), repr(gone))

    def test_what_fails_for_good(self):
        for exc in (ironic(400), ironic(403), ironic(404), KeyError(),
                    ksa_exception.SSLError(), ksa_exception.Unauthorized(),
                    # NovaException.code is 500.
                    exception.NovaException('Provision state still deleting'),
                    exception.InstanceNotFound(instance_id='i1')):
            self.assertFalse(errors.passing(exc), repr(exc))

    def test_an_error_that_was_raised_for_another(self):
        try:
            try:
                raise ironic(500)
            except exceptions.HttpException:
                raise exception.NovaException('no tear-down')
        except exception.NovaException as exc:
            self.assertTrue(errors.passing(exc))
            self.assertFalse(errors.away(exc))

    def test_errors_that_were_raised_for_each_other(self):
        first, second = KeyError(), ValueError()
        first.__context__, second.__context__ = second, first
        self.assertFalse(errors.passing(first))
