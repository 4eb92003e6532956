# SPDX-License-Identifier: Apache-2.0

"""Queues in RabbitMQ: requests for dead hosts, and copies of builds.

The queue ``compute.<host>`` stays when its host dies. An RPC server would
acknowledge all its messages before they are carried out
(amqpdriver:RpcAMQPListener), and lose them with this process. So one message
at a time is pulled (``basic.get``), and acknowledged when it is safe
elsewhere. Nothing consumes here: a host that comes back gets the rest at once.
The connection is oslo.messaging's, which knows hosts, accounts, TLS and
failover.
"""

from __future__ import annotations

from collections import abc
import contextlib
import functools
import threading
import typing

import amqp
from nova.compute import rpcapi
from nova.objects import base
from nova import rpc
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_rabbit

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.rules.forwarding import QueuedRequest
from nova_ironic_multihost.rules.forwarding import RequestKind

LOG = logging.getLogger(__name__)

#: Attempts to connect before an error is raised.
ATTEMPTS = 2

#: Header of a quorum queue with the number of returns of a message.
RETURNS = 'x-delivery-count'

#: In a NOT_FOUND of a queue on a cluster member that is down.
INACCESSIBLE = 'inaccessible'

#: Milliseconds until RabbitMQ deletes an unused queue of copies: a week.
EXPIRY = 7 * 86400 * 1000

#: The topic of copies of builds.
COPIES = f'{rpcapi.RPC_TOPIC}-builds'

#: nova.compute.rpcapi.ComputeAPI.build_and_run_instance: all releases take it.
BUILD_VERSION = '6.0'

#: Retries of a copy; seconds to wait for its turn, and for the confirm.
COPY_RETRIES, COPY_PATIENCE = 1, 10


def copies(host: str) -> str:
    """Return the name of the queue with a host's copies of builds."""
    return f'{COPIES}.{host}'


def queue(host: str) -> str:
    """Return the name of the RPC queue of a host, as nova spells it."""
    # amqpdriver.AMQPDriverBase.listen, nova.service.Service.start
    return f'{rpcapi.RPC_TOPIC}.{host}'


class RpcQueues:
    """The RPC queues of the hosts of this cell (port Queues)."""

    def __init__(self, virtapi):
        manager = names.manager_of(virtapi)
        self._guarded = frozenset(
            operations.sent_to_host(type(manager))
            if manager is not None else ())

    @property
    def readable(self) -> bool:
        return isinstance(
            listeners.transport_driver(), impl_rabbit.RabbitDriver)

    def open(self, host: str) -> RpcQueue:
        return self._open(queue(host))

    def open_copies(self, host: str) -> RpcQueue:
        return self._open(copies(host))

    def _open(self, name):
        connection = listeners.transport_driver()._connection_pool.create(
            common.PURPOSE_LISTEN, retry=ATTEMPTS)
        try:
            return RpcQueue(connection, name, self._guarded)
        except Exception:
            with contextlib.suppress(Exception):
                connection.close()
            raise


class RpcQueue:
    """A connection to one RPC queue (port Queue), used by one thread.

    It is unusable after an error. Unacknowledged messages return to the queue
    when it is closed.

    :param guarded: methods that a host refuses for an instance that moved.
    """

    def __init__(self, connection: impl_rabbit.Connection, name: str,
                 guarded: abc.Container[str]) -> None:
        self._connection = connection
        self._name = name
        self._guarded = guarded
        # kombu reconnects silently, and would lose the messages held here.
        self._amqp = connection.channel.connection
        self._box = self._open_channel()
        self._out_channel = self._open_channel()
        self._unroutable: list[object] = []
        # oslo.messaging's handler raises; the next message gets the reply
        # left.
        self._out_channel.events['basic_return'].add(
            lambda *returned: self._unroutable.append(returned[0]))

    def _open_channel(self):
        # After an error amqp opens the same channel again
        # (amqp.channel:Channel._on_close).
        channel = self._amqp.channel()
        # A message is forwarded byte for byte.
        channel.auto_decode = False
        return channel

    def create(self) -> None:
        """Create the queue and its binding, or keep the existing queue."""
        refused = None
        arguments: dict[str, object] = {'x-expires': EXPIRY}
        if self._connection.rabbit_quorum_queue:
            arguments['x-queue-type'] = 'quorum'
        with self._permission_errors():
            try:
                self._box.queue_declare(
                    queue=self._name, durable=True, auto_delete=False,
                    arguments=arguments)
            except amqp.exceptions.PreconditionFailed as exc:
                # It exists with other settings, or there are too many queues.
                refused = exc
            try:
                self._box.queue_bind(
                    queue=self._name, routing_key=self._name,
                    exchange=listeners.transport_driver()._default_exchange)
            except amqp.exceptions.NotFound as exc:
                if refused is None:
                    raise
                raise PermissionError(str(refused)) from exc

    def consumers(self) -> int | None:
        with self._permission_errors():
            try:
                return self._box.queue_declare(
                    queue=self._name, passive=True).consumer_count
            except amqp.exceptions.NotFound as exc:
                if INACCESSIBLE in str(exc):
                    raise
        return None

    @contextlib.contextmanager
    def _permission_errors(self):
        try:
            yield
        except amqp.exceptions.AccessRefused as exc:
            raise PermissionError(str(exc)) from exc

    def take(self) -> QueuedRequest | None:
        with self._permission_errors():
            message = self._box.basic_get(self._name, no_ack=False)
        return None if message is None else self._queued_request(message)

    def beat(self) -> None:
        self._amqp.send_heartbeat()

    @contextlib.contextmanager
    def attended(self) -> abc.Iterator[None]:
        # oslo.messaging sends them only while it waits for messages.
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
        # Three heartbeats in RabbitMQ's timeout; 0 means none.
        pause = self._amqp.heartbeat / 3 or None
        while not done.wait(pause):
            try:
                self.beat()
            except Exception as exc:  # noqa: BLE001
                # The next use of the connection raises the error.
                LOG.debug('No heartbeat for %(queue)s: %(exc)s',
                          {'queue': self._name, 'exc': exc})
                return

    def hand_on(
        self, request: QueuedRequest, host: str, copy: bool = False
    ) -> bool:
        """Send a message to another host, then acknowledge it.

        :returns: False if that host has no queue; the message is still held.
        """
        message = request.handle
        headers = message.properties.get('application_headers') or {}
        forwarded = amqp.basic_message.Message(message.body, **{
            **message.properties, 'application_headers': {
                name: value for name, value in headers.items()
                # RabbitMQ sets these itself.
                if not name.startswith('x-')}})
        self._unroutable.clear()
        try:
            self._out_channel.basic_publish_confirm(
                forwarded, exchange=message.delivery_info['exchange'],
                routing_key=copies(host) if copy else queue(host),
                mandatory=True)
        except amqp.exceptions.MessageNacked:
            return False
        if self._unroutable:
            return False
        self.drop(request)
        return True

    def drop(self, request: QueuedRequest) -> None:
        self._box.basic_ack(request.handle.delivery_tag)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()

    def _queued_request(self, message):
        headers = message.properties.get('application_headers') or {}
        returns = headers.get(RETURNS, 0)
        try:
            content = common.deserialize_msg(
                self._box.message_to_python(message).payload)
            kind, instance, node = _request(content, self._guarded)
            arguments = content['args']
        except Exception as exc:  # noqa: BLE001
            # The text of an error could quote secrets of the message.
            LOG.debug('A message in %(queue)s cannot be parsed: %(error)s',
                      {'queue': self._name, 'error': type(exc).__name__})
            kind, instance, node, arguments = RequestKind.OTHER, None, None, {}
        return QueuedRequest(
            kind, instance, node,
            returns if isinstance(returns, int) else 0, message, arguments)


def _request(message: dict[str, typing.Any], guarded: abc.Container[str]
             ) -> tuple[RequestKind, str | None, str | None]:
    """Return what a message asks for: (kind, instance, node)."""
    # oslo_messaging.rpc.client:_BaseCallContext._make_message
    method, arguments = message['method'], message['args']
    if (message.get('namespace') is not None
            or arguments.get('recreate')
            or method != listeners.BUILD and method not in guarded):
        return RequestKind.OTHER, None, None
    instance = _uuid(arguments['instance'])
    if method == listeners.BUILD:
        return RequestKind.BUILD, instance, arguments.get('node')
    return RequestKind.OPERATION, instance, None


def _uuid(instance):
    """Return the uuid of an instance serialized by obj_to_primitive()."""
    if instance['nova_object.name'] != 'Instance':
        raise ValueError('no instance')
    return instance['nova_object.data']['uuid']


class BuildCopier:
    """Sends copies of build messages (port Copier), for several threads."""

    def __init__(self, host: str) -> None:
        self._host = host
        # One copy at a time: each takes a connection.
        self._turn = threading.Lock()

    def copy(self, arguments: abc.Mapping[str, typing.Any]) -> None:
        """Send a copy.

        :raises TimeoutError: the copy is not confirmed; it may still arrive.
        :raises Exception: it is not sent, or threads are used up.
        """
        # Serialized now, as nova changes the arguments later.
        serializer = base.NovaObjectSerializer()
        content = {
            name: value if name == 'context'
            else serializer.serialize_entity(arguments['context'], value)
            for name, value in arguments.items()}
        if not self._turn.acquire(timeout=COPY_PATIENCE):
            raise TimeoutError('the copy before is not confirmed')
        # A thread: oslo.messaging may wait for ever, and workers are few.
        sent = threading.Event()
        failures: list[Exception] = []
        try:
            threading.Thread(
                target=self._send, args=(content, failures, sent),
                name='ironic-multihost-copy', daemon=True).start()
        except RuntimeError:
            self._turn.release()
            raise
        if not sent.wait(COPY_PATIENCE):
            raise TimeoutError('the copy is not confirmed')
        if failures:
            raise failures[0]

    def _send(self, content, failures, sent):
        try:
            self._client.cast(
                content.pop('context'), listeners.BUILD, **content)
        except Exception as exc:  # noqa: BLE001
            failures.append(exc)
        finally:
            self._turn.release()
            sent.set()

    @functools.cached_property
    def _client(self):
        return rpc.get_client(
            messaging.Target(topic=COPIES, server=self._host,
                             version=BUILD_VERSION),
            serializer=base.NovaObjectSerializer()).prepare(retry=COPY_RETRIES)
