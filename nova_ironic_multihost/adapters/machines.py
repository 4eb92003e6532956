# SPDX-License-Identifier: Apache-2.0

"""The machines of instances, through methods of nova's driver."""

import datetime

from nova.compute import power_state
from nova.compute import vm_states
from nova import objects
from openstack import exceptions
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import names


class IronicMachines:
    """The machines of this host's instances (port Machines)."""

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    def provision_state(self, instance: objects.Instance) -> str | None:
        """Return the state of the node if Ironic has it for the instance."""
        node = self._node(instance)
        return None if node is None else node.provision_state

    def vm_state(self, instance: objects.Instance) -> str | None:
        """Return the vm_state of an instance's machine, None if unknown."""
        node = self._node(instance)
        if node is None or node.provision_state != 'active':
            return None
        # Without the power state of the BMC, nova's last one counts.
        return {'power on': vm_states.ACTIVE,
                'power off': vm_states.STOPPED}.get(node.power_state) or {
            power_state.RUNNING: vm_states.ACTIVE,
            power_state.SHUTDOWN: vm_states.STOPPED}.get(
                instance.power_state)

    def _node(self, instance):
        """Return the node that Ironic has an instance on, None if none."""
        if instance.node is None:
            return None
        try:
            node = self._driver._get_node(instance.node)
        except names.NodeNotFound:
            return None
        return node if node.instance_id == instance.uuid else None

    def deployed_since(self, instance: objects.Instance,
                       moment: datetime.datetime | None) -> bool:
        """Whether Ironic has begun to deploy an instance since a moment."""
        if moment is None:
            return False
        # openstacksdk lacks the field; the API selects fields since 1.8.
        answer = self._driver.ironic_connection.get(
            f'/nodes/{instance.node}', microversion='1.8',
            params={'fields': 'provision_updated_at,last_error'})
        exceptions.raise_from_response(answer)
        # provision_updated_at changes, too, when no worker is free; then
        # last_error is set, which a deployment clears
        # (ironic.conductor.utils:provisioning_error_handler).
        node = answer.json()
        changed = node['provision_updated_at']
        return (changed is not None and not node['last_error']
                and timeutils.parse_isotime(changed) > moment)
