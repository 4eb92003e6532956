# SPDX-License-Identifier: Apache-2.0

"""Copies of builds, as nova would send them.

A copy is the message that nova's conductor sends for a build, to another topic
(:data:`.rpc_queue.COPIES`): it can be sent on as it is, to any compute
service.
"""

from __future__ import annotations

from collections.abc import Mapping
import functools
import threading
import typing

from nova.objects import base
from nova import rpc
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import rpc_queue

#: The version of nova's RPC that has these arguments, and that all releases
#: understand (nova.compute.rpcapi.ComputeAPI.build_and_run_instance).
VERSION = '6.0'

#: How often it is tried to send a copy, and for how many seconds a build waits
#: for that, and before for its turn.
RETRIES, PATIENCE = 1, 10


class BuildCopier:
    """Sends copies of the builds of one host. Several threads use it.

    :param host: as nova spells it.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        # One after the other: each has a connection for itself otherwise.
        self._turn = threading.Lock()

    def seal(self, arguments: Mapping[str, typing.Any]
             ) -> Mapping[str, typing.Any]:
        """Return the arguments as they are sent, and as they are now.

        nova goes on to change the objects.

        :param arguments: of ComputeManager.build_and_run_instance, by name.
        """
        serializer = base.NovaObjectSerializer()
        return {name: value if name == 'context'
                else serializer.serialize_entity(arguments['context'], value)
                for name, value in arguments.items()}

    def copy(self, arguments: Mapping[str, typing.Any]) -> None:
        """Send a copy to where this host's are.

        In a thread of its own: oslo.messaging waits for RabbitMQ to confirm
        it, for any time, and one of nova's few workers waits here.

        :param arguments: what :meth:`seal` returned.
        :raises TimeoutError: it may not be there, or may be there later.
        :raises oslo_messaging.MessagingException: it may not be there.
        :raises RuntimeError: threads are used up.
        """
        if not self._turn.acquire(timeout=PATIENCE):
            raise TimeoutError('the copy before is not confirmed')
        sent = threading.Event()
        failures: list[Exception] = []
        try:
            threading.Thread(
                target=self._send, args=(dict(arguments), failures, sent),
                name='ironic-multihost-copy', daemon=True).start()
        except RuntimeError:
            self._turn.release()
            raise
        if not sent.wait(PATIENCE):
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
            messaging.Target(topic=rpc_queue.COPIES, server=self._host,
                             version=VERSION),
            serializer=base.NovaObjectSerializer()).prepare(retry=RETRIES)
