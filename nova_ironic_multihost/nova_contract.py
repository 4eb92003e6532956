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

from keystoneauth1 import exceptions as ks_exception
import nova.conf
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import utils
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exception
from oslo_db import exception as db_exception
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost import aggregates
from nova_ironic_multihost import membership
from nova_ironic_multihost import ownership

LOG = logging.getLogger(__name__)

CONF = nova.conf.CONF

#: Key of a record's statistics that names the partition of its owner.
PARTITION = 'ironic_multihost_partition'

#: The most rows to ask the conductor for at once.
BATCH = 500

#: nova's driver for Ironic, which ours extends.
IronicDriver = ironic_driver.IronicDriver

#: Names of the Ironic node fields that nova's driver works with.
NODE_FIELDS = ironic_driver._NODE_FIELDS

#: nova skips an audit that raises it and tries again at the next.
VirtDriverNotReady = exception.VirtDriverNotReady

#: Raised by ``IronicDriver._can_send_version``: Ironic is too old for it.
IronicAPIVersionNotAvailable = exception.IronicAPIVersionNotAvailable

#: nova's audit passes over the one node for which it is raised.
ComputeHostNotFound = exception.ComputeHostNotFound

#: A build that raises it is sent to another node.
ComputeResourcesUnavailable = exception.ComputeResourcesUnavailable

#: Raised by ``IronicDriver._set_instance_id`` whatever Ironic answered.
InstanceDeployFailure = exception.InstanceDeployFailure

#: Ironic has no such node.
NodeNotFound = sdk_exception.ResourceNotFound

#: Ironic has the node for another instance, or is busy with it.
NodeConflict = sdk_exception.ConflictException

#: How a conductor answers that has no access to the API database.
NO_API_DATABASE = (messaging.RemoteError, db_exception.CantStartEngineError)

#: Decorator: one thread at a time, for each name.
synchronized = utils.synchronized

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
        _compute_service(service, servicegroup_api)
        for service in objects.ServiceList.get_all_computes_by_hv_type(
            context, hypervisor_type)]


def compute_service(context, servicegroup_api, host):
    """Read one compute service, whatever its state.

    :param context: nova request context.
    :param servicegroup_api: nova.servicegroup.API that tells who is up.
    :param host: its host, as nova spells it.
    :returns: :class:`~nova_ironic_multihost.membership.ComputeService`, or
        None when nova has none.
    """
    try:
        service = objects.Service.get_by_compute_host(context, host)
    except exception.NotFound:
        return None
    return _compute_service(service, servicegroup_api)


def _compute_service(service, servicegroup_api):
    return membership.ComputeService(
        host=service.host, up=servicegroup_api.service_is_up(service),
        disabled=service.get('disabled', False),
        forced_down=service.get('forced_down', False))


def instance_uuids(context, host):
    """Read the uuids of the instances that nova has on a host.

    :returns: frozenset of uuids.
    """
    return frozenset(objects.InstanceList.get_uuids_by_host(context, host))


def tenants(context, instances):
    """Read which compute service instances are on.

    Deleted rows count, archived ones are gone (the table is then another).

    :param instances: uuids of instances.
    :returns: dict of uuid -> :class:`~nova_ironic_multihost.ownership.
        Tenant`; no entry for an instance that this cell does not have.
    """
    context = context.elevated(read_deleted='yes')
    return {
        instance.uuid: ownership.Tenant(
            host=instance.host, deleted=bool(instance.deleted))
        for some in _batches(instances)
        for instance in objects.InstanceList.get_by_filters(
            context, {'uuid': some}, expected_attrs=[])}


def records_of(context, host):
    """Read the records of a host, from the primary database.

    :param host: a host, as nova spells it.
    :returns: list of :class:`~nova_ironic_multihost.ownership.Record`.
    """
    try:
        rows = objects.ComputeNodeList.get_all_by_host(context, host)
    except exception.NotFound:
        return []
    return [_record(row) for row in rows]


def records(context, nodes):
    """Read the records of nodes.

    :param nodes: uuids of nodes, which are those of their records.
    :returns: list of :class:`~nova_ironic_multihost.ownership.Record`.
    """
    return [
        _record(row) for some in _batches(nodes)
        for row in objects.ComputeNodeList.get_all_by_uuids(context, some)]


def _record(row):
    return ownership.Record(
        node=row.hypervisor_hostname, host=row.host,
        partition=(row.stats or {}).get(PARTITION, ''), row=row)


def _batches(uuids):
    """Yield lists that fit into one question to the database."""
    uuids = list(uuids)
    for first in range(0, len(uuids), BATCH):
        yield uuids[first:first + BATCH]


def consumers(context, report_client, node):
    """Ask placement who has a node, or is on its way to it.

    :param report_client: nova's SchedulerReportClient.
    :param node: uuid of a node, which is that of its resource provider.
    :returns: frozenset of uuids, usually of one instance or none; or None
        when placement does not answer or has no such provider.
    """
    try:
        found = report_client.get_allocations_for_resource_provider(
            context, node)
    except (exception.ResourceProviderAllocationRetrievalFailed,
            ks_exception.ClientException) as exc:
        LOG.debug('Placement does not say what is allocated of node '
                  '%(node)s: %(exc)s', {'node': node, 'exc': exc})
        return None
    return frozenset(found.allocations)


def host_mapped(context, host):
    """Ask whether the scheduler can send builds to a host.

    :param host: a host, as nova spells it.
    :returns: True or False, or None when the conductor does not know, as it
        has no access to the API database.
    """
    try:
        objects.HostMapping.get_by_host(context, host)
    except exception.HostMappingNotFound:
        return False
    except NO_API_DATABASE as exc:
        LOG.debug('It cannot be known whether host %(host)s is mapped to a '
                  'cell: %(exc)s', {'host': host, 'exc': exc})
        return None
    return True


def host_aggregates(context):
    """Read nova's host aggregates.

    :returns: tuple of :class:`~nova_ironic_multihost.aggregates.Aggregate`,
        or None when the conductor does not know them, as it has no access to
        the API database.
    """
    try:
        listed = objects.AggregateList.get_all(context)
    except NO_API_DATABASE:
        return None
    return tuple(
        aggregates.Aggregate(
            uuid=aggregate.uuid, hosts=frozenset(aggregate.hosts),
            availability_zone=aggregate.availability_zone)
        for aggregate in listed)


def volume_backed(bdms):
    """Whether a server has its root disk on a volume.

    :param bdms: its nova.objects.BlockDeviceMappingList.
    """
    root = bdms.root_bdm() if bdms else None
    return root is not None and root.is_volume


class Tracker:
    """The resource tracker of the compute service that a driver serves.

    A virt driver reaches it through the manager that nova hands to it as
    ``virtapi._compute`` (nova.compute.manager:ComputeVirtAPI). A driver that
    is used alone has none; nothing is then tracked.

    :param virtapi: what nova gave to the driver.
    """

    def __init__(self, virtapi):
        self._manager = getattr(virtapi, '_compute', None)

    @property
    def report_client(self):
        """nova's client of placement."""
        return self._manager.reportclient

    def has(self, node):
        """Whether the tracker has the record of a node at hand.

        It then goes on without a look at who owns the record now
        (ResourceTracker._init_compute_node), and without changing it.
        """
        return (self._manager is not None
                and node in self._manager.rt.compute_nodes)

    def heed(self, audited, current):
        """Compare with these records, not with what a replica says.

        At each audit nova drops from its tracker what it does not read
        there, and logs all its nodes for each record that it does not
        expect (ComputeManager.update_available_resource).

        :param audited: function without arguments that returns the
            :class:`~nova_ironic_multihost.ownership.Record` objects of the
            audit that has just begun.
        :param current: the same of those of this moment: nodes that became
            this host's since stay in the tracker.
        """
        if self._manager is None:
            return
        clean = self._manager.rt.clean_compute_node_cache

        def read(context, nodenames, use_slave=False, startup=False):
            return [record.row for record in audited()]

        def rows_by_then():
            for record in current():
                yield record.row

        def clean_but_current(rows):
            # A generator: the tracker asks it when it has its lock, and no
            # node can come in between.
            clean(rows_by_then())

        self._manager._get_compute_nodes_in_db = read
        self._manager.rt.clean_compute_node_cache = clean_but_current

    def audit(self, node):
        """Audit one node now, as nova does in turn at each audit.

        It is asked for its resources and takes its record, placement is told
        of it. Errors are logged by nova, whose lock around claims and updates
        must not be held.

        :param node: uuid of the node.
        """
        if self._manager is not None:
            self._manager._update_available_resource_for_node(
                admin_context(), node)

    def drop(self, node):
        """Let the tracker forget a node, so that it looks at its record.

        What ResourceTracker.clean_compute_node_cache does at each audit with
        nodes that another host has got.
        """
        if self.has(node):
            self._manager.rt.remove_node(node)
            self.report_client.invalidate_resource_provider(node)

    def when_started(self, act):
        """Have something done when the service has started.

        Its first audit is then over and builds that are sent to it arrive
        (nova.service.Service.start).

        :param act: function without arguments.
        """
        if self._manager is None:
            return
        hook = self._manager.post_start_hook

        def hook_and_act():
            hook()
            act()

        self._manager.post_start_hook = hook_and_act

    def guard(self, may_take):
        """Move no record without asking, at the moment when it is read.

        The tracker reads a record, makes this host its owner and saves it,
        whoever owns it by then (ResourceTracker._init_compute_node). That
        another host creates the same record first ends a starting compute
        service, and is an error in the log of a running one: it is made the
        refusal of that one node, too.

        :param may_take: function of a :class:`~nova_ironic_multihost.
            ownership.Record` that says whether it may become this host's.
        """
        if self._manager is None:
            return
        tracker = self._manager.rt
        read = tracker._get_compute_node
        create = tracker._init_compute_node

        def read_if_it_may_be_taken(context, node_uuid):
            row = read(context, node_uuid)
            if row is not None and not row.deleted and not may_take(
                    _record(row)):
                raise ComputeHostNotFound(host=node_uuid)
            return row

        def create_unless_taken(context, resources):
            try:
                return create(context, resources)
            except exception.InvalidConfiguration as exc:
                if not isinstance(exc.__context__, exception.DuplicateRecord):
                    raise
                raise ComputeHostNotFound(
                    host=resources['hypervisor_hostname']) from exc

        tracker._get_compute_node = read_if_it_may_be_taken
        tracker._init_compute_node = create_unless_taken

    def refresh(self, node):
        """Forget what placement said of a node, so that it is asked again.

        For a while the former owner still sets traits of a node that moved
        (ComputeManager._update_compute_provider_status), which a cache of
        five minutes would hide.
        """
        if self._manager is not None:
            self.report_client.invalidate_resource_provider(node)


def node_partition():
    """Read from nova.conf which nodes this compute service shares."""
    return membership.Partition(
        conductor_group=CONF.ironic.conductor_group,
        shard=CONF.ironic.shard,
        peer_list=tuple(CONF.ironic.peer_list))


def provider_aggregates(context, report_client, provider):
    """Read from placement which aggregates a resource provider carries.

    nova's cache may be minutes old, and a client that speaks placement
    before 1.19 leaves no trace by which nova would notice a conflict.

    :param report_client: nova's client of placement.
    :param provider: uuid of the provider.
    :returns: frozenset of uuids, or None when placement does not answer.
    """
    try:
        found = report_client._get_provider_aggregates(context, provider)
    except (exception.ResourceProviderAggregateRetrievalFailed,
            ks_exception.ClientException):
        return None
    return None if found is None else frozenset(found.aggregates)
