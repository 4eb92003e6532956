# SPDX-License-Identifier: Apache-2.0

"""Ironic's notifications, on the message bus that Ironic sends them to.

Ironic sends each one to the topic exchange ``ironic`` of its bus
(ironic.common.rpc, ironic.common.config; [DEFAULT]control_exchange), with the
topic and the level as routing key (ironic.objects.notification).

A pool of oslo.messaging, in which each compute service would get each of them,
is a queue in RabbitMQ that stays when its host is gone, and is filled up for
ever. What nobody has read is worth nothing here. So with RabbitMQ it is a
queue of the connection's own (:class:`Driver`), which RabbitMQ deletes with
the connection, however that ends. On other buses it is a pool.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import re
import threading
import typing
import uuid

import amqp
import kombu
from oslo_log import log as logging
import oslo_messaging
from oslo_messaging._drivers import amqpdriver
from oslo_messaging._drivers import base
from oslo_messaging._drivers import common
from oslo_messaging._drivers import impl_rabbit

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import settings

LOG = logging.getLogger(__name__)

#: Ironic's exchange, whatever nova's is called.
EXCHANGE = 'ironic'

#: What the events of nodes begin with.
NODE = 'baremetal.node.'

#: Events after which Ironic may show a node that it has not shown before: it
#: is new, or in another partition now (ironic.api.controllers.v1.node).
CAME = frozenset({f'{NODE}create.end', f'{NODE}update.end'})

#: How often a connection is tried until the next turn of the timer.
ATTEMPTS = 2

#: The host of a URL ends at the first of these characters, in the middle of a
#: password that has one of them.
UNQUOTED = re.compile(r'//[^/?#]*[/?#].*@')

#: Why a URL cannot be used; not its text, and no text that may quote it.
UNREADABLE = (
    'the URL cannot be read (%s). A character of the password that is no '
    'letter and no digit may have to be quoted: %%2F for "/", %%3F for "?", '
    '%%23 for "#", %%40 for "@"')

REMEDY = (
    "Ironic's notifications are not heard: %s. Until they are, changes of "
    'nodes are found by asking Ironic. Check that '
    '[ironic_multihost]ironic_notifications_url of nova.conf is the message '
    'bus of Ironic, that its account may read the exchange "ironic", and that '
    'in ironic.conf [DEFAULT]notification_level is "info" and '
    '[oslo_messaging_notifications]driver is "messagingv2"; or set '
    '[ironic_multihost]ironic_notifications to false')


class ListeningError(Exception):
    """Nobody listens to Ironic; the message says what to do."""


class Notifications:
    """Listens to what Ironic says of nodes.

    :param host: this compute service.
    :param take: called in a thread of its own with the uuid of a node, and
        whether Ironic may not have shown the node before. It must not raise.
    """

    def __init__(self, host: str, take: Callable[[str, bool], None]) -> None:
        self._host = host
        self._take = take
        self._ended = threading.Event()
        # Held while the server is started or stopped.
        self._lock = threading.Lock()
        self._server: typing.Any = None

    def once(self) -> None:
        """Begin to listen, if that is wanted and has not been done.

        A bus that goes away later is waited for by oslo.messaging.

        :raises ListeningError: the bus does not answer, or not as it should.
        """
        place = settings.notifications()
        if place is None:
            return
        with self._lock:
            if self._ended.is_set() or self._hears():
                return
            self._stop()
            try:
                self._server = self._listening(*place)
            except Exception as exc:
                raise ListeningError(REMEDY % exc) from exc
            if not self._hears():
                raise ListeningError(REMEDY % 'it has sent none so far')
        LOG.info("This compute service listens to Ironic's notifications "
                 '(topic %s).', place[1])

    def end(self) -> None:
        """Listen no more; a bus that does not answer is not waited for."""
        self._ended.set()
        if settings.notifications() is not None:
            threading.Thread(
                target=self._close, daemon=True,
                name='ironic-multihost-notifications-end').start()

    def _close(self):
        with self._lock:
            self._stop()

    def _stop(self):
        server, self._server = self._server, None
        if server is not None:
            with contextlib.suppress(Exception):
                server.stop()
                server.wait()

    def _hears(self):
        server = self._server
        return server is not None and getattr(
            server.transport._driver, 'bound', True)

    def _listening(self, url, topic):
        transport = _transport(url)
        if type(transport._driver) is impl_rabbit.RabbitDriver:
            # It is nobody else's.
            transport._driver.__class__ = Driver
        # Which executor there is to be, oslo.messaging sees by whether
        # eventlet has patched threads, as nova does.
        server = oslo_messaging.get_notification_listener(
            transport,
            [oslo_messaging.Target(exchange=EXCHANGE, topic=topic)],
            [Endpoint(self._note)], pool=f'ironic-multihost.{self._host}')
        # In the order in which they come; it takes no time.
        try:
            server.start(override_pool_size=1)
        except Exception:
            if server.listener is not None:
                # It is connected, and has no thread.
                server.listener.cleanup()
            raise
        return server

    def _note(self, node, came):
        if not self._ended.is_set():
            self._take(node, came)


def _transport(url: str | None) -> oslo_messaging.Transport:
    """Return what connects to a message bus.

    :param url: None for where nova sends its notifications.
    :raises ValueError: it cannot be used. Nothing of it is told, nor in a
        traceback.
    """
    if UNQUOTED.search(url or ''):
        raise ValueError(UNREADABLE % 'its host ends before an "@"')
    try:
        return oslo_messaging.get_notification_transport(names.CONF, url=url)
    except Exception as exc:  # noqa: BLE001
        raise ValueError(UNREADABLE % type(exc).__name__) from None


class Endpoint:
    """What oslo.messaging calls with each notification, by its level.

    :param take: called with what :func:`parse` has found.
    """

    def __init__(self, take: Callable[[str, bool], None]) -> None:
        self._take = take

    def info(self, context, publisher, event, payload, metadata):
        """Take a notification; it is done with in any case."""
        try:
            found = parse(event, payload)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            # The text of an error may quote the notification.
            LOG.debug('A notification is not understood: %s',
                      type(exc).__name__)
            return
        if found is not None:
            self._take(*found)

    debug = warn = error = critical = info


def parse(event: str, payload: typing.Any) -> tuple[str, bool] | None:
    """Return which node a notification is of, and whether it may be new.

    Nothing else of it is looked at. None if it is of something else than a
    node (a port has a uuid, too).

    :param payload: as ironic.objects.notification writes it.
    :raises AttributeError, KeyError, TypeError, ValueError: not as Ironic
        writes it.
    """
    if not event.startswith(NODE):
        return None
    node = str(uuid.UUID(payload['ironic_object.data']['uuid']))
    return node, event in CAME


class Driver(impl_rabbit.RabbitDriver):
    """Listens through a queue that RabbitMQ deletes with the connection.

    :ivar bound: whether there was an exchange for it, when it has connected.
    """

    bound = False

    def listen_for_notifications(self, targets_and_priorities, pool,
                                 batch_size, batch_timeout):
        """Return the listener.

        :param targets_and_priorities: of one target.
        :param pool: what the name of the queue begins with.
        :raises Exception: RabbitMQ does not answer, or refuses it.
        """
        (exchange, topic), = {(target.exchange, target.topic)
                              for target, _ in targets_and_priorities}
        connection = self._connection_pool.create(
            common.PURPOSE_LISTEN, retry=ATTEMPTS)
        listener = amqpdriver.NotificationAMQPListener(self, connection)
        try:
            connection.declare_consumer(Consumer(
                exchange_name=exchange, queue_name=pool,
                routing_key=f'{topic}.*', type='topic', durable=False,
                exchange_auto_delete=False, queue_auto_delete=True,
                callback=listener, note=self._note))
        except Exception:
            connection.close()
            raise
        return base.PollStyleListenerAdapter(
            listener, batch_size, batch_timeout)

    def _note(self, bound):
        self.bound = bound


class Consumer(impl_rabbit.Consumer):
    """Reads a queue of the connection's own, and makes nothing of Ironic's.

    An exchange that is made with other settings than Ironic's may be one to
    which Ironic can send nothing any more.

    All levels are one consumer: oslo.messaging, when it connects again,
    declares one consumer of each queue only (impl_rabbit.Connection.consume).

    :param note: called with whether there is the exchange.
    """

    def __init__(self, *args, note: Callable[[bool], None], **kwargs):
        super().__init__(*args, **kwargs)
        self._note = note

    def declare(self, conn):
        """Have the queue in RabbitMQ, whenever it has connected anew."""
        self.queue = kombu.Queue(
            # A connection that is lost may not be so for RabbitMQ yet.
            name=f'{self.queue_name}.{uuid.uuid4().hex}',
            exchange=kombu.Exchange(
                self.exchange_name, type=self.type, passive=True),
            routing_key=self.routing_key, channel=conn.channel,
            durable=False, exclusive=True)
        try:
            self.queue.declare()
        except amqp.exceptions.NotFound:
            # It is waited for elsewhere: oslo.messaging would try it every
            # second, and say so each time. The channel is open again.
            self.queue.queue_declare()
            self._note(False)
        else:
            self._note(True)
        self._declared_on = conn.channel
