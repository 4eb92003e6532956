# SPDX-License-Identifier: Apache-2.0

"""All that this package replaces in nova, and all that it uses of its insides.

nova promises its virt drivers the public methods of
``nova.virt.driver.ComputeDriver`` and nothing else. Each row is one thing
beyond that. All rows are checked before anything is replaced. The upgrade
check, ``tools/nova-contract``, the tests on each nova and the page
"What is replaced in nova" read the same rows.
"""

from __future__ import annotations

from collections import abc
import dataclasses
import importlib
from importlib import metadata
import inspect
import re
import textwrap
import typing

from nova import manager as nova_manager

from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import compat
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.adapters.patches import operations

#: Supported releases of nova.
OLDEST, LATEST = 31, 34

#: Target of a row -> its classes, as MODULE:CLASS; a method may stand in any.
#: A target that is not here is MODULE:CLASS itself, or MODULE: for functions.
TARGETS = {
    'manager': ('nova.compute.manager:ComputeManager',
                'nova.manager:Manager'),
    'tracker': ('nova.compute.resource_tracker:ResourceTracker',),
    'client': ('nova.scheduler.client.report:SchedulerReportClient',),
    'driver': ('nova.virt.ironic.driver:IronicDriver',
               'nova.virt.driver:ComputeDriver'),
    'service': ('nova.service:Service',),
    'transport': ('oslo_messaging._drivers.impl_rabbit:RabbitDriver',
                  'oslo_messaging._drivers.amqpdriver:AMQPDriverBase'),
    'listener': ('oslo_messaging._drivers.amqpdriver:RpcAMQPListener',
                 'oslo_messaging._drivers.amqpdriver:AMQPListener'),
    'message': ('oslo_messaging._drivers.amqpdriver:AMQPIncomingMessage',),
    'connection': ('openstack.baremetal.v1._proxy:Proxy',
                   'openstack.proxy:Proxy'),
    'node': ('openstack.baremetal.v1.node:Node',
             'openstack.resource:Resource'),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing of nova's, or of a library's that nova uses.

    :param target: of :data:`TARGETS`.
    :param name: of the attribute; or a function of the target's class that
        returns the names of several methods.
    :param parameters: names of parameters that a layer reads, or that are
        given, separated by spaces; None for several methods, or an attribute
        that is no method.
    :param layer: function of (parts, :class:`.apply.Call`) around it; None if
        it is called or read, or replaced by other means.
    :param purpose: why this package needs it, and so the loss without it.
    :param since: first release of nova with it.
    :param until: last release of nova for which it is needed.
    """

    target: str
    name: str | abc.Callable[[type], list[str]]
    parameters: str | None
    layer: abc.Callable | None
    purpose: str
    since: int = OLDEST
    until: float = float('inf')

    @property
    def label(self) -> str:
        """The name for people to read."""
        return (self.name if isinstance(self.name, str)
                else self.name.__name__)

    def names(self, owner: type) -> list[str]:
        """Return the names of the attributes of the target's class."""
        return [self.name] if isinstance(self.name, str) else self.name(owner)

    @property
    def places(self) -> tuple[str, ...]:
        """The classes of the target, as MODULE:CLASS."""
        return TARGETS.get(self.target, (self.target,))

    @property
    def owner(self) -> typing.Any:
        """The class of the target, or the module."""
        module, _, name = self.places[0].partition(':')
        found = importlib.import_module(module)
        return getattr(found, name) if name else found

    def mismatch(self) -> str:
        """Return what in nova does not fit the row; '' if all does."""
        try:
            owner = self.owner
        except (AttributeError, ImportError):
            return self.sentence('is gone')
        if self.parameters is None and isinstance(self.name, str):
            # An attribute of its objects.
            return ''
        for name in self.names(owner):
            if not inspect.isroutine(getattr(owner, name, None)):
                return self.sentence('is no method any more', name)
        if self.parameters is None:
            return ''
        method, given = getattr(owner, self.label), {*self.parameters.split()}
        found = apply.signature(method)
        missing = given - {*found}
        if missing and not apply.takes_anything(method):
            return self.sentence(
                f'has no parameter {", ".join(sorted(missing))}')
        needed = [name for name, one in found.items()
                  if one.default is one.empty and one.kind in (
                      one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        if inspect.isclass(owner) and inspect.isfunction(method):
            # The object itself.
            del needed[:1]
        if not self.layer and (more := {*needed} - given):
            return self.sentence(f'needs {", ".join(sorted(more))}')
        return ''

    def sentence(self, what: str, name: str = '') -> str:
        """Return a sentence that names release, attribute and remedy."""
        return (f'In nova {version()} {self.full(name)} {what}: install nova '
                f'{OLDEST} to {LATEST}, or a nova-ironic-multihost that '
                'supports this one.')

    def full(self, name: str = '') -> str:
        """Return CLASS.NAME, or MODULE.NAME of a function."""
        module, _, owner = self.places[0].partition(':')
        return f'{owner or module}.{name or self.label}'


def targets(manager: typing.Any, driver: typing.Any
            ) -> dict[str, typing.Any]:
    """Return target -> object, of those that a starting service has."""
    found = {'manager': manager, 'tracker': manager.rt,
             'client': manager.reportclient, 'driver': driver,
             'transport': listeners.transport_driver()}
    if any(row.target == 'service' for row in rows()):
        found['service'] = compat.starting_service(manager)
    return {target: one for target, one in found.items() if one is not None}


def mismatches() -> list[str]:
    """Return a sentence for each row that the installed nova does not fit."""
    return [*dict.fromkeys(why for row in rows() if (why := row.mismatch()))]


def lacking() -> list[str]:
    """Return CLASS.METHOD of the rows that the installed nova does not fit."""
    return sorted({row.full() for row in rows() if row.mismatch()})


def version() -> str:
    """Return the version of nova."""
    try:
        return metadata.version('nova')
    except metadata.PackageNotFoundError:
        return 'without a version'


def rows(release: float | None = None) -> list[Row]:
    """Return the rows for a release of nova.

    :param release: major number; None for the nova that is installed, which
        is known by what it has.
    """
    if release is None:
        release = LATEST if hasattr(
            nova_manager.Manager, 'set_shutdown_in_progress') else 33
    return [row for row in ROWS if row.since <= release <= row.until]


#: How the audits of nova's manager come to records and nodes.
_AUDITS = (
    Row('manager', '_get_compute_nodes_in_db', 'nodenames',
        handlers.read_records,
        'an audit works with the records that the driver has read, and comes '
        'to no node that is not due'),
    Row('tracker', 'clean_compute_node_cache', 'compute_nodes_in_db',
        handlers.keep_current,
        'a node that this host took since the audit began stays tracked'),
    Row('tracker', '_get_compute_node', 'context node_uuid',
        handlers.judge_record,
        'this host takes no record of another host without asking'),
    Row('tracker', '_update_to_placement', 'context compute_node',
        handlers.judge_again,
        'a record that others get while placement is told stays theirs, and '
        'so does one that they got long before'),
    Row('tracker', '_init_compute_node', 'context resources',
        handlers.note_moves,
        'a record that another host creates at the same time refuses one '
        'node, and does not end the service'),
    Row('manager', '_update_available_resource_for_node', 'nodename',
        handlers.audit_if_due,
        'a node of which nothing has changed is not audited each time'),
    Row('tracker', 'update_available_resource', 'nodename',
        handlers.note_audit,
        'the driver knows which audits of nodes have succeeded'),
    Row('tracker', '_update', 'compute_node', handlers.note_update,
        'a node whose usage has changed is audited again'),
    Row('tracker', 'update_usage', 'instance nodename', handlers.note_usage,
        'a node is audited again when an instance has changed'),
    *(Row('tracker', name, 'nodename', handlers.note_change,
          'the next audit tells the scheduler')
      for name in ('build_failed', 'build_succeeded')),
    Row('manager', '_complete_deletion', 'instance', handlers.note_change,
        'the next audit frees what a delete could not free'),
    Row('client', 'get_allocations_for_resource_provider', 'rp_uuid',
        handlers.note_allocations,
        'a free node with an allocation is audited again: what deleted '
        'servers have left is taken off'),
    Row('tracker', '_sync_compute_service_disabled_trait', 'traits',
        handlers.set_traits,
        'no provider is marked because the service is about to end, and each '
        "is marked as nova's"),
    Row('client', 'get_provider_tree_and_ensure_root', 'rp_uuid',
        compat.get_root,
        'an audit of a node or a claim copies one provider', until=33),
    Row('client', 'update_from_provider_tree', 'new_tree', compat.flush_root,
        'nova compares that copy with one provider', until=33),
)

#: How a service starts, is disabled and ends.
_SERVICE = (
    Row('manager', 'post_start_hook', '', handlers.start_driver,
        'the driver acts when the service takes builds'),
    Row('manager', '_update_compute_provider_status', 'enabled',
        handlers.note_switch,
        'the request that disables a service does not wait for all its '
        'nodes, and the driver knows when others may have seen it disabled'),
    Row('manager', 'set_shutdown_in_progress', '', handlers.stop_driver,
        'the driver begins nothing new at the end', since=34),
    Row('service', 'stop', '', handlers.stop_driver,
        'the driver begins nothing new at the end', until=33),
    Row('transport', 'listen', '', handlers.hold_builds,
        'a build is acknowledged when there is a copy of it, and nothing '
        'that comes when the service ends'),
    Row('manager', '_init_instance', 'context instance',
        handlers.init_instance,
        'a takeover that was interrupted goes on, and what fails for one '
        'instance does not end the service'),
    *(Row('manager', name, '', handlers.leave_out,
          f'the start of the service {why}')
      for name, why in (
          ('_get_nodes', 'reads no records of nodes'),
          ('_destroy_evacuated_instances', 'destroys no machine because its '
           'server was to be evacuated'),
          ('_error_out_instances_whose_build_was_interrupted',
           'leaves builds alone that wait in its queue'))),
    Row('manager', '_check_for_host_rename', '', handlers.read_few_instances,
        'the start of the service reads no instances without need'),
    Row('manager', '_update_scheduler_instance_info', 'context instance',
        handlers.tell_of_one,
        'the scheduler does not take these few for all of this host'),
)

#: How operations on instances ask the guard.
_OPERATIONS = (
    Row('manager', operations.sent_to_host, None, operations.operate,
        'an operation on an instance that has moved is not carried out, and '
        'no evacuation is'),
    Row('driver', operations.mutations, None, operations.CHANGE_MACHINE,
        'the machine of an instance that has moved is left alone'),
    Row('manager', 'external_instance_event', 'instances events',
        operations.sift_events,
        'an event for an instance that has moved is dropped'),
    Row('manager', 'build_and_run_instance', 'instance node',
        operations.accept_build,
        'the driver knows which builds are here, and has a copy of each; one '
        'that was sent to a dead host finds its node here'),
    Row('manager', '_do_build_and_run_instance',
        'instance node requested_networks', operations.carry_out_build,
        "a build that is done or another's is not carried out, and its end "
        'is noted'),
    Row('manager', '_build_and_run_instance', 'instance', operations.ATTEMPT,
        'nova does not clean up after a build whose instance has moved'),
    Row('manager', '_snapshot_instance', 'instance', operations.PART,
        'a snapshot of an instance that has moved is not carried out'),
    Row('manager', '_delete_instance', 'instance', operations.ATTEMPT,
        'a delete that fails as nobody answers is repeated'),
    *(Row('manager', name, 'instance', operations.CLEAN_UP,
          'a failure is not written to an instance that has moved')
      for name in ('_instance_update', '_set_instance_obj_error_state',
                   '_try_deallocate_network')),
    Row('tracker', '_set_instance_host_and_node', 'instance node',
        operations.claim,
        'no build takes an instance that another compute service has claimed '
        'meanwhile, or overwrites what that has written'),
    Row('tracker', 'abort_instance_claim', 'instance nodename',
        operations.abort_claim,
        'a build gives its claim back also when its node has moved'),
    Row('tracker', '_unset_instance_host_and_node', 'instance',
        operations.unset_host,
        'an instance that has moved keeps its host and its node'),
    Row('manager', '_nil_out_instance_obj_host_and_node', 'instance',
        operations.give_back,
        'a build that fails in the middle of its claim gives back no claim '
        'of another host'),
)


def _used(purpose, lines, until=float('inf')):
    """Return rows of what is called or read, or replaced by other means.

    :param lines: each a target and names, with parameters that are given if
        it is a method; a line that is indented continues the one before.
    """
    for line in textwrap.dedent(lines).replace('\n ', ' ').split('\n'):
        target, _, names = line.partition(' ')
        for name, given in re.findall(r'(\w+)(\(.*?\))?', names):
            yield Row(target, name, given[1:-1].replace(',', '')
                      if given else None, None, purpose, until=until)


_USED = (
    *_used('the driver comes to its manager', """\
        nova.compute.manager:ComputeVirtAPI _compute"""),
    *_used("the driver undoes, ends or repeats a dead host's work", """\
        manager _deallocate_network(context, instance, requested_networks)
          _get_image_name(image_meta) _init_instance(context, instance)
          _notify_about_instance_usage(context, instance, event_suffix,
            network_info, extra_usage_info)
          _nil_out_instance_obj_host_and_node(instance)
          _set_instance_obj_error_state(instance, clean_task_state)
          _update_instance_after_spawn(instance)
          _update_scheduler_instance_info(context, instance)
          restore_instance(context, instance)
          soft_delete_instance(context, instance)
          stop_instance(context, instance, clean_shutdown)
          terminate_instance(context, instance, bdms)
        nova.compute.utils:
          notify_about_instance_create(context, instance, host, phase, bdms)
          notify_about_instance_rebuild(context, instance, host, phase, bdms)
        nova.objects.instance_action:InstanceActionEvent
          event_start(context, instance_uuid, event_name, want_result, host)
          event_finish_with_failure(context, instance_uuid, event_name,
            exc_val, exc_tb, want_result)
        nova.network.neutron:API list_ports(context)
        nova.baserpc:BaseAPI __init__(topic)
        nova.baserpc:BaseRPCAPI ping(context, arg)
        nova.rpc: get_client(target, serializer)"""),
    *_used("the driver reads nova's records", """\
        nova.objects.aggregate:AggregateList get_all(context)
        nova.objects.compute_node:ComputeNodeList
          get_all_by_host(context, host)
          get_all_by_uuids(context, compute_uuids)
        nova.objects.host_mapping:HostMapping get_by_host(context, host)
        nova.objects.instance:InstanceList get_uuids_by_host(context, host)
          get_by_filters(context, filters, expected_attrs)
        nova.objects.instance_action:InstanceActionList
          get_by_instance_uuid(context, instance_uuid, limit)
        nova.objects.instance_fault:InstanceFaultList
          get_by_instance_uuids(context, instance_uuids)
        nova.objects.migration:MigrationList
          get_by_filters(context, filters, limit, marker)
        nova.objects.service:ServiceList
          get_all_computes_by_hv_type(context, hv_type)
        nova.objects.service:Service get_by_compute_host(context, host)
        nova.servicegroup.api:API service_is_up(member)"""),
    *_used('the driver asks placement what may have changed', """\
        client _provider_tree get(url, version)
          get_allocs_for_consumer(context, consumer)
          _get_provider_aggregates(context, rp_uuid)
          _refresh_and_get_inventory(context, rp_uuid)
          remove_provider_tree_from_instance_allocation(context,
            consumer_uuid, root_rp_uuid)
        nova.compute.provider_tree:ProviderTree data(name_or_uuid)"""),
    *_used('an audit copies one provider', """\
        nova.compute.provider_tree:ProviderTree
          _find_with_lock(name_or_uuid, return_root)
          get_provider_uuids_in_tree(name_or_uuid)""", until=33),
    *_used('the start of the service reads no instances without need', """\
        nova.objects.instance:InstanceList
          get_by_host(context, host, expected_attrs, use_slave)"""),
    *_used('a build writes over nothing but what a build has written', """\
        nova.objects.instance:Instance save(expected_vm_state,
          expected_task_state, admin_state_reset)"""),
    *_used('the driver knows which services share which nodes, and which '
           'nodes are free', """\
        driver _get_hypervisor_type() _get_node(node_id)
          _node_resources_used(node_obj) _can_send_version(version)
          _node_resources_unavailable(node_obj)"""),
    *_used('a build waits for no list of all nodes, and nodes of others are '
           'not kept', """\
        driver _refresh_cache() _refresh_hash_ring(ctxt)
          _node_from_cache(node_id)"""),
    *_used('the driver reads queues of other hosts', """\
        oslo_messaging.transport:Transport _driver
        transport _connection_pool _default_exchange
        oslo_messaging._drivers.pool:ConnectionPool create(purpose, retry)
        oslo_messaging._drivers.impl_rabbit:Connection close()
        amqp.channel:Channel basic_get(queue, no_ack) basic_ack(delivery_tag)
          queue_declare(queue, passive, durable, auto_delete, arguments)
          queue_bind(queue, exchange, routing_key)
          _basic_publish(msg, exchange, routing_key, mandatory)
        amqp.connection:Connection send_heartbeat()"""),
    *_used('messages are acknowledged when they are safe', """\
        listener __class__ _shutoff __call__(message)
        message _message_operations_handler acknowledge()
          reply(reply, failure)
        oslo_messaging._drivers.amqpdriver:MessageOperationsHandler do(task)
        oslo_messaging._drivers.impl_rabbit:RabbitMessage _raw_message
        oslo_messaging._drivers.base:PollStyleListenerAdapter
          _poll_style_listener _listen_thread _started"""),
    *_used('the driver reads nodes page by page', """\
        connection _get_connection
        node _max_microversion"""),
)

ROWS: typing.Final = (*_AUDITS, *_SERVICE, *_OPERATIONS, *_USED)
