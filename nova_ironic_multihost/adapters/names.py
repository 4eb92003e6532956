# SPDX-License-Identifier: Apache-2.0

"""Classes, exceptions and constants of nova that this package uses.

nova promises its virt drivers nothing but the public methods of
``nova.virt.driver.ComputeDriver``. Whatever else this package takes from nova
or from openstacksdk comes through the modules of this folder, and
``tests/unit/adapters`` checks each piece against every supported nova, so
that a test finds a change there before an operator does.
"""

import nova.conf
from nova import context as nova_context
from nova import exception
from nova import utils
from nova.virt import hardware
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exception

CONF = nova.conf.CONF

#: nova's driver for Ironic, which ours extends.
IronicDriver = ironic_driver.IronicDriver

#: What nova calls a power state of Ironic.
map_power_state = ironic_driver.map_power_state

#: What nova knows of a machine: its power state.
InstanceInfo = hardware.InstanceInfo

#: nova skips an audit that raises it and tries again at the next.
VirtDriverNotReady = exception.VirtDriverNotReady

#: Raised by ``IronicDriver._can_send_version``: Ironic is too old for it.
IronicAPIVersionNotAvailable = exception.IronicAPIVersionNotAvailable

#: nova's audit passes over the one node for which it is raised.
ComputeHostNotFound = exception.ComputeHostNotFound

#: A build that raises it is sent to another node.
ComputeResourcesUnavailable = exception.ComputeResourcesUnavailable

#: A build that raises it ends in ERROR.
BuildAbortException = exception.BuildAbortException

#: Raised by ``IronicDriver._set_instance_id`` whatever Ironic answered.
InstanceDeployFailure = exception.InstanceDeployFailure

#: nova ends a build that raises it, and frees what the build has.
InstanceNotFound = exception.InstanceNotFound

#: Ironic has no such node.
NodeNotFound = sdk_exception.ResourceNotFound

#: Ironic has the node for another instance, or is busy with it.
NodeConflict = sdk_exception.ConflictException

#: Decorator: one thread at a time, for each name.
synchronized = utils.synchronized

#: Base class of the errors that nova prints by their message.
NovaException = exception.NovaException


def admin_context() -> nova_context.RequestContext:
    """Return a request context of an administrator."""
    return nova_context.get_admin_context()


def node_fields() -> tuple[str, ...]:
    """Return the names of the fields of a node that a driver works with.

    A driver that extends nova's may add some when it is imported.
    """
    return tuple(ironic_driver._NODE_FIELDS)


def manager_of(virtapi):
    """Return nova's ComputeManager of a virt driver.

    A virt driver reaches it through what nova hands to its constructor
    (nova.compute.manager:ComputeVirtAPI).

    :param virtapi: what nova gave to the driver.
    :returns: the ComputeManager, or None when the driver is used alone.
    """
    return getattr(virtapi, '_compute', None)
