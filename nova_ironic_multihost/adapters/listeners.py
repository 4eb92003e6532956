# SPDX-License-Identifier: Apache-2.0

"""The listeners: how a compute service gets its messages.

oslo.messaging acknowledges a message as soon as it has come, and carries it
out then (oslo_messaging._drivers.amqpdriver:RpcAMQPListener.__call__). What
RabbitMQ does not have any more is lost with the process. So two kinds of
messages are acknowledged later, or not at all:

A build, when there is a copy of it, or is to be none (:func:`acknowledge`),
and at the latest when it was carried out, in whichever way: the RPC server
answers each message, also one of which nobody awaits the answer
(oslo_messaging.rpc.server:RPCServer._process_incoming). Until then RabbitMQ
gives it to the next process.

What comes when the listener is stopped. It still has its consumers, and waits
for an answer of RabbitMQ while it closes its connection (_drivers.impl_rabbit:
Connection.close), and nobody carries out what comes before that. With nova 34
those are all messages of the up to 140 s in which the service ends; with
others, of the time in which what it is at comes to an end.
"""

import functools
import threading
import typing

from nova import rpc
from oslo_log import log as logging
from oslo_messaging._drivers import amqp
from oslo_messaging._drivers import amqpdriver

LOG = logging.getLogger(__name__)

#: The method that is sent for a build.
BUILD = 'build_and_run_instance'

#: What this thread carries out.
_current = threading.local()


class Message(amqpdriver.AMQPIncomingMessage):
    """A message that has come.

    One thread carries it out: it calls :meth:`acknowledge` first, and
    :meth:`reply` at last.
    """

    def acknowledge(self) -> None:
        """Note that this thread carries it out; RabbitMQ is told later."""
        _current.message = self

    def reply(self, reply: typing.Any = None,
              failure: typing.Any = None) -> None:
        """Answer it, if somebody waits for that."""
        self.release()
        super().reply(reply, failure)

    def release(self) -> None:
        """Have RabbitMQ told that it need not have it any more.

        By the thread of the listener, as kombu is not thread-safe; within
        five seconds (amqpdriver.ACK_REQUEUE_EVERY_SECONDS_MAX).
        """
        self._message_operations_handler.do(
            functools.partial(self.listener.release, self.unique_id))


class Listener(amqpdriver.RpcAMQPListener):
    """Leaves to RabbitMQ what is not safe yet.

    RabbitMQ has it again when the connection is closed.
    """

    message_cls = Message

    def hold(self) -> None:
        """Begin to hold builds; before anything comes."""
        #: By the unique_id of a build, each delivery of it that RabbitMQ
        #: waits for: more than one, if it was sent again after a lost confirm.
        self._held: dict[str, list[typing.Any]] = {}
        #: The channel over which the last message came, and its number there.
        self._last: tuple[typing.Any, int] = None, 0
        # Who stops it acknowledges what is left.
        self._holding = threading.Lock()

    def __call__(self, message: typing.Any) -> None:
        """Take a message.

        :param message: oslo.messaging's RabbitMessage.
        """
        # Until then, who polls it takes what has come.
        if self._shutoff.is_set():
            return
        unique_id = message.get(amqp.UNIQUE_ID)
        with self._holding:
            self._follow(message._raw_message)
            again = unique_id in self._held
            waits = again or (
                message.get('method') == BUILD
                and unique_id not in (None, *self.msg_id_cache.prev_msgids))
            if waits:
                self._held.setdefault(unique_id, []).append(message)
        if not waits:
            super().__call__(message)
        elif not again:
            amqpdriver.AMQPListener.__call__(self, message)

    def _follow(self, raw: typing.Any) -> None:
        """Forget what came over a channel that is gone: it comes again.

        RabbitMQ counts anew what it delivers over each channel, and takes an
        old number for that of a new message. amqp opens a channel anew that
        RabbitMQ has closed, as the same object (amqp.channel:
        Channel._on_close).

        :param raw: what kombu has of the message that comes.
        """
        channel, number = self._last
        self._last = raw.channel, raw.delivery_tag
        if raw.channel is not channel or raw.delivery_tag <= number:
            for deliveries in self._held.values():
                deliveries.clear()

    def release(self, unique_id: str | None) -> None:
        """Acknowledge each delivery of a message, unless that is done.

        It may come again if that fails; a build is carried out once all the
        same (:mod:`nova_ironic_multihost.rules.builds`). What comes later
        is acknowledged at once, or is a build like any other if 16 others
        came between (oslo_messaging._drivers.amqp:_MsgIdCache).
        """
        with self._holding:
            deliveries = self._held.pop(unique_id, [])
        for message in deliveries:
            try:
                message.acknowledge()
            except Exception as exc:  # noqa: BLE001
                LOG.warning('RabbitMQ may deliver a build again, as it cannot '
                            'be acknowledged: %s', exc)


class Attendance:
    """Says whether somebody reads what comes: each listener has a thread."""

    def __init__(self) -> None:
        self._adapters: tuple[typing.Any, ...] = ()

    def note(self, adapter: typing.Any) -> None:
        """Note a listener.

        :param adapter: a PollStyleListenerAdapter of oslo.messaging.
        """
        self._adapters += (adapter,)

    def goes_on(self) -> bool:
        """Whether no thread has ended of a listener that was not stopped."""
        return all(adapter._listen_thread.is_alive()
                   for adapter in self._adapters if adapter._started)


def acknowledge() -> None:
    """Acknowledge what this thread carries out, if that was put off."""
    message = getattr(_current, 'message', None)
    if message is not None:
        message.release()


def transport_driver() -> amqpdriver.AMQPDriverBase | None:
    """Return what makes nova's listeners; None if not for RabbitMQ."""
    driver = getattr(rpc.TRANSPORT, '_driver', None)
    return driver if isinstance(driver, amqpdriver.AMQPDriverBase) else None


def hold_builds(adapter: typing.Any) -> None:
    """Have a listener leave to RabbitMQ what is not safe yet.

    :param adapter: a new PollStyleListenerAdapter of oslo.messaging, that
        nobody polls yet: nothing has come.
    """
    listener = adapter._poll_style_listener
    if type(listener) is amqpdriver.RpcAMQPListener:
        # It has been handed to the connection.
        listener.__class__ = Listener
        listener.hold()
