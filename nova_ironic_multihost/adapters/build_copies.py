# SPDX-License-Identifier: Apache-2.0

"""Copies of builds: nova's message of a build, under the topic COPIES."""

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

#: nova.compute.rpcapi.ComputeAPI.build_and_run_instance: all releases take it.
VERSION = '6.0'

#: Retries of a copy; seconds to wait for its turn, and for the confirm.
RETRIES, PATIENCE = 1, 10


class BuildCopier:
    """Sends copies of builds (port Copier). Several threads use it."""

    def __init__(self, host: str) -> None:
        self._host = host
        # One copy at a time: each takes a connection.
        self._turn = threading.Lock()

    def seal(self, arguments: Mapping[str, typing.Any]
             ) -> Mapping[str, typing.Any]:
        """Serialize the arguments of a build, as nova changes them later."""
        serializer = base.NovaObjectSerializer()
        return {name: value if name == 'context'
                else serializer.serialize_entity(arguments['context'], value)
                for name, value in arguments.items()}

    def copy(self, arguments: Mapping[str, typing.Any]) -> None:
        """Send a copy.

        :raises TimeoutError: the copy is not confirmed; it may still arrive.
        :raises Exception: it is not sent, or threads are used up.
        """
        if not self._turn.acquire(timeout=PATIENCE):
            raise TimeoutError('the copy before is not confirmed')
        # A thread: oslo.messaging may wait for ever, and workers are few.
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
