# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The only door to nova's private interfaces.

nova promises its virt drivers nothing but :class:`nova.virt.driver`'s public
methods; whatever else this package takes from nova comes through here, as
plain values, and ``tests/unit/test_nova_contract.py`` checks each piece
against every supported nova, so that a change there is found by a test and
not by an operator.
"""

import nova.conf
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.virt.ironic import driver as ironic_driver

from nova_ironic_multihost import membership

CONF = nova.conf.CONF

#: nova's driver for Ironic, which ours extends.
IronicDriver = ironic_driver.IronicDriver

#: Names of the Ironic node fields that nova's driver works with.
NODE_FIELDS = ironic_driver._NODE_FIELDS

#: nova skips an audit that raises it and tries again at the next.
VirtDriverNotReady = exception.VirtDriverNotReady

#: Raised by ``IronicDriver._can_send_version``: Ironic is too old for it.
IronicAPIVersionNotAvailable = exception.IronicAPIVersionNotAvailable

#: Base class of the errors that nova prints by their message.
NovaException = exception.NovaException


def admin_context():
    """Return a request context of an administrator."""
    return nova_context.get_admin_context()


def ironic_services(context, servicegroup_api, hypervisor_type):
    """Read the enabled compute services that have an Ironic compute node.

    :param context: nova request context.
    :param servicegroup_api: nova.servicegroup.API that tells who is up.
    :param hypervisor_type: what the driver calls itself, 'ironic'.
    :returns: list of :class:`~nova_ironic_multihost.membership.
        ComputeService`.
    """
    return [
        membership.ComputeService(
            host=service.host, up=servicegroup_api.service_is_up(service))
        for service in objects.ServiceList.get_all_computes_by_hv_type(
            context, hypervisor_type)]


def instance_uuids(context, host):
    """Read the uuids of the instances that nova has on a host.

    :returns: frozenset of uuids.
    """
    return frozenset(objects.InstanceList.get_uuids_by_host(context, host))


def node_partition():
    """Read from nova.conf which nodes this compute service shares."""
    return membership.Partition(
        conductor_group=CONF.ironic.conductor_group,
        shard=CONF.ironic.shard,
        peer_list=tuple(CONF.ironic.peer_list))
