# SPDX-License-Identifier: Apache-2.0

"""Queues of hosts in oslo.messaging's fake driver, in this process.

It keeps what is sent to a host that has no RPC server, as RabbitMQ does.
"""

import contextlib

from nova.compute import manager
from oslo_messaging._drivers import impl_fake

from nova_ironic_multihost.adapters.patches import operations
from nova_ironic_multihost.adapters import rpc_queue
from nova_ironic_multihost.rules.forwarding import QueuedRequest


def queue(host, topic='compute'):
    """Return the messages that wait for a host, a list that lives."""
    exchange, = (
        exchange for exchange
        in impl_fake.FakeExchangeManager._exchanges.values()
        if any(topic == 'compute' for topic, _ in exchange._server_queues))
    return exchange._server_queues.setdefault((topic, host), [])


def copies(host):
    """Return the copies of builds that a host has, likewise."""
    return queue(host, rpc_queue.COPIES)


class FakeQueues:
    """The port :class:`.engine.base.ports.Queues`."""

    readable = True

    def open(self, host):
        """Open the queue of a host that does not run."""
        return FakeQueue(host, queue)

    def open_copies(self, host):
        """Open where the copies of its builds are."""
        return FakeQueue(host, copies)


class FakeQueue:
    """The port :class:`.engine.base.ports.Queue`."""

    def __init__(self, host, its):
        self._host = host
        self._queue = its
        self._held = []

    def create(self):
        """Have it, as all have."""

    def beat(self):
        """Show nobody that this process is there."""

    def attended(self):
        """Likewise, again and again."""
        return contextlib.nullcontext()

    def consumers(self):
        """Say that nobody else reads it."""
        return 0

    def take(self):
        """Take the next message."""
        waiting = self._queue(self._host)
        if not waiting:
            return None
        self._held.append(waiting.pop(0))
        # (context, message, queue of the answer, function)
        return QueuedRequest(*rpc_queue._request(
            self._held[-1][1], operations.sent_to_host(
                manager.ComputeManager)), handle=self._held[-1],
            arguments=self._held[-1][1]['args'])

    def hand_on(self, request, host, copy=False):
        """Send a message to another host, as it is."""
        (copies if copy else queue)(host).append(request.handle)
        self.drop(request)
        return True

    def drop(self, request):
        """Let go of a message."""
        self._held.remove(request.handle)

    def close(self):
        """Give back what is held."""
        self._queue(self._host)[:0] = self._held
        self._held = []
