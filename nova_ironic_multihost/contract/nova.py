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

import functools
import inspect
import secrets
import types

from keystoneauth1 import exceptions as ks_exception
from nova.compute import build_results
from nova.compute import utils as compute_utils
from nova.compute import vm_states
import nova.conf
from nova import context as nova_context
from nova import exception
from nova import objects
from nova import rpc
from nova import safe_utils
from nova import utils
from nova.virt.ironic import driver as ironic_driver
from openstack import exceptions as sdk_exception
from oslo_db import exception as db_exception
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_service import loopingcall
from oslo_utils import timeutils

from nova_ironic_multihost.core import aggregates
from nova_ironic_multihost.core import membership
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost.core import takeover

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

#: Statuses of a migration that is over (nova.db.main.api:
#: migration_get_in_progress_by_host_and_node).
MIGRATED = frozenset({
    'confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
    'done'})

#: How a conductor answers that has no access to the API database.
NO_API_DATABASE = (messaging.RemoteError, db_exception.CantStartEngineError)

#: Operations (methods of ComputeManager with a parameter ``instance``) that
#: are not sent to the host of the instance: it has none, or it is on its way
#: from host to host, which no instance over Ironic is.
ELSEWHERE = frozenset({
    'build_and_run_instance', 'check_can_live_migrate_destination',
    'confirm_resize', 'confirm_snapshot_based_resize_at_source',
    'drop_move_claim_at_destination', 'finish_resize',
    'finish_revert_resize', 'finish_revert_snapshot_based_resize_at_source',
    'finish_snapshot_based_resize_at_dest', 'live_migration',
    'live_migration_force_complete', 'post_live_migration_at_destination',
    'pre_live_migration', 'prep_resize',
    'prep_snapshot_based_resize_at_dest', 'remove_volume_connection',
    'revert_resize', 'revert_snapshot_based_resize_at_dest',
    'rollback_live_migration_at_destination', 'unshelve_instance'})

#: Operations whose sender waits for the answer (ComputeAPI uses ``call``).
AWAITED = frozenset({
    'attach_interface', 'check_can_live_migrate_source',
    'get_console_output', 'get_diagnostics', 'get_instance_diagnostics',
    'get_mks_console', 'get_serial_console', 'get_spice_console',
    'get_vnc_console', 'prep_snapshot_based_resize_at_source',
    'quiesce_instance', 'reserve_block_device_name', 'set_admin_password'})

#: Methods of IronicDriver that change a machine, or Ironic's node of it.
MUTATIONS = (
    'attach_interface', 'clean_networks_preparation', 'destroy',
    'detach_interface', 'failed_spawn_cleanup', 'get_serial_console',
    'get_vnc_console', 'plug_vifs', 'power_off', 'power_on',
    'prepare_for_spawn', 'prepare_networks_before_block_device_mapping',
    'reboot', 'rebuild', 'rescue', 'spawn', 'trigger_crash_dump',
    'unplug_vifs', 'unrescue')

#: How the names of openstacksdk's methods begin that change something.
CHANGES = ('attach_', 'create_', 'delete_', 'detach_', 'disable_', 'enable_',
           'inject_', 'patch_', 'set_', 'update_')

#: What ComputeManager does to an instance when something went wrong.
CLEAN_UPS = ('_instance_update', '_set_instance_obj_error_state',
             '_try_deallocate_network')

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
    :returns: list of :class:`.membership.
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
    :returns: :class:`.membership.ComputeService`, or
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


def instance_states(context, instances):
    """Read which compute service instances are on.

    Deleted rows count, archived ones are gone (the table is then another).

    :param instances: uuids of instances.
    :returns: dict of uuid -> :class:`.ownership.
        InstanceState`; no entry for an instance that this cell does not have.
    """
    context = context.elevated(read_deleted='yes')
    return {
        instance.uuid: ownership.InstanceState(
            host=instance.host, deleted=bool(instance.deleted),
            node=instance.node, vm_state=instance.vm_state,
            task_state=instance.task_state)
        for some in _batches(instances)
        for instance in objects.InstanceList.get_by_filters(
            context, {'uuid': some}, expected_attrs=[])}


def records_of(context, host):
    """Read the records of a host, from the primary database.

    :param host: a host, as nova spells it.
    :returns: list of :class:`.ownership.Record`.
    """
    try:
        rows = objects.ComputeNodeList.get_all_by_host(context, host)
    except exception.NotFound:
        return []
    return [_record(row) for row in rows]


def records(context, nodes):
    """Read the records of nodes.

    :param nodes: uuids of nodes, which are those of their records.
    :returns: list of :class:`.ownership.Record`.
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

    :returns: tuple of :class:`.aggregates.Aggregate`,
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


def take_over(context, uuid, state, host):
    """Move an instance to another host, if it is still as it was seen.

    One write, which the database makes only if neither vm_state nor
    task_state have changed (nova.db.main.api:_instance_update): the new
    task_state is one that nobody else writes, so of two hosts that try one
    fails.

    :param uuid: of the instance.
    :param state: :class:`.ownership.InstanceState`, as it
        was seen.
    :param host: the new host.
    :returns: whether it was moved.
    """
    try:
        instance = objects.Instance.get_by_uuid(context, uuid)
        seen = (state.host, state.node, state.vm_state, state.task_state)
        if seen != (instance.host, instance.node, instance.vm_state,
                    instance.task_state):
            return False
        if any(migration.status not in MIGRATED
               for migration in objects.MigrationList.get_by_filters(
                   context, {'instance_uuid': uuid})):
            return False
        instance.host = host
        instance.task_state = mark = takeover.mark(
            state.task_state, secrets.token_hex(4))
        try:
            instance.save(expected_vm_state=[state.vm_state],
                          expected_task_state=[state.task_state])
        except messaging.MessagingTimeout:
            # The answer is lost, not necessarily the write.
            instance = objects.Instance.get_by_uuid(context, uuid)
            return (instance.host, instance.task_state) == (host, mark)
    except (exception.NotFound, exception.UnexpectedTaskStateError,
            exception.InstanceUpdateConflict) as exc:
        LOG.debug('Instance %(instance)s is not taken over: %(exc)s', {
            'instance': uuid, 'exc': exc})
        return False
    return True


def volume_backed(bdms):
    """Whether a server has its root disk on a volume.

    :param bdms: its nova.objects.BlockDeviceMappingList.
    """
    root = bdms.root_bdm() if bdms else None
    return root is not None and root.is_volume


def wait(check, instance, interval):
    """Call a check of nova's driver until it says that it is over.

    :param check: function of a nova.objects.Instance that raises
        LoopingCallDone then, and another exception if it failed.
    :param instance: nova.objects.Instance
    :param interval: seconds from one call to the next.
    """
    loopingcall.FixedIntervalLoopingCall(check, instance).start(
        interval=interval).wait()


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

    def patch_record_reads(self, audited, current):
        """Compare with these records, not with what a replica says.

        At each audit nova drops from its tracker what it does not read
        there, and logs all its nodes for each record that it does not
        expect (ComputeManager.update_available_resource).

        :param audited: function without arguments that returns the
            :class:`.ownership.Record` objects of the
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

    def patch_post_start(self, act):
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

    def patch_record_moves(self, may_take):
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


class Operations:
    """The operations on instances that a compute service is asked for.

    oslo.messaging takes the method of the manager by its name when a message
    comes, and so do nova's own calls, so an attribute of the manager object
    is used instead of the method of its class.

    :param virtapi: what nova gave to the driver; a driver that is used alone
        has no operations.
    :param driver: the virt driver.
    """

    def __init__(self, virtapi, driver):
        self._manager = getattr(virtapi, '_compute', None)
        self._driver = driver
        self._gate = None

    def connection(self, connection):
        """Return a connection to Ironic that asks before each change.

        :param connection: what nova's driver works with.
        """
        if self._gate is None:
            return connection
        return _AskingConnection(connection, self._gate.ask_again)

    def patch_operations(self, gate):
        """Let a gate stand around them.

        :param gate: :class:`~nova_ironic_multihost.gate.Gate`.
        """
        if self._manager is None:
            return
        self._gate = gate
        for name in operations(type(self._manager)):
            _wrap(self._manager, name, _asking(gate))
        # The work of build_and_run_instance, in a thread of its own.
        # FAILED_BY_POLICY: leave the allocation, and do not count it as a
        # failure of the host.
        _wrap(self._manager, '_do_build_and_run_instance', functools.partial(
            gate.operate, otherwise=lambda: build_results.FAILED_BY_POLICY))
        _wrap(self._manager, '_build_and_run_instance', gate.attempt)
        for name in CLEAN_UPS:
            _wrap(self._manager, name, gate.clean_up)
        _wrap(self._manager.rt, '_unset_instance_host_and_node',
              gate.clean_up)
        for name in MUTATIONS:
            _wrap(self._driver, name, gate.change_machine)
        self._manager.external_instance_event = _sifted(
            self._manager.external_instance_event, gate)


class _AskingConnection:
    """Asks before it lets a connection to Ironic change something."""

    def __init__(self, connection, ask):
        self._connection = connection
        self._ask = ask

    def __getattr__(self, name):
        found = getattr(self._connection, name)
        if not name.startswith(CHANGES):
            return found

        def ask_first(*args, **kwargs):
            self._ask()
            return found(*args, **kwargs)

        return ask_first


def operations(manager_class):
    """Return the names of the operations that go to an instance's host.

    :param manager_class: nova's ComputeManager.
    """
    return sorted(
        name for name, method in inspect.getmembers(
            manager_class, inspect.isfunction)
        if not name.startswith('_') and name not in ELSEWHERE
        and 'instance' in _parameters(method))


def _parameters(function):
    """Return the names of the parameters below all decorators.

    Some of nova's hide them (oslo.messaging's expected_exceptions).
    """
    parameters = list(inspect.signature(function).parameters)
    if 'instance' not in parameters:
        function = safe_utils.get_wrapped_function(function)
        parameters = list(inspect.signature(function).parameters)
    return parameters


def _wrap(target, name, around):
    """Let a method of an object be called by another function.

    :param around: function of (name of the method, instance, function without
        arguments that calls the method).
    """
    method = getattr(target, name)
    position = _position(method, 'instance')

    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        instance = (kwargs['instance'] if 'instance' in kwargs
                    else args[position])
        return around(
            name, instance, functools.partial(method, *args, **kwargs))

    # nova tracks bound methods only (service._TrackingEndpointWrapper).
    setattr(target, name, types.MethodType(wrapped, target))


def _position(method, parameter):
    return _parameters(method.__func__).index(parameter) - 1


def _asking(gate):
    """Return how an operation is let in, see :func:`_wrap`."""
    def operate(name, instance, act):
        def refuse():
            try:
                raise _conflict(name, instance.uuid)
            except exception.Invalid as exc:
                # It goes to the API and not into the log.
                raise messaging.ExpectedException() from exc

        if name == 'rebuild_instance' and _is_evacuation(act):
            # Sent to another host on purpose; nova refuses it for Ironic.
            return act()
        return gate.operate(name, instance, act, *(
            [refuse] if name in AWAITED else []))

    return operate


def _is_evacuation(rebuild):
    """Whether a call of rebuild_instance is one.

    :param rebuild: partial of the bound method.
    """
    if 'recreate' in rebuild.keywords:
        return rebuild.keywords['recreate']
    return rebuild.args[_position(rebuild.func, 'recreate')]


def _conflict(operation, instance):
    """Return the error that nova's API answers with 409.

    The next try goes to the right host.
    """
    if operation.startswith('get_'):
        return exception.InstanceNotReady(instance_id=instance)
    return exception.InstanceInvalidState(
        instance_uuid=instance, attr='host', state='changed',
        method=operation)


def _sifted(method, gate):
    """Let events pass that are meant for instances of this host."""
    @functools.wraps(method)
    def wrapped(self, context, instances, events):
        here = gate.present([instance.uuid for instance in instances])
        return method(
            context, [instance for instance in instances
                      if instance.uuid in here],
            [event for event in events if event.instance_uuid in here])

    return types.MethodType(wrapped, method.__self__)


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


class Instances:
    """What nova's manager does for the instances of its compute service.

    :param virtapi: what nova gave to the driver, see :class:`Tracker`.
    """

    def __init__(self, virtapi):
        self._manager = getattr(virtapi, '_compute', None)

    def read(self, uuid):
        """Read an instance with what nova's start of a service wants.

        :returns: nova.objects.Instance, None if it is deleted.
        """
        try:
            return objects.Instance.get_by_uuid(
                admin_context(), uuid,
                expected_attrs=['info_cache', 'metadata', 'numa_topology'])
        except exception.InstanceNotFound:
            return None

    def set_states(self, instance, vm_state, task_state):
        """Write both states, if the task state is what was read.

        :returns: whether it was; also False when it is deleted by now.
        """
        before = instance.task_state
        instance.vm_state = vm_state
        instance.task_state = task_state
        try:
            instance.save(expected_task_state=[before])
        except (exception.InstanceNotFound,
                exception.InstanceUpdateConflict):
            return False
        return True

    def init(self, instance):
        """Do what nova does for an instance at the start of a service.

        In the name of the request that it was last asked to do: nova notes
        what it does under that (InstanceActionEvent), and fails over a
        request that it does not know.
        """
        context = _of_last_action(instance)
        with instance.obj_alternate_context(context):
            self._manager._init_instance(context, instance)

    def fail(self, instance, reason):
        """Set an instance to ERROR, with a fault that says why."""
        compute_utils.add_instance_fault_from_exc(
            admin_context(), instance, exception.NovaException(reason))
        self._manager._set_instance_obj_error_state(
            instance, clean_task_state=True)

    def deployed(self, instance):
        """Note that a build or a rebuild has come to its end."""
        before = instance.task_state
        if instance.launched_at is None or instance.vm_state == 'building':
            instance.launched_at = timeutils.utcnow()
        instance.power_state = self._manager._get_power_state(instance)
        instance.vm_state = vm_states.ACTIVE
        instance.task_state = None
        instance.save(expected_task_state=[before])

    def patch_instance_init(self, init):
        """Let something else be done for each instance at the start.

        nova goes through the instances of its host one by one
        (ComputeManager.init_host), and what fails for one ends the service.

        :param init: function of (what nova would do: a function without
            arguments; the nova.objects.Instance).
        """
        if self._manager is None:
            return
        original = self._manager._init_instance

        def init_instance(context, instance):
            init(lambda: original(context, instance), instance)

        self._manager._init_instance = init_instance

    def notify(self, event, payload):
        """Send a notification of this package, as nova's are sent.

        :param event: type of the event.
        :param payload: dict of JSON.
        """
        if rpc.NOTIFICATION_TRANSPORT is None:
            return
        messaging.Notifier(
            rpc.NOTIFICATION_TRANSPORT,
            publisher_id=f'nova-compute:{CONF.host}').info(
                {}, event, payload)


def _of_last_action(instance):
    """Return a context with the id of the instance's last request."""
    context = admin_context()
    actions = objects.InstanceActionList.get_by_instance_uuid(
        context, instance.uuid, limit=1)
    if actions:
        context.request_id = actions[0].request_id
    return context
