# SPDX-License-Identifier: Apache-2.0

"""The machines of instances, through inherited methods of nova's driver."""

import datetime

from nova.compute import power_state
from nova.compute import vm_states
from nova import objects
from openstack import exceptions
from oslo_utils import timeutils

from nova_ironic_multihost.adapters import names


class IronicMachines:
    """What Ironic makes of the machines of this host's instances.

    Implements the port :class:`.engine.base.ports.IronicMachines`. Uses
    ``_get_node``, which is private to nova's driver and to its subclasses.

    :param driver: the virt driver.
    """

    def __init__(self, driver: names.IronicDriver) -> None:
        self._driver = driver

    def provision_state(self, instance: objects.Instance) -> str | None:
        """Return that of an instance's node, None if the node is not its."""
        node = self._node(instance)
        return None if node is None else node.provision_state

    def vm_state(self, instance: objects.Instance) -> str | None:
        """Return the vm_state that an instance's machine speaks for.

        :returns: None if Ironic has not deployed it, or neither Ironic nor
            nova knows whether it is on.
        """
        node = self._node(instance)
        if node is None or node.provision_state != 'active':
            return None
        # Its BMC may have gone with the rack of the dead host.
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
        """Whether Ironic has begun to deploy an instance since a moment.

        It notes when the state of the node was written last, which it also
        does when it goes back as there is no worker to deploy; then there is
        an error, which a deployment that begins clears
        (ironic.conductor.utils: provisioning_error_handler).

        :param moment: with its time zone; None for one that is not known,
            since which nothing has.
        :raises HttpException: Ironic does not say.
        """
        if moment is None:
            return False
        # openstacksdk has no name for it; the API lets choose since 1.8.
        answer = self._driver.ironic_connection.get(
            f'/nodes/{instance.node}', microversion='1.8',
            params={'fields': 'provision_updated_at,last_error'})
        exceptions.raise_from_response(answer)
        node = answer.json()
        changed = node['provision_updated_at']
        return (changed is not None and not node['last_error']
                and timeutils.parse_isotime(changed) > moment)
