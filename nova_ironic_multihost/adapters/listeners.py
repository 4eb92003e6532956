# SPDX-License-Identifier: Apache-2.0

"""Listeners that acknowledge builds later than oslo.messaging does.

oslo.messaging acknowledges a message before it is carried out
(amqpdriver.RpcAMQPListener.__call__), so it is lost with the process. Here a
build is acknowledged when its copy is safe or not needed
(:func:`acknowledge`), at the latest at the reply, which the RPC server sends
to casts, too (rpc.server:RPCServer._process_incoming). A message that arrives
while the listener stops is not acknowledged: the connection still consumes
(impl_rabbit:Connection.close), in nova 34 for up to 140 s, but nothing is
carried out. RabbitMQ gives such messages to the next process.
"""

import functools
import threading
import typing

from nova import rpc
from oslo_log import log as logging
from oslo_messaging._drivers import amqp
from oslo_messaging._drivers import amqpdriver

LOG = logging.getLogger(__name__)

BUILD = 'build_and_run_instance'

#: ``message``: the one that this thread carries out.
_current = threading.local()


class Message(amqpdriver.AMQPIncomingMessage):
    """A message that one thread carries out."""

    def acknowledge(self) -> None:
        """Remember the message for this thread; it is acknowledged later."""
        # oslo.messaging calls this before the operation, and reply() after it.
        _current.message = self

    def reply(self, reply: typing.Any = None,
              failure: typing.Any = None) -> None:
        """Acknowledge the message, and reply if the caller waits."""
        self.release()
        super().reply(reply, failure)

    def release(self) -> None:
        """Have the listener's thread acknowledge it within five seconds."""
        # kombu is not thread-safe.
        self._message_operations_handler.do(
            functools.partial(self.listener.release, self.unique_id))


class Listener(amqpdriver.RpcAMQPListener):
    """A listener that leaves unsafe messages to the next connection."""

    message_cls = Message

    def hold(self) -> None:
        """Begin to hold builds; call it before any message arrives."""
        #: unique_id of a build -> its unacknowledged deliveries.
        self._held: dict[str, list[typing.Any]] = {}
        #: Channel and delivery tag of the last message.
        self._last: tuple[typing.Any, int] = None, 0
        # Guards both: the thread that stops the listener acknowledges, too.
        self._holding = threading.Lock()

    def __call__(self, message: typing.Any) -> None:
        """Take a RabbitMessage of oslo.messaging."""
        # From then on no thread takes messages from this listener.
        if self._shutoff.is_set():
            return
        unique_id = message.get(amqp.UNIQUE_ID)
        with self._holding:
            self._drop_closed_channel(message._raw_message)
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

    def _drop_closed_channel(self, raw: typing.Any) -> None:
        """Drop the deliveries of a closed channel: they come again."""
        channel, number = self._last
        self._last = raw.channel, raw.delivery_tag
        # amqp reopens a channel as the same object (amqp.channel:Channel.
        # _on_close); an old tag would acknowledge another message.
        if raw.channel is not channel or raw.delivery_tag <= number:
            for deliveries in self._held.values():
                deliveries.clear()

    def release(self, unique_id: str | None) -> None:
        """Acknowledge each delivery of a message that is still held.

        After an error the build comes again, but is carried out once
        (:mod:`.rules.builds`). 16 messages later (amqp:_MsgIdCache) a delivery
        counts as a new build; until then it is acknowledged at once.
        """
        with self._holding:
            deliveries = self._held.pop(unique_id, [])
        for message in deliveries:
            try:
                message.acknowledge()
            except Exception as exc:  # noqa: BLE001
                LOG.warning('RabbitMQ may deliver a build again, as it could '
                            'not be acknowledged: %s', exc)


class Attendance:
    """Tells whether the threads of the listeners run."""

    def __init__(self) -> None:
        self._adapters: tuple[typing.Any, ...] = ()

    def note(self, adapter: typing.Any) -> None:
        """Add a PollStyleListenerAdapter of oslo.messaging."""
        self._adapters += (adapter,)

    def goes_on(self) -> bool:
        """Whether each listener that was not stopped has a live thread."""
        return all(adapter._listen_thread.is_alive()
                   for adapter in self._adapters if adapter._started)


def acknowledge() -> None:
    """Acknowledge the message of this thread if it is still held."""
    message = getattr(_current, 'message', None)
    if message is not None:
        message.release()


def transport_driver() -> amqpdriver.AMQPDriverBase | None:
    """Return oslo.messaging's driver; None if it is not RabbitMQ's."""
    driver = getattr(rpc.TRANSPORT, '_driver', None)
    return driver if isinstance(driver, amqpdriver.AMQPDriverBase) else None


def hold_builds(adapter: typing.Any) -> None:
    """Turn the listener of an adapter that no thread polls yet into ours."""
    listener = adapter._poll_style_listener
    if type(listener) is amqpdriver.RpcAMQPListener:
        # The connection has a reference to it: change its class.
        listener.__class__ = Listener
        listener.hold()
