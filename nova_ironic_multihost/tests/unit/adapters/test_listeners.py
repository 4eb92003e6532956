# SPDX-License-Identifier: Apache-2.0

"""When RabbitMQ is told that a message need not be kept.

With a broker: lab/tests/stack/test_delivery.py.
"""

import functools
import inspect
import itertools
import threading
from unittest import mock

import amqp as amqp_library
import fixtures
from kombu import message as kombu_message
from nova import rpc
from oslo_config import fixture as config_fixture
import oslo_messaging
from oslo_messaging._drivers import amqp
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import base as driver_base
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_rabbit
from oslo_messaging.rpc import server as rpc_server
from oslotest import base as oslo_base

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import operations


class LibrariesTestCase(oslo_base.BaseTestCase):

    def test_deliveries_of_kombu(self):
        raw = Raw({}, mock.sentinel.channel, 7)
        self.assertIs(raw, impl_rabbit.RabbitMessage(raw)._raw_message)
        channel = mock.Mock(no_ack_consumers=None)
        real = kombu_message.Message(
            b'', delivery_tag=7, channel=channel, delivery_info={})
        real.ack()
        channel.basic_ack.assert_called_once_with(7, multiple=False)
        self.assertEqual((channel, 7), (real.channel, real.delivery_tag))

    def test_channel_that_is_gone_takes_no_acknowledgement(self):
        channel = amqp_library.Channel(mock.Mock(channels={}), 1)
        channel.basic_ack(7)
        channel.collect()
        self.assertRaises(
            amqp_library.RecoverableConnectionError, channel.basic_ack, 7)

    def test_channel_that_rabbitmq_closes_is_opened_anew(self):
        self.assertIn('self._do_revive()', inspect.getsource(
            amqp_library.Channel._on_close))

    def test_what_fails_to_be_taken_is_rejected(self):
        self.assertIn('message.reject()', inspect.getsource(
            impl_rabbit.Consumer._callback))

    def test_each_message_is_answered(self):
        source = inspect.getsource(rpc_server.RPCServer._process_incoming)
        taken, done = (source.index(step) for step in (
            'message.acknowledge()', 'self.dispatcher.dispatch(message)'))
        self.assertLess(taken, done)
        self.assertLess(done, source.index('message.reply(res)'))
        self.assertLess(done, source.index('message.reply(failure=failure)'))


class Raw:
    """What kombu has of a message.

    :param number: of its delivery over the channel, from 1.
    """

    def __init__(self, content, channel, number, error=None):
        self.payload = common.serialize_msg(content)
        self.channel, self.delivery_tag = channel, number
        self.error = error
        self.acknowledged = 0

    def ack(self):
        self.acknowledged += 1
        if self.error:
            raise self.error


class ListenerTestCase(oslo_base.BaseTestCase):
    """A server of nova's, with a connection to a broker that is not there."""

    version = '6.4'

    def setUp(self):
        super().setUp()
        self.useFixture(config_fixture.Config(names.CONF))
        names.CONF([], project='nova', default_config_files=[])
        transport = oslo_messaging.get_rpc_transport(
            names.CONF, 'rabbit://nova:secret@127.0.0.1:1/')
        self.copies, self.builds = [], []
        self.server = oslo_messaging.get_rpc_server(
            transport, oslo_messaging.Target(topic='compute', server='host-1'),
            [self], 'threading')
        self.stock = amqpdriver.RpcAMQPListener(
            transport._driver, mock.Mock(
                **{'consume.side_effect': common.Timeout}))
        self.listener = self.hold(self.stock)
        self.reconnect()

    target = oslo_messaging.Target(version=version)

    @staticmethod
    def hold(listener):
        listeners.hold_builds(driver_base.PollStyleListenerAdapter(
            listener, 1, None))
        return listener

    # What the server offers.

    def build_and_run_instance(self, context, instance):
        def copy(*build):
            self.copies.append(self.acknowledged())
            self.copy()

        def act(compute, context, instance, node=None):
            self.listen()
            self.builds.append(self.acknowledged())
            self.act()

        parts = mock.Mock(**{'backups.keep': copy})
        operations.accept_build(parts, apply.Call(
            mock.sentinel.compute, listeners.BUILD,
            functools.partial(act, mock.sentinel.compute),
            ('context', 'instance'), (context, mock.Mock(uuid=instance)), {}))

    def reboot_instance(self, context, instance):
        self.builds.append(self.acknowledged())

    def listen(self):
        """Let the thread of the listener do what it is to do."""
        self.listener._message_operations_handler.process()

    def copy(self):
        """Have it copied."""

    def act(self):
        """Have it carried out."""

    def acknowledged(self):
        return self.raw.acknowledged

    def reconnect(self):
        """Have the next message come over another channel."""
        self.channel = object()
        self.reopen()

    def reopen(self):
        """Have RabbitMQ count anew, as it has closed the channel."""
        self.numbers = itertools.count(1)

    def receive(self, method='build_and_run_instance', unique_id='1',
                error=None, **more):
        """Have a message come; return what kombu has of it."""
        self.raw = Raw({
            'method': method, 'args': {'instance': 'i1'}, 'version': '6.0',
            '_context_user': 'u', amqp.UNIQUE_ID: unique_id, **more},
            self.channel, next(self.numbers), error)
        self.listener(impl_rabbit.RabbitMessage(self.raw))
        return self.raw

    def carry_out(self):
        """Carry out what has come, as a thread of the server does."""
        while found := self.listener.poll(timeout=0):
            self.server._process_incoming(found)
        self.listener.poll(timeout=0)

    def test_stock_loses_what_it_is_at(self):
        """Or there is no need for this module any more."""
        self.listener = amqpdriver.RpcAMQPListener(
            self.stock.driver, self.stock.conn)
        self.assertEqual(1, self.receive().acknowledged)

    def test_stock_loses_what_comes_when_it_is_stopped(self):
        self.listener = amqpdriver.RpcAMQPListener(
            self.stock.driver, self.stock.conn)
        self.listener._shutdown.set()
        self.assertFalse(self.listener.poll())
        self.assertEqual(1, self.receive('reboot_instance').acknowledged)

    def test_build_is_acknowledged_when_there_is_a_copy(self):
        raw = self.receive()
        self.carry_out()
        self.assertEqual([0], self.copies)
        self.assertEqual([1], self.builds)
        self.assertEqual(1, raw.acknowledged)

    def test_only_the_thread_of_the_listener_acknowledges(self):
        """kombu is not thread-safe."""
        raw = self.receive()
        self.listen = mock.Mock()
        self.server._process_incoming(self.listener.poll(timeout=0))
        self.assertEqual(1, len(self.builds))
        self.assertEqual(0, raw.acknowledged)
        self.listener.poll(timeout=0)
        self.assertEqual(1, raw.acknowledged)

    def test_other_messages_are_acknowledged_as_ever(self):
        raw = self.receive('reboot_instance')
        self.assertEqual(1, raw.acknowledged)
        self.carry_out()
        self.assertEqual([1], self.builds)
        self.assertEqual(1, raw.acknowledged)

    def test_build_that_cannot_be_copied(self):
        for error in RuntimeError('no thread'), OSError('no answer'):
            self.copy = mock.Mock(side_effect=error)
            raw = self.receive(unique_id=str(error))
            self.carry_out()
            self.copy.assert_called_once_with()
            self.assertEqual(1, raw.acknowledged)

    def test_thread_that_ends_over_a_copy(self):
        self.copy = mock.Mock(side_effect=SystemExit)
        raw = self.receive()
        self.assertRaises(SystemExit, self.carry_out)
        self.listener.poll(timeout=0)
        self.assertEqual(1, raw.acknowledged)

    def test_build_that_fails(self):
        self.act = mock.Mock(side_effect=RuntimeError('no'))
        raw = self.receive()
        self.carry_out()
        self.act.assert_called_once_with()
        self.assertEqual(1, raw.acknowledged)

    def test_build_that_is_not_carried_out_at_all(self):
        for what in ({'version': '7.0'}, {'args': {'unknown': 'argument'}},
                     {'args': 'not understood'}, {'namespace': 'other'}):
            raw = self.receive(unique_id=str(what), **what)
            self.carry_out()
            self.assertEqual(1, raw.acknowledged, what)
        self.assertEqual([], self.builds)

    def test_build_that_somebody_waits_for(self):
        raw = self.receive(_msg_id='1', _reply_q='reply')
        with mock.patch.object(
                amqpdriver.AMQPIncomingMessage, '_send_reply') as sent, (
                    mock.patch.object(self.stock.driver, '_get_connection')):
            self.carry_out()
        sent.assert_called_once()
        self.assertEqual(1, raw.acknowledged)

    def test_build_that_cannot_be_acknowledged(self):
        logged = self.useFixture(fixtures.FakeLogger())
        first = self.receive(error=OSError('reset'))
        self.carry_out()
        self.assertEqual(1, first.acknowledged)
        self.assertEqual(1, len(self.builds))
        self.assertIn('not be acknowledged: reset', logged.output)
        # RabbitMQ delivers it again.
        again = self.receive()
        self.carry_out()
        self.assertEqual(1, again.acknowledged)
        self.assertEqual(1, len(self.builds))

    def test_build_that_was_sent_twice(self):
        """Its sender has not seen that RabbitMQ confirmed it."""
        first = self.receive()
        for other in range(20):
            self.receive('reboot_instance', str(other + 2))
        last = self.receive()
        self.assertEqual((0, 0), (first.acknowledged, last.acknowledged))
        self.carry_out()
        self.assertEqual((1, 1), (first.acknowledged, last.acknowledged))
        self.assertEqual(1, len(self.copies))

    def test_each_delivery_is_acknowledged_if_one_cannot_be(self):
        raws = [self.receive(error=OSError('reset')) for _ in range(2)]
        raws.append(self.receive())
        self.carry_out()
        self.assertEqual([1, 1, 1], [raw.acknowledged for raw in raws])
        self.assertEqual(1, len(self.builds))

    def test_build_that_comes_once_more_when_it_is_copied(self):
        self.receive()
        self.carry_out()
        # oslo.messaging knows it still.
        self.assertEqual(1, self.receive().acknowledged)
        self.carry_out()
        self.assertEqual(1, len(self.builds))
        for other in range(20):
            self.receive('reboot_instance', str(other + 2))
        # It does not any more: it is a build like any other.
        late = self.receive()
        self.assertEqual(0, late.acknowledged)
        self.carry_out()
        self.assertEqual(1, late.acknowledged)

    def test_build_that_comes_again_over_another_channel(self):
        """RabbitMQ takes an old number for that of a new message."""
        for anew in self.reconnect, self.reopen:
            self.copies.clear()
            name = anew.__name__
            before = [self.receive(unique_id=f'{name}{n}') for n in range(3)]
            anew()
            # In another order, and one does not come before it is copied.
            after = [self.receive(unique_id=f'{name}{n}') for n in (1, 0)]
            self.assertEqual([0, 0], [raw.acknowledged for raw in after])
            self.carry_out()
            self.assertEqual([0, 0, 0], [raw.acknowledged for raw in before])
            self.assertEqual([1, 1], [raw.acknowledged for raw in after])
            self.assertEqual(3, len(self.copies))
            self.assertEqual(
                1, self.receive(unique_id=f'{name}2').acknowledged)

    def test_deliveries_over_channels_that_are_gone_do_not_add_up(self):
        for _ in range(10):
            self.reconnect()
            raw = self.receive()
        self.assertEqual([[raw]], [
            [message._raw_message for message in deliveries]
            for deliveries in self.listener._held.values()])
        self.carry_out()
        self.assertEqual({}, self.listener._held)

    def test_message_that_has_no_name(self):
        for _ in range(2):
            self.assertEqual(1, self.receive(unique_id=None).acknowledged)
        self.carry_out()
        self.assertEqual([1, 1], self.builds)

    def test_builds_at_the_same_time(self):
        """Each is acknowledged when it is copied itself."""
        raws = [self.receive(unique_id=str(one)) for one in range(3)]
        found = [self.listener.poll(timeout=0) for _ in raws]
        for done, incoming in enumerate(found):
            self.assertEqual([1] * done + [0] * (3 - done),
                             [raw.acknowledged for raw in raws])
            self.server._process_incoming(incoming)
            self.listener.poll(timeout=0)
        self.assertEqual([1, 1, 1], [raw.acknowledged for raw in raws])

    def test_build_that_is_copied_when_the_service_ends(self):
        self.listen = mock.Mock()
        raw = self.receive()
        self.listener._shutdown.set()
        found = self.listener.poll()
        self.assertFalse(self.listener.poll())
        self.server._process_incoming(found)
        self.assertEqual(0, raw.acknowledged)
        # As that of process_in_background does.
        self.listener._message_operations_handler.process()
        self.assertEqual(1, raw.acknowledged)

    def test_what_comes_when_it_is_stopped_is_left(self):
        self.listener._shutdown.set()
        self.assertFalse(self.listener.poll())
        for method in 'build_and_run_instance', 'reboot_instance':
            self.assertEqual(0, self.receive(method).acknowledged)
        self.assertEqual([], self.listener.incoming)

    def test_what_comes_before_is_carried_out(self):
        self.receive('reboot_instance', '1')
        self.listener._shutdown.set()
        # It is polled once more.
        self.receive('reboot_instance', '2')
        self.assertEqual(2, len(self.listener.poll() + self.listener.poll()))

    def test_nothing_was_put_off_for_who_calls_it_itself(self):
        def call():
            listeners.acknowledge()
            called.append(True)

        called = []
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        self.assertEqual([True], called)

    def test_listeners_of_others_are_left_alone(self):
        other = mock.Mock(prefetch_size=0)
        self.assertIs(other, self.hold(other))
        self.assertFalse(other.method_calls)

    def test_attendance_ends_with_the_thread_of_a_listener(self):
        self.assertIn(
            'self._listen_thread.start()', inspect.getsource(
                driver_base.PollStyleListenerAdapter.start))
        attendance = listeners.Attendance()
        self.assertTrue(attendance.goes_on())
        ends = threading.Event()
        self.addCleanup(ends.set)

        class Polled:
            prefetch_size = 0

            def poll(self, batch_size, batch_timeout):
                ends.wait(60)
                raise SystemExit

            def stop(self):
                ends.set()

        def listen():
            adapter = driver_base.PollStyleListenerAdapter(Polled(), 1, None)
            attendance.note(adapter)
            # It is polled later.
            self.assertTrue(attendance.goes_on())
            adapter.start(self.fail)
            self.assertTrue(attendance.goes_on())
            return adapter

        first, second = listen(), listen()
        ends.set()
        for adapter in first, second:
            adapter._listen_thread.join(60)
        self.assertFalse(attendance.goes_on())
        # Those that were stopped are no matter.
        first.stop()
        self.assertFalse(attendance.goes_on())
        second.stop()
        self.assertTrue(attendance.goes_on())

    def test_driver_of_the_transport(self):
        transport = self.server.transport
        for found, there in (
                (transport, transport._driver), (None, None),
                (oslo_messaging.get_rpc_transport(names.CONF, 'fake://'),
                 None)):
            self.useFixture(fixtures.MockPatchObject(rpc, 'TRANSPORT', found))
            self.assertIs(there, listeners.transport_driver())
