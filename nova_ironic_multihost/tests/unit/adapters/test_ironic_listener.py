# SPDX-License-Identifier: Apache-2.0

"""Ironic's notifications, sent as Ironic sends them."""

import inspect
import threading
from unittest import mock

import amqp
import fixtures
from kombu.transport import pyamqp
from oslo_config import fixture as config_fixture
import oslo_messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import base as driver_base
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_fake
from oslo_messaging._drivers import impl_rabbit
from oslo_messaging._drivers import pool
from oslo_messaging import server as messaging_server
from oslotest import base as test_base

from nova_ironic_multihost.adapters import ironic_listener
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost import conf
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.tests.unit.adapters import base

NODE = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
SECRET = 'xyzzy'
TOPIC = 'ironic_versioned_notifications'


def payload(uuid=NODE, name='NodePayload'):
    """Return what ironic.objects.notification writes."""
    return {'ironic_object.namespace': 'ironic', 'ironic_object.name': name,
            'ironic_object.version': '1.16',
            'ironic_object.data': {'uuid': uuid, 'power_state': SECRET}}


class SignaturesTestCase(base.SignaturesTestCase):

    def test_drivers_of_oslo_messaging(self):
        self.assertParameters(
            ['self', 'targets_and_priorities', 'pool', 'batch_size',
             'batch_timeout'],
            impl_rabbit.RabbitDriver.listen_for_notifications)
        self.assertParameters(['self', 'purpose', 'retry'],
                              pool.ConnectionPool.create)
        self.assertParameters(['self', 'driver', 'conn'],
                              amqpdriver.NotificationAMQPListener.__init__)
        self.assertParameters(
            ['self', 'poll_style_listener', 'batch_size', 'batch_timeout'],
            driver_base.PollStyleListenerAdapter.__init__)
        self.assertIn('self._driver = driver', inspect.getsource(
            oslo_messaging.Transport.__init__))

    def test_consumers_of_oslo_messaging(self):
        self.assertEqual(
            ['self', 'exchange_name', 'queue_name', 'routing_key', 'type',
             'durable', 'exchange_auto_delete', 'queue_auto_delete',
             'callback'], base.parameters(impl_rabbit.Consumer.__init__)[:9])
        self.assertParameters(['self', 'conn'], impl_rabbit.Consumer.declare)
        self.assertParameters(['self', 'consumer'],
                              impl_rabbit.Connection.declare_consumer)
        source = inspect.getsource(impl_rabbit.Consumer.consume)
        self.assertIn('if conn.channel != self._declared_on:', source)
        self.assertIn('self.queue.consume(', source)

    def test_one_consumer_of_each_queue_is_declared_anew(self):
        """Why there is one for all levels."""
        self.assertIn('self._active_tags.get(consumer.queue_name)',
                      inspect.getsource(
                          impl_rabbit.Connection.declare_consumer))
        self.assertIn('self._new_tags.remove(tag)', inspect.getsource(
            impl_rabbit.Connection.consume))

    def test_executor_follows_eventlet(self):
        self.assertIn('utils.get_executor_with_context()', inspect.getsource(
            messaging_server.MessageHandlingServer.__init__))
        self.assertIn('override_pool_size', base.parameters(
            messaging_server.MessageHandlingServer.start.__wrapped__))


class ParseTestCase(test_base.BaseTestCase):

    def test_node(self):
        for event, came in (('maintenance_set.end', False),
                            ('provision_set.start', False),
                            ('create.start', False), ('create.end', True),
                            ('update.end', True), ('delete.end', False)):
            self.assertEqual((NODE, came), ironic_listener.parse(
                f'baremetal.node.{event}', payload()))

    def test_uuid_in_other_letters(self):
        self.assertEqual((NODE, False), ironic_listener.parse(
            'baremetal.node.power_set.end', payload(NODE.upper())))

    def test_what_is_no_node(self):
        for event in ('baremetal.port.create.end', 'baremetal.nodes.x',
                      'compute.instance.update', ''):
            self.assertIsNone(ironic_listener.parse(event, payload()))


class EndpointTestCase(test_base.BaseTestCase):

    def test_what_is_not_as_ironic_writes_it(self):
        endpoint = ironic_listener.Endpoint(self.fail)
        event = 'baremetal.node.update.end'
        bad = [(event, content) for content in (
            None, [], SECRET, {}, {'ironic_object.data': None},
            {'ironic_object.data': {}}, payload(None), payload(SECRET),
            payload({}), payload(1), payload([NODE]), payload('../' + NODE))]
        for name, content in [*bad, (None, payload()), (1, payload())]:
            with self.assertLogs(ironic_listener.__name__, 'DEBUG') as logs:
                endpoint.error({}, 'api', name, content, {})
            record, = logs.records
            self.assertEqual('DEBUG', record.levelname)
            self.assertNotIn(SECRET, logs.output[0])


class BusTestCase(test_base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.config = self.useFixture(config_fixture.Config(names.CONF)).config
        names.CONF([], project='nova', default_config_files=[])
        conf.register_opts(names.CONF)
        self.config(group='ironic_multihost', ironic_notifications=True,
                    ironic_notifications_url='fake://')
        self.addCleanup(impl_fake.FakeExchangeManager.cleanup)
        self.taken, self.told = [], threading.Semaphore(0)

    def take(self, node, came):
        self.taken.append((node, came))
        self.told.release()

    def listen(self, host='host-1'):
        listener = ironic_listener.Notifications(host, self.take)
        self.addCleanup(listener._close)
        self.addCleanup(listener.end)
        return listener

    def notifier(self, **options):
        """Return what Ironic sends with (ironic.common.rpc)."""
        transport = oslo_messaging.get_notification_transport(
            names.CONF, url='fake://')
        transport._driver._exchange_manager._default_exchange = 'ironic'
        return oslo_messaging.Notifier(
            transport, publisher_id='ironic-api.host', driver='messagingv2',
            **{'topics': [TOPIC], **options})


class FakeBusTestCase(BusTestCase):
    """oslo.messaging from end to end, with its own bus for tests."""

    def test_each_compute_service_is_told_of_each_node(self):
        for host in 'host-1', 'host-2':
            self.listen(host).once()
        self.notifier().info(
            {}, 'baremetal.node.create.end', payload())
        self.notifier().error(
            {}, 'baremetal.node.power_set.error', payload())
        for _ in range(4):
            self.assertTrue(self.told.acquire(timeout=60))
        self.assertEqual([(NODE, False), (NODE, False),
                          (NODE, True), (NODE, True)], sorted(self.taken))

    def test_what_is_bad_is_passed_over(self):
        self.listen().once()
        for content in None, payload(7), payload(name='PortPayload'):
            self.notifier().warn({}, 'baremetal.node.update.end', content)
        self.notifier().warn({}, 'baremetal.port.update.end', payload())
        self.notifier().warn({}, 'baremetal.node.update.end', payload())
        self.assertTrue(self.told.acquire(timeout=60))
        self.assertTrue(self.told.acquire(timeout=60))
        self.assertEqual([(NODE, True)] * 2, self.taken)

    def test_other_topic(self):
        self.config(group='ironic_multihost',
                    ironic_notifications_topic='nova')
        self.listen().once()
        self.notifier().info({}, 'baremetal.node.x.end', payload(NODE[::-1]))
        self.notifier(topics=['nova']).info(
            {}, 'baremetal.node.x.end', payload())
        self.assertTrue(self.told.acquire(timeout=60))
        self.assertEqual([(NODE, False)], self.taken)

    def test_it_begins_once(self):
        listener = self.listen()
        with self.assertLogs(ironic_listener.__name__, 'INFO') as logs:
            listener.once()
            server = listener._server
            listener.once()
        self.assertIs(server, listener._server)
        self.assertEqual(1, len(logs.output))

    def test_nothing_unless_it_is_wanted(self):
        self.config(group='ironic_multihost', ironic_notifications=False)
        listener = self.listen()
        with mock.patch.object(
                oslo_messaging, 'get_notification_transport') as transport:
            listener.once()
            listener.end()
        transport.assert_not_called()
        self.assertIsNone(listener._server)

    def test_the_end(self):
        listener = self.listen()
        listener.once()
        server, closed = listener._server, threading.Event()
        self.useFixture(fixtures.MockPatchObject(
            server, 'wait', closed.set))
        listener.end()
        self.assertTrue(closed.wait(60))
        self.assertFalse(server._started)
        listener._note(NODE, False)
        self.assertEqual([], self.taken)

    def test_it_does_not_begin_after_the_end(self):
        listener = self.listen()
        listener.end()
        listener.once()
        self.assertIsNone(listener._server)

    def test_the_end_waits_for_no_bus(self):
        listener = self.listen()
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang(*args, **kwargs):
            begun.set()
            go_on.wait(60)
            raise OSError('refused')

        self.useFixture(fixtures.MockPatchObject(
            oslo_messaging, 'get_notification_transport', hang))
        thread = threading.Thread(
            target=lambda: self.assertRaises(
                ironic_listener.ListeningError, listener.once))
        thread.start()
        self.assertTrue(begun.wait(60))
        listener.end()
        self.assertTrue(thread.is_alive())
        go_on.set()
        thread.join(60)

    def test_default_is_where_nova_notifies(self):
        self.config(group='ironic_multihost', ironic_notifications_url=None)
        names.CONF([], project='nova', default_config_files=[])
        oslo_messaging.get_notification_transport(names.CONF, url='fake://')
        for expected, options in (
                ('fake://other', {}),
                ('fake://own', {'transport_url': 'fake://own'})):
            self.config(transport_url='fake://other')
            self.config(group='oslo_messaging_notifications', **options)
            listener = self.listen()
            listener.once()
            self.assertEqual(
                expected, str(listener._server.transport._driver._url)
                .rstrip('/'))


class FailureTestCase(BusTestCase):

    def test_bus_that_is_away_is_told_once_and_tried_again(self):
        listener = self.listen()
        act = periodic.PeriodicTask('notifications', listener.once, lambda: 1)
        with mock.patch.object(
                ironic_listener.Notifications, '_listening',
                side_effect=OSError('refused')), self.assertLogs(
                    periodic.__name__, 'WARNING') as logs:
            act.turn()
            act.turn()
        self.assertEqual(1, len(logs.records))
        self.assertIn('refused', logs.output[0])
        self.assertIn('ironic_notifications_url', logs.output[0])
        act.turn()
        self.assertIsNotNone(listener._server)

    def test_url_is_not_told(self):
        """Nor in a traceback, or by oslo.messaging, which tries the port."""
        for url in (f'rabbit://u:p@host:{SECRET}/', f'u:{SECRET}',
                    f'u:{SECRET}@host',
                    f'rabbit://u:{SECRET}/p@host:5672/',
                    f'rabbit://u:{SECRET}?p@host:5672/',
                    f'rabbit://u:{SECRET}#p@host:5672/',
                    f'rabbit://u:p@host-1,u:{SECRET}/p@host:5672/',
                    'rabbit://u:5673/p@host:5672/'):
            self.config(group='ironic_multihost',
                        ironic_notifications_url=url)
            act = periodic.PeriodicTask(
                'notifications', self.listen().once, lambda: 1)
            with self.assertLogs(level='DEBUG') as logs:
                act.turn()
            told = '\n'.join(logs.output)
            self.assertIn('ListeningError', told)
            self.assertIn('quoted', told)
            self.assertNotIn(SECRET, told, url)
            self.assertNotIn('5673', told, url)

    def test_password_that_is_quoted(self):
        self.config(group='ironic_multihost',
                    ironic_notifications_url='fake://u:%2F%40%23@host/a')
        self.listen().once()

    def test_no_connection_is_left_if_there_is_no_thread(self):
        listener = self.listen()
        cleanup = self.useFixture(fixtures.MockPatchObject(
            driver_base.PollStyleListenerAdapter, 'cleanup')).mock
        with mock.patch.object(
                driver_base.PollStyleListenerAdapter, 'start',
                side_effect=RuntimeError("can't start new thread")):
            self.assertRaises(ironic_listener.ListeningError, listener.once)
        cleanup.assert_called_once_with()
        listener.once()


class Channel(pyamqp.Channel):
    """A channel to a broker that is not there."""

    def __init__(self, exchanges=('ironic',)):
        self.exchanges = exchanges
        self.calls = []

    def exchange_declare(self, exchange, passive=False, **kwargs):
        self.calls.append(('exchange', exchange, passive))
        if exchange not in self.exchanges:
            raise amqp.exceptions.NotFound

    def queue_declare(self, queue, exclusive, auto_delete, durable,
                      **kwargs):
        self.calls.append(('queue', queue, exclusive))
        return mock.Mock(queue=queue)

    def queue_bind(self, queue, exchange, routing_key, **kwargs):
        self.calls.append(('bind', queue, exchange, routing_key))


class RabbitTestCase(BusTestCase):

    def driver(self):
        transport = oslo_messaging.get_notification_transport(
            names.CONF, url='rabbit://u:p@127.0.0.1:9/')
        transport._driver.__class__ = ironic_listener.Driver
        return transport._driver

    def test_listener_has_a_connection_of_its_own(self):
        driver = self.driver()
        connection = mock.Mock()
        target = oslo_messaging.Target(exchange='ironic', topic=TOPIC)
        with mock.patch.object(driver._connection_pool, 'create',
                               return_value=connection) as create:
            driver.listen_for_notifications(
                {(target, 'info'), (target, 'error')}, 'mine', 1, None)
        create.assert_called_once_with(
            common.PURPOSE_LISTEN, retry=ironic_listener.ATTEMPTS)
        consumer = connection.declare_consumer.call_args.args[0]
        self.assertIsInstance(consumer, ironic_listener.Consumer)
        self.assertEqual(
            ('ironic', f'{TOPIC}.*', 'mine'),
            (consumer.exchange_name, consumer.routing_key,
             consumer.queue_name))
        connection.declare_consumer.assert_called_once()

    def test_connection_of_no_use_is_closed(self):
        driver = self.driver()
        connection = mock.Mock()
        connection.declare_consumer.side_effect = OSError('refused')
        target = oslo_messaging.Target(exchange='ironic', topic=TOPIC)
        with mock.patch.object(driver._connection_pool, 'create',
                               return_value=connection):
            self.assertRaises(
                OSError, driver.listen_for_notifications,
                {(target, 'info')}, 'mine', 1, None)
        connection.close.assert_called_once_with()

    def test_queue_goes_with_the_connection(self):
        consumer, notes = self.consumer()
        queues = []
        for _ in range(2):
            connection = mock.Mock(channel=Channel())
            consumer.declare(connection)
            self.assertIs(connection.channel, consumer._declared_on)
            exchange, queue, bind = connection.channel.calls
            # Nothing of Ironic's is made here.
            self.assertEqual(('exchange', 'ironic', True), exchange)
            self.assertTrue(queue[1].startswith('mine.'))
            self.assertTrue(queue[2])
            self.assertEqual(
                ('bind', queue[1], 'ironic', f'{TOPIC}.*'), bind)
            queues.append(queue[1])
        # RabbitMQ may hold the one before for a while.
        self.assertNotEqual(*queues)
        self.assertEqual([True, True], notes)

    def consumer(self):
        """Return a consumer, and where it notes whether it hears anything."""
        notes = []
        return ironic_listener.Consumer(
            'ironic', 'mine', f'{TOPIC}.*', 'topic', False, False, True, None,
            note=notes.append), notes

    def test_without_an_exchange_it_hears_nothing(self):
        consumer, notes = self.consumer()
        connection = mock.Mock(channel=Channel(exchanges=()))
        consumer.declare(connection)
        self.assertEqual(['exchange', 'queue'],
                         [name for name, *_ in connection.channel.calls])
        self.assertIs(connection.channel, consumer._declared_on)
        self.assertEqual([False], notes)
        connection.channel.exchanges = 'ironic',
        consumer.declare(connection)
        self.assertEqual([False, True], notes)

    def test_rabbitmq_is_listened_to_that_way(self):
        self.config(group='ironic_multihost',
                    ironic_notifications_url='rabbit://u:p@127.0.0.1:9/')
        listener, servers = self.listen(), []

        def listen(driver, targets, pool, *batch):
            self.assertEqual('ironic-multihost.host-1', pool)
            driver._note(len(servers) > 0)
            servers.append(mock.Mock())
            return servers[-1]

        self.useFixture(fixtures.MockPatchObject(
            ironic_listener.Driver, 'listen_for_notifications', listen))
        error = self.assertRaises(
            ironic_listener.ListeningError, listener.once)
        self.assertIn('it has sent none so far', str(error))
        # What hears nothing is closed, and tried anew.
        listener.once()
        servers[0].stop.assert_called_once_with()
        servers[0].cleanup.assert_called_once_with()
        listener.once()
        self.assertEqual(2, len(servers))
        # The exchange has gone with RabbitMQ.
        listener._server.transport._driver._note(False)
        listener.once()
        self.assertEqual(3, len(servers))
