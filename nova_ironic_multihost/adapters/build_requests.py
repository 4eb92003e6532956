# SPDX-License-Identifier: Apache-2.0

"""nova's builds that are on no host yet."""

from __future__ import annotations

from collections.abc import Callable

from nova import baserpc
from nova.compute import rpcapi
from nova.compute import vm_states
from nova import exception
from nova import objects
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import finish_build
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.rules.builds import SentBuild


class BuildRequests:
    """Builds before they are on a host (port Builds). One thread uses it."""

    def __init__(self, host: str, tracker: nova_tracker.NovaTracker):
        self._host = host
        self._tracker = tracker
        self._nodes: dict[tuple[str, object], str] = {}

    def unclaimed(self) -> frozenset[SentBuild]:
        """Read the builds without a host, and their nodes from placement.

        :raises nova.exception.ConsumerAllocationRetrievalFailed: placement
            answers with an error.
        :raises keystoneauth1.exceptions.ClientException: it does not answer.
        """
        context = names.admin_context()
        # Unless nova changes an instance, placement is asked once for it.
        rows = db.hostless(context, vm_states.BUILDING)
        self._nodes = {
            row: node for row in rows if (node := self._nodes.get(row)
                                          or self._node(context, row[0]))}
        return frozenset(SentBuild(uuid, node) for (uuid, _), node
                         in self._nodes.items())

    def _node(self, context, uuid):
        """Return the node allocated to an instance, None unless it is one."""
        found = list(self._tracker.report_client.get_allocs_for_consumer(
            context, uuid)['allocations'])
        return found[0] if len(found) == 1 else None

    def receive(self) -> None:
        """Call this host through its RPC queue, behind all builds in it."""
        api = baserpc.BaseAPI(rpcapi.RPC_TOPIC)
        api.client.prepare(server=self._host).call(
            names.admin_context(), 'ping', arg=self._host)

    def give_up(self, build: SentBuild, reason: str,
                absent: Callable[[], bool]) -> bool:
        """Set a build to ERROR, if it is still on no host and not begun."""
        # The allocation stays until the instance is deleted, as in nova.
        context = names.admin_context()
        try:
            instance = objects.Instance.get_by_uuid(context, build.instance)
            if (instance.host, instance.vm_state) != (
                    None, vm_states.BUILDING):
                return False
            if self._node(context, build.instance) != build.node:
                self._nodes = {}
                return False
            # Users see the fault only when the instance is in ERROR.
            finish_build.note_fault(instance, finish_build.BUILD, reason)
            before = instance.task_state
            instance.vm_state = vm_states.ERROR
            instance.task_state = None
            # Last: nova may begin a build without a task state.
            if not absent():
                return False
            instance.save(expected_vm_state=[vm_states.BUILDING],
                          expected_task_state=[before])
        except (exception.InstanceNotFound,
                exception.InstanceUpdateConflict):
            return False
        except messaging.MessagingTimeout:
            # The write may have been carried out.
            instance = objects.Instance.get_by_uuid(context, build.instance)
            return (instance.host, instance.vm_state) == (
                None, vm_states.ERROR)
        return True
