# SPDX-License-Identifier: Apache-2.0

"""Names of nova and openstacksdk, also for modules outside of adapters."""

import nova.conf
from nova import context as nova_context
from nova import exception
from nova import utils
from nova.virt import hardware
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exception

CONF = nova.conf.CONF

IronicDriver = ironic_driver.IronicDriver

map_power_state = ironic_driver.map_power_state

InstanceInfo = hardware.InstanceInfo

#: Raise it to skip an audit; nova tries again at the next.
VirtDriverNotReady = exception.VirtDriverNotReady

IronicAPIVersionNotAvailable = exception.IronicAPIVersionNotAvailable

#: Raise it to skip one node in an audit.
ComputeHostNotFound = exception.ComputeHostNotFound

#: Raise it to reschedule a build.
ComputeResourcesUnavailable = exception.ComputeResourcesUnavailable

BuildAbortException = exception.BuildAbortException

#: ``IronicDriver._set_instance_id`` raises it for each error of Ironic.
InstanceDeployFailure = exception.InstanceDeployFailure

NodeNotFound = sdk_exception.ResourceNotFound

#: Ironic has the node for another instance, or is busy with it.
NodeConflict = sdk_exception.ConflictException

synchronized = utils.synchronized

NovaException = exception.NovaException


def admin_context() -> nova_context.RequestContext:
    """Return a request context of an administrator."""
    return nova_context.get_admin_context()


def node_fields() -> tuple[str, ...]:
    """Return the fields that the driver reads; an operator's may add some."""
    return tuple(ironic_driver._NODE_FIELDS)


def manager_of(virtapi):
    """Return nova's ComputeManager; None if the driver is used alone."""
    # nova.compute.manager:ComputeVirtAPI
    return getattr(virtapi, '_compute', None)
