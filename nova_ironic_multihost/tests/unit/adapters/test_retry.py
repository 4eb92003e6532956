# SPDX-License-Identifier: Apache-2.0

"""Which errors a retry can cure; operations that wait for Ironic."""

import inspect
import socket
import threading
import types
from unittest import mock

import fixtures
from keystoneauth1 import exceptions as ksa_exception
from keystoneauth1 import session
from nova import exception
from openstack.baremetal.v1 import _proxy
from openstack import exceptions
import oslo_messaging as messaging
from oslotest import base
import tenacity

from nova_ironic_multihost.adapters import retry


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
            self.assertTrue(retry.away(exc), repr(exc))
            self.assertTrue(retry.passing(exc), repr(exc))

    def test_somebody_answers(self):
        for exc in (ironic(400), ironic(404), ironic(409), ironic(500),
                    ksa_exception.InternalServerError(),
                    ksa_exception.SSLError(), ksa_exception.Unauthorized(),
                    exception.InstanceNotFound(instance_id='i1'),
                    messaging.MessagingTimeout(), KeyError()):
            self.assertFalse(retry.away(exc), repr(exc))

    def test_what_may_succeed_another_time(self):
        for exc in (ironic(409), ironic(500), ironic(504),
                    ksa_exception.InternalServerError(),
                    messaging.MessagingTimeout(),
                    messaging.MessageDeliveryFailure(),
                    messaging.RemoteError('DBConnectionError', 'gone', [])):
            self.assertTrue(retry.passing(exc), repr(exc))

    def test_what_fails_again(self):
        for exc in (ksa_exception.ConnectFailure(), ironic(503), ironic(504),
                    messaging.MessagingTimeout(),
                    messaging.MessageDeliveryFailure(),
                    messaging.RemoteError('DBConnectionError', 'gone', []),
                    # Whatever placement has answered.
                    exception.AllocationDeleteFailed(
                        consumer_uuid='i1', error='Service Unavailable')):
            self.assertTrue(retry.passing(exc, again=True), repr(exc))
            self.assertTrue(retry.passing(exc), repr(exc))
        for exc in (ironic(409), ironic(500),
                    messaging.RemoteError('ValueError', 'wrong', [])):
            self.assertFalse(retry.passing(exc, again=True), repr(exc))

    def test_what_was_not_even_taken(self):
        self.assertTrue(retry.not_taken(ironic(503)))
        for exc in (ironic(502), ironic(500), ksa_exception.ConnectFailure(),
                    ksa_exception.ConnectTimeout()):
            self.assertFalse(retry.not_taken(exc), repr(exc))
        # Nobody listens there.
        with socket.socket() as taken:
            taken.bind(('127.0.0.1', 0))
            port = taken.getsockname()[1]
            exc = self.assertRaises(
                ksa_exception.ConnectFailure, session.Session().get,
                f'http://127.0.0.1:{port}')
        self.assertTrue(retry.not_taken(exc))

    def test_what_the_database_refuses_each_time(self):
        for kind in 'DBDataError', 'DBReferenceError', 'TypeError':
            self.assertFalse(retry.passing(
                messaging.RemoteError(kind, 'too long', [])), kind)
        # MariaDB that is being failed over.
        self.assertTrue(retry.passing(
            messaging.RemoteError('OperationalError', 'read-only', [])))

    def test_instance_that_is_gone_is_so_whatever_has_failed_before(self):
        for gone in (exception.InstanceNotFound(instance_id='i1'),
                     exception.UnexpectedTaskStateError(
                         instance_uuid='i1', expected={}, actual={})):
            gone.__context__ = ironic(409)
            self.assertFalse(retry.passing(gone), repr(gone))

    def test_what_fails_for_good(self):
        for exc in (ironic(400), ironic(403), ironic(404), KeyError(),
                    ksa_exception.SSLError(), ksa_exception.Unauthorized(),
                    # NovaException.code is 500.
                    exception.NovaException('Provision state still deleting'),
                    exception.InstanceNotFound(instance_id='i1')):
            self.assertFalse(retry.passing(exc), repr(exc))

    def test_an_error_that_was_raised_for_another(self):
        try:
            try:
                raise ironic(500)
            except exceptions.HttpException:
                raise exception.NovaException('no tear-down')
        except exception.NovaException as exc:
            self.assertTrue(retry.passing(exc))
            self.assertFalse(retry.away(exc))

    def test_errors_that_were_raised_for_each_other(self):
        first, second = KeyError(), ValueError()
        first.__context__, second.__context__ = second, first
        self.assertFalse(retry.passing(first))


class PatienceTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 0
        self.started = True
        self.connection = mock.Mock()
        for module in tenacity, tenacity.nap:
            self.useFixture(fixtures.MockPatchObject(
                module, 'time', mock.Mock(
                    monotonic=lambda: self.now, sleep=self.sleep)))
        self.patience = retry.IronicRetry(lambda: 300, lambda: self.started)
        self.logged = self.useFixture(fixtures.FakeLogger())

    def sleep(self, seconds):
        self.now += seconds

    def connect(self):
        return self.patience.connection(lambda: self.connection)

    def be_away(self, seconds, error=None):
        """Answer from some moment on."""
        def ask(*args, **kwargs):
            if self.now < seconds:
                raise error or ksa_exception.ConnectFailure('refused')
            return mock.DEFAULT

        for method in (self.connection.get_node,
                       self.connection.inject_nmi_to_node,
                       self.connection.set_node_power_state):
            method.side_effect = ask

    def test_it_waits_for_an_answer(self):
        for error in ksa_exception.ConnectFailure('refused'), ironic(503):
            self.now = 0
            self.be_away(100, error)
            self.assertIs(self.connection.get_node.return_value,
                          self.connect().get_node('n1', fields='all'))
            self.connection.get_node.assert_called_with('n1', fields='all')
            self.assertEqual(100, self.now)

    def test_it_tells_once_and_what_to_do(self):
        self.be_away(100)
        self.connect().get_node('n1')
        self.assertEqual(1, self.logged.output.count('\n'))
        for word in ('get_node', '300 s', 'refused', 'nova.conf'):
            self.assertIn(word, self.logged.output)

    def test_what_must_not_be_done_twice(self):
        """A second NMI, say, would end the dump that the first began."""
        for name in retry.ONCE:
            self.be_away(10, ironic(503))
            getattr(self.connect(), name)('n1', 'rebooting')
            self.assertEqual(10, self.now)
            self.now = 0
            # Closed in the middle: it may have been taken.
            self.be_away(10)
            self.assertRaises(ksa_exception.ConnectFailure,
                              getattr(self.connect(), name), 'n1')
            self.assertEqual(0, self.now)

    def test_what_is_no_method(self):
        self.connection.default_microversion = None
        self.assertIsNone(self.connect().default_microversion)

    def test_it_gives_up(self):
        self.be_away(1000)
        self.assertRaises(ksa_exception.ConnectFailure,
                          self.connect().get_node, 'n1')
        self.assertEqual(300, self.now)

    def test_an_answer_is_an_answer(self):
        for status in 400, 404, 409, 500:
            self.be_away(1, ironic(status))
            self.assertRaises(type(ironic(status)),
                              self.connect().get_node, 'n1')
            self.assertEqual(0, self.now)

    def test_a_connection_that_cannot_be_made(self):
        connections = iter([ksa_exception.ConnectFailure(), self.connection])

        def connect():
            found = next(connections)
            if isinstance(found, Exception):
                raise found
            return found

        self.assertIs(self.connection.get_node.return_value,
                      self.patience.connection(connect).get_node('n1'))

    def test_a_listing_that_fails_at_its_second_page(self):
        def nodes():
            yield 'n1'
            if self.now < 10:
                raise ksa_exception.ConnectFailure()
            yield 'n2'

        self.connection.nodes.side_effect = nodes
        self.assertEqual(['n1', 'n2'], list(self.connect().nodes()))

    def test_nobody_waits_before_the_start_is_over(self):
        self.started = False
        self.assertIs(self.connection, self.connect())

    def test_who_is_repeated_does_not_wait(self):
        seen = []
        with self.patience.none():
            with self.patience.none():
                pass
            self.assertIs(self.connection, self.connect())
            other = threading.Thread(
                target=lambda: seen.append(self.connect()))
            other.start()
            other.join(60)
        self.assertIsNot(self.connection, seen[0])
        self.assertIsNot(self.connection, self.connect())

    def lose_answer(self, target, provision_state, status=400):
        self.connection.set_node_provision_state.side_effect = [
            ksa_exception.ConnectFailure('closed'), ironic(status)]
        self.connection.get_node.return_value = types.SimpleNamespace(
            provision_state=provision_state)
        self.connect().set_node_provision_state('n1', target)

    def test_a_request_whose_answer_was_lost(self):
        for target, provision_state in (
                ('active', 'deploying'), ('active', 'wait call-back'),
                ('active', 'active'), ('rebuild', 'deploying'),
                ('deleted', 'deleting'), ('deleted', 'cleaning'),
                ('deleted', 'available')):
            for status in 400, 409:
                self.lose_answer(target, provision_state, status)
        for target, provision_state in (
                ('active', 'available'), ('active', 'deleting'),
                ('rebuild', 'active'), ('deleted', 'active'),
                ('rescue', 'rescue')):
            self.assertRaises(
                type(ironic(400)), self.lose_answer, target, provision_state)

    def test_a_request_that_is_refused_at_once(self):
        self.connection.set_node_provision_state.side_effect = ironic(400)
        self.connection.get_node.return_value.provision_state = 'deploying'
        self.assertRaises(
            type(ironic(400)),
            self.connect().set_node_provision_state, 'n1', 'active')

    def test_how_novas_driver_asks_for_a_provision_state(self):
        self.assertEqual(
            ['self', 'node', 'target'],
            list(inspect.signature(
                _proxy.Proxy.set_node_provision_state).parameters)[:3])
