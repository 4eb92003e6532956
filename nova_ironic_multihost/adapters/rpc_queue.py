# SPDX-License-Identifier: Apache-2.0

"""The queues of other compute services: their queues in RabbitMQ.

nova sends to the queue ``compute.<host>``, which stays when its host dies.
oslo.messaging has no way to read it without harm: an RPC server takes all that
waits at once and acknowledges each message before it is carried out, and
whatever the process then holds is gone with it
(oslo_messaging._drivers.amqpdriver:RpcAMQPListener). So messages are pulled
one by one (``basic.get``) through a connection of oslo.messaging's driver,
which knows hosts, accounts, TLS and failover, and each is acknowledged when it
is somewhere else for sure: a reader that dies meanwhile has taken nothing.

Nothing is declared or consumed here: a host that comes back gets all that is
left, at once.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Iterator
import contextlib
import functools
import threading
import typing

import amqp
from nova.compute import rpcapi
from nova import rpc
from oslo_log import log as logging
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_rabbit

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind

LOG = logging.getLogger(__name__)

#: How often a connection is tried until it is given up for now.
ATTEMPTS = 2

#: What is on a message since a quorum queue was given it back.
RETURNS = 'x-delivery-count'

#: RabbitMQ calls a queue not found, too, that is on a member of its cluster
#: that is down.
INACCESSIBLE = 'inaccessible'

#: Milliseconds for which copies wait that nobody reads: a week.
EXPIRY = 7 * 86400 * 1000

#: nova's topic of builds, and that of their copies.
COPIES = f'{rpcapi.RPC_TOPIC}-builds'


def copies(host: str) -> str:
    """Return the name of the queue with a host's copies of builds."""
    return f'{COPIES}.{host}'


def queue(host: str) -> str:
    """Return the name of the queue of a host, as nova spells that.

    oslo.messaging makes it of the target of nova's RPC server
    (amqpdriver.AMQPDriverBase.listen, nova.service.Service.start).
    """
    return f'{rpcapi.RPC_TOPIC}.{host}'


class RpcQueues:
    """The queues that this process can read: those of its own cell.

    Implements the port :class:`.engine.base.ports.Queues`.

    :param virtapi: what nova gave to the driver.
    """

    def __init__(self, virtapi):
        self._manager = names.manager_of(virtapi)

    @property
    def readable(self) -> bool:
        """Whether nova's messages go through RabbitMQ."""
        return isinstance(_driver(), impl_rabbit.RabbitDriver)

    def open(self, host: str) -> RpcQueue:
        """Connect to the queue of a host, whether or not there is one."""
        return self._open(queue(host))

    def open_copies(self, host: str) -> RpcQueue:
        """Connect to a host's copies of builds, whether there are any."""
        return self._open(copies(host))

    def _open(self, name):
        connection = _driver()._connection_pool.create(
            common.PURPOSE_LISTEN, retry=ATTEMPTS)
        try:
            return RpcQueue(connection, name, self._operations)
        except Exception:
            with contextlib.suppress(Exception):
                connection.close()
            raise

    @functools.cached_property
    def _operations(self):
        return frozenset(
            operations.sent_to_host(type(self._manager))
            if self._manager is not None else ())


def _driver():
    return getattr(rpc.TRANSPORT, '_driver', None)


class RpcQueue:
    """A connection to one queue. One thread uses it.

    Implements the port :class:`.engine.base.ports.Queue`. After an error it
    is of no use any more; what was held goes back when it is closed.

    :param connection: oslo.messaging's Connection.
    :param name: of the queue.
    :param gated: names of the methods that a host does not carry out for an
        instance that has moved.
    """

    def __init__(self, connection: impl_rabbit.Connection, name: str,
                 gated: Container[str]) -> None:
        self._connection = connection
        self._name = name
        self._gated = gated
        # kombu would connect again unasked, and what is held would not be.
        self._amqp = connection.channel.connection
        self._box = self._channel()
        self._out = self._channel()
        self._unroutable: list[object] = []
        # oslo.messaging's own producer raises there, and takes the answer
        # that is left over for that to the next message.
        self._out.events['basic_return'].add(
            lambda *returned: self._unroutable.append(returned[0]))

    def _channel(self):
        channel = self._amqp.channel()
        # What is handed on is what was taken, byte for byte.
        channel.auto_decode = False
        return channel

    def create(self) -> None:
        """Have it in RabbitMQ, for what is sent to it by nova's way.

        It outlives RabbitMQ, if that is started anew. If it is there already
        it stays as it is.

        :raises PermissionError: the account may not.
        """
        refused = None
        arguments: dict[str, object] = {'x-expires': EXPIRY}
        if self._connection.rabbit_quorum_queue:
            arguments['x-queue-type'] = 'quorum'
        try:
            try:
                self._box.queue_declare(
                    queue=self._name, durable=True, auto_delete=False,
                    arguments=arguments)
            except amqp.exceptions.PreconditionFailed as exc:
                # It was made with other settings; or there are too many.
                refused = exc
                self._box = self._channel()
            try:
                self._box.queue_bind(
                    queue=self._name, exchange=_driver()._default_exchange,
                    routing_key=self._name)
            except amqp.exceptions.NotFound as exc:
                if refused is None:
                    raise
                raise PermissionError(str(refused)) from exc
        except amqp.exceptions.AccessRefused as exc:
            raise PermissionError(str(exc)) from exc

    def consumers(self) -> int | None:
        """Return how many read it, as RabbitMQ counts; None if it is not.

        See :func:`.rules.forwarding.returned`.
        """
        try:
            return self._box.queue_declare(
                queue=self._name, passive=True).consumer_count
        except amqp.exceptions.NotFound as exc:
            if INACCESSIBLE in str(exc):
                raise
            self._box = self._channel()
            return None
        except amqp.exceptions.AccessRefused as exc:
            self._box = self._channel()
            raise PermissionError(str(exc)) from exc

    def take(self) -> QueuedRequest | None:
        """Take the next message; None if there is none.

        :raises PermissionError: the account may not.
        """
        try:
            message = self._box.basic_get(self._name, no_ack=False)
        except amqp.exceptions.AccessRefused as exc:
            self._box = self._channel()
            raise PermissionError(str(exc)) from exc
        return None if message is None else self._queued_request(message)

    def beat(self) -> None:
        """Send a heartbeat."""
        self._amqp.send_heartbeat()

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Send heartbeats while this thread does not use the connection.

        RabbitMQ closes it otherwise: oslo.messaging sends them while it waits
        for messages, and this does not.
        """
        done = threading.Event()
        thread = threading.Thread(
            target=self._beat_until, args=(done,), daemon=True,
            name='ironic-multihost-heartbeat')
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _beat_until(self, done):
        # Three in the time after which RabbitMQ misses them; 0 for never.
        pause = self._amqp.heartbeat / 3 or None
        while not done.wait(pause):
            try:
                self.beat()
            except Exception as exc:  # noqa: BLE001
                # Who uses it next is told.
                LOG.debug('No heartbeat for %(queue)s: %(exc)s',
                          {'queue': self._name, 'exc': exc})
                return

    def hand_on(
        self, request: QueuedRequest, host: str, copy: bool = False
    ) -> bool:
        """Send a message to another host, and acknowledge it then.

        :param host: as nova spells it.
        :param copy: to where its copies are, not to its queue.
        :returns: whether that has a queue, and has it now. If not, the
            message is still held.
        """
        message = request.handle
        headers = message.properties.get('application_headers') or {}
        same = amqp.basic_message.Message(message.body, **{
            **message.properties, 'application_headers': {
                name: value for name, value in headers.items()
                # Those are RabbitMQ's.
                if not name.startswith('x-')}})
        self._unroutable.clear()
        try:
            self._out.basic_publish_confirm(
                same, exchange=message.delivery_info['exchange'],
                routing_key=copies(host) if copy else queue(host),
                mandatory=True)
        except amqp.exceptions.MessageNacked:
            return False
        if self._unroutable:
            return False
        self.drop(request)
        return True

    def drop(self, request: QueuedRequest) -> None:
        """Acknowledge a message."""
        self._box.basic_ack(request.handle.delivery_tag)

    def close(self) -> None:
        """Give back what is held; raises nothing."""
        with contextlib.suppress(Exception):
            self._connection.close()

    def _queued_request(self, message):
        headers = message.properties.get('application_headers') or {}
        returns = headers.get(RETURNS, 0)
        try:
            content = common.deserialize_msg(
                self._box.message_to_python(message).payload)
            kind, instance, node = _request(content, self._gated)
            arguments = content['args']
        except Exception as exc:  # noqa: BLE001
            # The text of an error may quote the message.
            LOG.debug('A message in %(queue)s is not understood: %(error)s',
                      {'queue': self._name, 'error': type(exc).__name__})
            kind, instance, node, arguments = RequestKind.OTHER, None, None, {}
        return QueuedRequest(
            kind, instance, node,
            returns if isinstance(returns, int) else 0, message, arguments)


def _request(message: dict[str, typing.Any], gated: Container[str]
             ) -> tuple[RequestKind, str | None, str | None]:
    """Return what a message asks for: (kind, instance, node).

    :param message: what an RPC client has sent, without its envelope
        (oslo_messaging.rpc.client:_BaseCallContext._make_message).
    """
    method, arguments = message['method'], message['args']
    if (message.get('namespace') is not None
            or arguments.get('recreate')
            or method != listeners.BUILD and method not in gated):
        return RequestKind.OTHER, None, None
    instance = _uuid(arguments['instance'])
    if method == listeners.BUILD:
        return RequestKind.BUILD, instance, arguments.get('node')
    return RequestKind.OPERATION, instance, None


def _uuid(instance):
    """Return the uuid of an instance that NovaObjectSerializer has written.

    nova.objects.base:NovaObject.obj_to_primitive.
    """
    if instance['nova_object.name'] != 'Instance':
        raise ValueError('no instance')
    return instance['nova_object.data']['uuid']
