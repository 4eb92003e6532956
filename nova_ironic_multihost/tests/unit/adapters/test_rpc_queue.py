# SPDX-License-Identifier: Apache-2.0

"""What oslo.messaging, kombu and amqp have for a queue, and nova's messages.

With a broker: lab/tests/stack/test_forwarding.py.
"""

import contextlib
import inspect
import logging
import threading
import types
from unittest import mock

import amqp
import fixtures
import kombu.serialization
from kombu.transport import pyamqp
from nova.compute import manager
from nova.compute import rpcapi
from nova import context as nova_context
from nova import objects
from nova import rpc
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import impl_rabbit
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.rules.forwarding import RequestKind
from nova_ironic_multihost.tests.unit.adapters import base

UUID = '1be26c0b-03f2-4d2e-ae87-c02d7f33c111'
SECRET = 'xyzzy'


class LibrariesTestCase(oslo_base.BaseTestCase):

    def test_texts_of_amqp_and_oslo_messaging(self):
        channel, connection = pyamqp.Channel, impl_rabbit.Connection
        for function, text in (
                (channel.basic_publish_confirm, 'self.confirm_select()'),
                (channel.basic_publish_confirm, 'MessageNacked'),
                (channel._on_basic_return, "events.get('basic_return')"),
                (channel.dispatch_method, 'auto_decode'),
                (amqp.Connection._on_tune, 'self.heartbeat = '),
                (connection.__init__, 'self.rabbit_quorum_queue = '),
                (connection._set_current_channel, 'self.channel'),
                (amqpdriver.AMQPDriverBase.listen,
                 "'{}.{}'.format(target.topic"),
                # Why a queue is no RPC server.
                (amqpdriver.RpcAMQPListener.__call__,
                 'message.acknowledge()')):
            self.assertIn(text, inspect.getsource(function))
        self.assertEqual(
            ('compute.host-1', 'compute-builds.host-1'),
            (rpc_queue.queue('host-1'), rpc_queue.copies('host-1')))


class Channel(pyamqp.Channel):
    """A channel to a broker that is not there."""

    def __init__(self, broker):
        self.broker = broker
        self.events = {'basic_return': set()}
        self.auto_decode = True

    def queue_declare(self, queue, passive=False, **how):
        if not passive:
            if self.broker.forbids:
                raise amqp.exceptions.AccessRefused
            if queue in self.broker.queues:
                raise amqp.exceptions.PreconditionFailed
            if self.broker.full:
                raise amqp.exceptions.PreconditionFailed('queue limit')
            self.broker.queues[queue] = []
            self.broker.declared.append(how)
            return None
        if self.broker.forbids:
            raise amqp.exceptions.AccessRefused
        if queue not in self.broker.queues:
            raise amqp.exceptions.NotFound(self.broker.why)
        return types.SimpleNamespace(consumer_count=2, message_count=50)

    def queue_bind(self, queue, exchange, routing_key):
        assert (queue, exchange) == (routing_key, 'nova')
        if queue not in self.broker.queues:
            raise amqp.exceptions.NotFound

    def basic_get(self, queue, no_ack):
        assert not no_ack and not self.auto_decode
        if self.broker.forbids:
            raise amqp.exceptions.AccessRefused
        waiting = self.broker.queues[queue]
        return waiting.pop(0) if waiting else None

    def basic_ack(self, delivery_tag):
        self.broker.acknowledged.append(delivery_tag)

    def basic_publish_confirm(self, msg, exchange, routing_key, mandatory):
        assert mandatory
        if self.broker.nacks:
            raise amqp.exceptions.MessageNacked
        if routing_key not in self.broker.queues:
            for returned in self.events['basic_return']:
                returned(amqp.exceptions.NoConsumers(), exchange,
                         routing_key, msg)
            return
        self.broker.queues[routing_key].append(msg)
        self.broker.exchanges.append(exchange)


class BrokerTestCase(oslo_base.BaseTestCase):
    """nova's conductor sends to a host of which the queue is read."""

    def setUp(self):
        super().setUp()
        self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        self.transport = messaging.get_rpc_transport(
            names.CONF, 'rabbit://nova:secret@127.0.0.1:1/')
        self.useFixture(fixtures.MockPatchObject(
            rpc, 'TRANSPORT', self.transport))
        rpcapi.reset_globals()
        self.addCleanup(rpcapi.reset_globals)
        # As rpc.init does.
        self.transport._driver._default_exchange = 'nova'
        self.driver = self.transport._driver
        self.useFixture(fixtures.MockPatchObject(
            self.driver, '_get_connection', self.sending))
        self.queues = {'compute.dead': []}
        self.acknowledged, self.exchanges = [], []
        self.nacks = self.forbids = self.full = False
        self.why = 'no queue'
        self.declared = []
        self.connection = mock.Mock(rabbit_quorum_queue=False)
        self.connection.channel.connection.channel = lambda: Channel(self)
        self.create = self.useFixture(fixtures.MockPatchObject(
            self.driver._connection_pool, 'create',
            return_value=self.connection)).mock
        compute = object.__new__(manager.ComputeManager)
        self.rpc_queues = rpc_queue.RpcQueues(mock.Mock(_compute=compute))
        self.context = nova_context.RequestContext('user', 'project')
        self.instance = objects.Instance(uuid=UUID)

    @contextlib.contextmanager
    def sending(self, purpose, retry=None):
        yield mock.Mock(topic_send=self.send)

    def send(self, exchange_name, topic, msg, **how):
        # As kombu.messaging.Producer does.
        content_type, encoding, body = kombu.serialization.dumps(msg, 'json')
        self.put(body.encode(), exchange_name, topic,
                 content_type=content_type, content_encoding=encoding)

    def put(self, body, exchange='nova', topic='compute.dead', headers=None,
            **properties):
        message = amqp.basic_message.Message(
            body, application_headers=headers or {}, delivery_mode=2,
            **properties)
        message.delivery_info = {
            'delivery_tag': 7, 'exchange': exchange, 'routing_key': topic}
        self.queues.setdefault(topic, []).append(message)

    def send_build(self, **more):
        rpcapi.ComputeAPI().build_and_run_instance(
            self.context, self.instance, 'dead', {}, None, {},
            accel_uuids=[], admin_password=SECRET, node=base.NODE, limits={},
            **more)

    def open(self):
        return self.rpc_queues.open('dead')


class QueuesTestCase(BrokerTestCase):

    def test_connection_is_closed_if_it_has_no_channel(self):
        """As with RabbitMQ's channel_max: others would have none, either."""
        for close in None, OSError('closed by RabbitMQ'):
            connection = mock.Mock()
            connection.channel.connection.channel.side_effect = (
                amqp.exceptions.ResourceError('channel_max'))
            connection.close.side_effect = close
            self.create.return_value = connection
            for opening in self.rpc_queues.open, self.rpc_queues.open_copies:
                connection.close.reset_mock()
                self.assertRaises(
                    amqp.exceptions.ResourceError, opening, 'dead')
                connection.close.assert_called_once_with()

    def test_build(self):
        self.send_build()
        box = self.open()
        self.create.assert_called_once_with('listen', retry=2)
        request = box.take()
        self.assertEqual((RequestKind.BUILD, UUID, base.NODE, 0), (
            request.kind, request.instance, request.node, request.returns))
        self.assertIsNone(box.take())
        self.assertEqual([], self.acknowledged)

    def test_build_goes_on_as_it_is(self):
        self.send_build()
        sent, = self.queues['compute.dead']
        sent.properties['application_headers'] = {
            'x-delivery-count': 3, 'compression': 'none'}
        self.queues['compute.live'] = []
        box = self.open()
        request = box.take()
        self.assertEqual(3, request.returns)
        self.assertTrue(box.hand_on(request, 'live'))
        self.assertEqual([7], self.acknowledged)
        self.assertEqual(['nova'], self.exchanges)
        got, = self.queues['compute.live']
        self.assertEqual(sent.body, got.body)
        self.assertEqual({'compression': 'none'},
                         got.properties.pop('application_headers'))
        del sent.properties['application_headers']
        self.assertEqual(sent.properties, got.properties)

    def test_copies_outlive_rabbit_for_a_week(self):
        for quorum in False, True:
            self.queues.clear()
            self.declared.clear()
            self.connection.rabbit_quorum_queue = quorum
            box = self.rpc_queues.open_copies('host-1')
            box.create()
            self.assertEqual(['compute-builds.host-1'], [*self.queues])
            how, = self.declared
            self.assertTrue(how['durable'])
            self.assertFalse(how['auto_delete'])
            self.assertEqual(
                {'x-expires': 604800000}
                | ({'x-queue-type': 'quorum'} if quorum else {}),
                how['arguments'])

    def test_copies_stay_where_they_are(self):
        """Somebody may have changed what queues are like."""
        box = self.rpc_queues.open_copies('host-1')
        box.create()
        box.create()
        self.assertEqual(1, len(self.declared))
        self.assertIsNone(box.take())

    def test_account_that_may_have_no_copies(self):
        self.forbids = True
        self.assertRaises(PermissionError,
                          self.rpc_queues.open_copies('host-1').create)

    def test_rabbit_may_have_no_more_queues(self):
        self.full = True
        refused = self.assertRaises(
            PermissionError, self.rpc_queues.open_copies('host-1').create)
        self.assertIn('queue limit', str(refused))

    def test_account_that_may_not_read(self):
        self.forbids = True
        box = self.open()
        for ask in box.take, box.consumers:
            for _ in range(2):
                self.assertRaises(PermissionError, ask)

    def test_queue_on_a_member_that_is_down_is_not_gone(self):
        self.why = 'home node of durable queue is down or inaccessible'
        self.assertRaises(amqp.exceptions.NotFound,
                          self.rpc_queues.open('nobody').consumers)

    def test_rabbit_hears_from_who_does_other_things(self):
        """Else it closes the connection, and counts what comes back."""
        heard = threading.Semaphore(0)
        rabbit = self.connection.channel.connection
        rabbit.heartbeat = 0.03
        rabbit.send_heartbeat = heard.release
        with self.open().attended():
            for _ in range(3):
                self.assertTrue(heard.acquire(timeout=60))
        self.assertNotIn('ironic-multihost-heartbeat', {
            thread.name for thread in threading.enumerate()})

    def test_who_is_cut_off_meanwhile_is_told_later(self):
        tried = threading.Event()

        def fail():
            tried.set()
            raise OSError('reset')

        rabbit = self.connection.channel.connection
        rabbit.heartbeat = 0.03
        rabbit.send_heartbeat = fail
        box = self.open()
        with box.attended():
            self.assertTrue(tried.wait(60))
        self.assertRaises(OSError, box.beat)

    def test_copy_goes_on_as_one(self):
        self.send_build()
        box = self.open()
        request = box.take()
        self.queues['compute.live'] = []
        self.assertFalse(box.hand_on(request, 'live', copy=True))
        self.queues['compute-builds.live'] = []
        self.assertTrue(box.hand_on(request, 'live', copy=True))
        self.assertEqual((0, 1), (
            len(self.queues['compute.live']),
            len(self.queues['compute-builds.live'])))

    def test_build_that_cannot_go_on_is_held(self):
        self.send_build()
        box = self.open()
        request = box.take()
        self.assertFalse(box.hand_on(request, 'nobody'))
        self.queues['compute.live'] = []
        self.nacks = True
        self.assertFalse(box.hand_on(request, 'live'))
        self.assertEqual([], self.acknowledged)
        self.nacks = False
        self.assertTrue(box.hand_on(request, 'live'))
        self.assertEqual([7], self.acknowledged)

    def test_operation(self):
        rpcapi.ComputeAPI().reboot_instance(
            self.context, self.instance_on('dead'), {}, 'SOFT')
        request = self.open().take()
        self.assertEqual((RequestKind.OPERATION, UUID),
                         (request.kind, request.instance))

    def instance_on(self, host):
        return objects.Instance(uuid=UUID, host=host)

    def test_what_is_for_another_host_on_purpose_is_none(self):
        instance = {'nova_object.name': 'Instance',
                    'nova_object.data': {'uuid': UUID}}
        for method, more in (('rebuild_instance', {'recreate': True}),
                             ('prep_resize', {}),
                             ('external_instance_event', {})):
            self.assertEqual(
                (RequestKind.OTHER, None, None),
                rpc_queue._request(
                    {'method': method, 'args': {'instance': instance, **more}},
                    {'rebuild_instance'},
                ),
            )
        self.assertEqual(
            (RequestKind.OPERATION, UUID, None),
            rpc_queue._request(
                {
                    'method': 'rebuild_instance',
                    'args': {'instance': instance, 'recreate': False},
                },
                {'rebuild_instance'},
            ),
        )

    def test_what_is_not_understood(self):
        logged = self.useFixture(fixtures.FakeLogger(level=logging.DEBUG))
        for body, content_type in (
                (SECRET.encode(), 'application/json'),
                (b'{"oslo.version": "9.0", "oslo.message": "xyzzy"}',
                 'application/json'),
                (b'{"oslo.version": "2.0", "oslo.message": "[]"}',
                 'application/json'),
                (SECRET.encode(), 'application/x-python-serialize')):
            self.put(body, content_type=content_type,
                     content_encoding='utf-8')
        box = self.open()
        while request := box.take():
            self.assertEqual((RequestKind.OTHER, None), (
                request.kind, request.instance))
            self.assertNotIn(SECRET, repr(request))
        self.assertIn('cannot be parsed', logged.output)
        self.assertNotIn(SECRET, logged.output)

    def test_who_reads_it(self):
        self.assertEqual(2, self.open().consumers())
        box = self.rpc_queues.open('nobody')
        self.assertIsNone(box.consumers())
        self.assertIsNone(box.consumers())

    def test_close_raises_nothing(self):
        self.connection.close.side_effect = OSError
        self.open().close()
        self.connection.close.assert_called_once_with()

    def test_only_rabbit_can_be_read(self):
        self.assertTrue(self.rpc_queues.readable)
        for transport in messaging.get_rpc_transport(
                names.CONF, 'fake://'), None:
            with mock.patch.object(rpc, 'TRANSPORT', transport):
                self.assertFalse(self.rpc_queues.readable)
