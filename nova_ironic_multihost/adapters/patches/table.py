# SPDX-License-Identifier: Apache-2.0

"""All that this package replaces in nova, and all that it uses of its insides.

nova promises its virt drivers the public methods of
``nova.virt.driver.ComputeDriver`` and nothing else. Each row is one thing
beyond that. :mod:`.apply` checks all rows before it replaces anything; the
upgrade check, ``tools/nova-contract``, the tests on each nova and the page
"What is replaced in nova" read the same rows.

The layers of a row stand around nova's method, the first one innermost. Their
order is the order in which a build passes them: the last layer sees a build
first.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import importlib
from importlib import metadata
import inspect
import typing

from nova import manager as nova_manager

from nova_ironic_multihost.adapters import build_claim
from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters.patches import compat
from nova_ironic_multihost.adapters.patches import handlers
from nova_ironic_multihost.adapters.patches import operations

#: Supported releases of nova.
OLDEST, LATEST = 31, 34

#: Target of a row -> its classes, as MODULE:CLASS; a method may stand in any.
TARGETS = {
    'manager': ('nova.compute.manager:ComputeManager',
                'nova.manager:Manager'),
    'tracker': ('nova.compute.resource_tracker:ResourceTracker',),
    'client': ('nova.scheduler.client.report:SchedulerReportClient',),
    'tree': ('nova.compute.provider_tree:ProviderTree',),
    'driver': ('nova.virt.ironic.driver:IronicDriver',
               'nova.virt.driver:ComputeDriver'),
    'virtapi': ('nova.compute.manager:ComputeVirtAPI',),
    'service': ('nova.service:Service',),
    'instances': ('nova.objects.instance:InstanceList',),
    'instance': ('nova.objects.instance:Instance',),
    'transport': ('oslo_messaging._drivers.impl_rabbit:RabbitDriver',
                  'oslo_messaging._drivers.amqpdriver:AMQPDriverBase'),
    'listener': ('oslo_messaging._drivers.amqpdriver:RpcAMQPListener',
                 'oslo_messaging._drivers.amqpdriver:AMQPListener'),
    'message': ('oslo_messaging._drivers.amqpdriver:AMQPIncomingMessage',),
    'adapter': ('oslo_messaging._drivers.base:PollStyleListenerAdapter',),
    'raw': ('oslo_messaging._drivers.impl_rabbit:RabbitMessage',),
    'bus': ('oslo_messaging.transport:Transport',),
    'connection': ('openstack.baremetal.v1._proxy:Proxy',
                   'openstack.proxy:Proxy'),
    'node': ('openstack.baremetal.v1.node:Node',
             'openstack.resource:Resource'),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing of nova's, oslo.messaging's or openstacksdk's.

    :param target: one of :data:`TARGETS`.
    :param name: of the attribute; or a function of the target's class that
        returns the names of several methods.
    :param why: what this package needs it for, and so what is lost without.
    :param parameters: names of parameters that a layer reads; None for
        several methods, or an attribute that is no method.
    :param layers: functions of (parts, :class:`.apply.Call`) around it, the
        innermost first; none if it is called or read, and not replaced.
    :param by: what replaces it, if :func:`.apply.apply` does not.
    :param users: functions of nova that rely on what is replaced.
    :param since: first release of nova with it.
    :param until: last release of nova for which it is needed.
    :param optional: nova-compute also starts without it.
    """

    target: str
    name: str | Callable[[type], list[str]]
    why: str
    parameters: tuple[str, ...] | None = None
    layers: tuple[Callable, ...] = ()
    by: str = ''
    users: tuple[str, ...] = ()
    since: int = OLDEST
    until: float = float('inf')
    optional: bool = False

    @property
    def label(self) -> str:
        """The name for people to read."""
        return (self.name if isinstance(self.name, str)
                else self.name.__name__)

    def names(self, owner: type) -> list[str]:
        """Return the names of the attributes.

        :param owner: class of the target.
        """
        return [self.name] if isinstance(self.name, str) else self.name(owner)

    @property
    def owner(self) -> type:
        """The class of the target, of nova, oslo.messaging or openstacksdk."""
        module, _, name = TARGETS[self.target][0].partition(':')
        return getattr(importlib.import_module(module), name)

    def mismatch(self) -> str:
        """Say what the class has otherwise; an empty str if nothing."""
        try:
            owner = self.owner
        except (AttributeError, ImportError):
            return self.sentence('is gone')
        if self.parameters is None and isinstance(self.name, str):
            # An attribute of its objects.
            return ''
        for name in self.names(owner):
            if not inspect.isfunction(getattr(owner, name, None)):
                return self.sentence('is no method any more', name)
        if self.parameters is None:
            return ''
        method = getattr(owner, self.label)
        missing = {*self.parameters} - {*apply.parameters(method)}
        if missing and not apply.takes_anything(method):
            return self.sentence(
                f'has no parameter {", ".join(sorted(missing))}')
        return ''

    def sentence(self, what: str, name: str = '') -> str:
        """Return a sentence that names release, attribute and remedy."""
        return (f'In nova {version()} {self.full(name)} {what}: install nova '
                f'{OLDEST} to {LATEST}, or a nova-ironic-multihost that '
                'supports this one.')

    def full(self, name: str = '') -> str:
        """Return CLASS.NAME."""
        owner = TARGETS[self.target][0].partition(':')[2]
        return f'{owner}.{name or self.label}'


def targets(manager: typing.Any, driver: typing.Any
            ) -> dict[str, typing.Any]:
    """Return target -> object, of those that a compute service has.

    :param manager: nova's ComputeManager, whose service starts it.
    :param driver: the virt driver.
    """
    found = {'manager': manager, 'tracker': manager.rt,
             'client': manager.reportclient, 'driver': driver,
             'transport': listeners.transport_driver()}
    if any(row.target == 'service' for row in rows()):
        found['service'] = compat.starting_service(manager)
    return {target: one for target, one in found.items() if one is not None}


def lacking() -> list[str]:
    """Return what the installed nova has otherwise: CLASS.METHOD, sorted."""
    return sorted(
        row.full() for row in rows() if not row.optional and row.mismatch())


def version() -> str:
    """Return the version of nova."""
    try:
        return metadata.version('nova')
    except metadata.PackageNotFoundError:
        return 'without a version'


def rows(release: float | None = None) -> list[Row]:
    """Return the rows for a release of nova.

    :param release: major number; None for the nova that is installed. If that
        has another kind of number it is known by what it has.
    """
    if release is None:
        number = version().partition('.')[0]
        release = int(number) if number.isdecimal() else 0
        if not OLDEST <= release < 2 * LATEST:
            release = LATEST if hasattr(
                nova_manager.Manager, 'set_shutdown_in_progress') else 33
    return [row for row in ROWS if row.since <= release <= row.until]


#: How the audits of nova's manager come to records and nodes.
_AUDITS = (
    Row('manager', '_get_compute_nodes_in_db',
        'an audit works with the records that the driver has read, not with '
        'those of a replica that lags, and comes to no node that is not due',
        ('nodenames',), (handlers.read_records,),
        users=('ComputeManager.update_available_resource',)),
    Row('tracker', 'clean_compute_node_cache',
        'a node that this host took since the audit began stays in the '
        'tracker', ('compute_nodes_in_db',), (handlers.keep_current,),
        users=('ComputeManager.update_available_resource',)),
    Row('tracker', '_get_compute_node',
        'this host takes no record of another host without asking',
        ('node_uuid',), (handlers.judge_record,),
        users=('ResourceTracker._init_compute_node',)),
    Row('tracker', '_update_to_placement',
        'a record that others get while placement is told of the node stays '
        'theirs', ('context', 'compute_node'),
        (handlers.judge_again,), users=('ResourceTracker._update',)),
    Row('tracker', '_init_compute_node',
        'a record that another host creates at the same time refuses one '
        'node, and does not end the service', ('context', 'resources'),
        (handlers.note_moves, handlers.pass_over),
        users=('ResourceTracker._update_available_resource',)),
    Row('manager', '_update_available_resource_for_node',
        'a node of which nothing has changed is not audited each time',
        ('nodename',), (handlers.audit_if_due,),
        users=('ComputeManager.update_available_resource',)),
    Row('tracker', 'update_available_resource',
        'it is known which audits of nodes have succeeded',
        ('nodename',), (handlers.note_audit,),
        users=('ComputeManager._update_available_resource_for_node',)),
    Row('tracker', '_update',
        'a node whose usage has changed is audited again',
        ('compute_node',), (handlers.note_update,),
        users=('ResourceTracker.instance_claim',
               'ResourceTracker.abort_instance_claim',
               'ResourceTracker.update_usage')),
    Row('tracker', 'update_usage',
        'a node is audited again when an instance has changed',
        ('instance', 'nodename'), (handlers.note_change,),
        users=('ComputeManager._update_resource_tracker',)),
    *(Row('tracker', name, 'the next audit tells the scheduler of it',
          ('nodename',), (handlers.note_change,),
          users=(f'ComputeManager._{name}',))
      for name in ('build_failed', 'build_succeeded')),
    Row('manager', '_complete_deletion',
        'a node is audited again when a delete has come to its end: what '
        'could not be freed is freed then', ('instance',),
        (handlers.note_change,), users=('ComputeManager._delete_instance',)),
    Row('client', 'get_allocations_for_resource_provider',
        'a free node with an allocation is audited again: what deleted '
        'servers have left is taken off', ('rp_uuid',),
        (handlers.note_allocations,), optional=True, users=(
            'ResourceTracker._remove_deleted_instances_allocations',)),
    Row('tracker', '_sync_compute_service_disabled_trait',
        'no provider is marked because the service is about to end, and each '
        "is marked as nova's", ('traits',),
        (handlers.set_traits,), users=('ResourceTracker._get_traits',)),
    Row('client', 'get_provider_tree_and_ensure_root',
        'an audit of a node or a claim copies the provider of that node and '
        'no others', ('rp_uuid',), (compat.get_root,), until=33,
        users=('ResourceTracker._update_to_placement',)),
    Row('client', 'update_from_provider_tree',
        'that copy is compared with one provider, and nothing changes of '
        'others', ('new_tree',), (compat.flush_root,), until=33,
        users=('ResourceTracker._update_to_placement',)),
)

#: How a service starts, is disabled and ends.
_SERVICE = (
    Row('manager', 'post_start_hook',
        'the driver acts when the service takes builds, not earlier', (),
        (handlers.begin,), users=('Service.start',)),
    Row('manager', '_update_compute_provider_status',
        'the request with which a service is disabled does not wait for all '
        'its nodes, and it is known when the others may have seen that',
        ('enabled',), (handlers.switch,),
        users=('ComputeManager.set_host_enabled',)),
    Row('manager', 'set_shutdown_in_progress',
        'the driver begins nothing new when the service is to end', (),
        (handlers.end,), since=34, users=('Service.stop',)),
    Row('service', 'stop',
        'the driver begins nothing new when the service is to end', (),
        (handlers.end,), until=33, users=('ServiceLauncher',)),
    Row('transport', 'listen',
        'a build is acknowledged when there is a copy of it, and nothing that '
        'comes when the service ends', (), (handlers.hold_builds,),
        users=('Transport',)),
    Row('manager', '_init_instance',
        'a take-over that was interrupted goes on, and what fails for one '
        'instance does not end the service', ('context', 'instance'),
        (handlers.init_instance,), users=('ComputeManager.init_host',)),
    Row('manager', '_get_nodes',
        'the start of the service does not wait for thousands of records '
        'that nobody needs', (), (handlers.no_nodes,),
        users=('ComputeManager.init_host',)),
    Row('manager', '_destroy_evacuated_instances',
        'no machine is destroyed because its server was to be evacuated',
        (), (handlers.no_instances,),
        users=('ComputeManager.init_host',)),
    Row('manager', '_error_out_instances_whose_build_was_interrupted',
        'the start of the service leaves builds alone that wait in its queue',
        (), (handlers.nothing,), users=('ComputeManager.init_host',)),
    Row('manager', '_check_for_host_rename',
        'the start of the service does not read thousands of instances for '
        'which there is nothing to do', (), (handlers.read_few_instances,),
        users=('ComputeManager.init_host',)),
    Row('instances', 'get_by_host', 'the same',
        by='handlers.read_few_instances', users=('ComputeManager.init_host',)),
    Row('manager', '_update_scheduler_instance_info',
        'the scheduler does not take the others for all of this host',
        ('context', 'instance'), (handlers.tell_of_one,),
        users=('ComputeManager.init_host',)),
)

#: How operations on instances ask the guard.
_OPERATIONS = (
    Row('manager', operations.sent_to_host,
        'an operation on an instance that has moved is not carried out, and '
        'no evacuation is', layers=(operations.operate,),
        users=('RPCDispatcher', 'ComputeManager')),
    Row('manager', 'external_instance_event',
        'an event for an instance that has moved is dropped',
        ('instances', 'events'), (operations.sift,),
        users=('RPCDispatcher',)),
    Row('manager', 'build_and_run_instance',
        'the driver knows which builds are here, and has a copy of each; one '
        'that was sent to a dead host finds its node here',
        ('instance', 'node'),
        (operations.arrive, operations.copy, operations.begin),
        users=('RPCDispatcher',)),
    Row('manager', '_do_build_and_run_instance',
        "a build that is another's or is done is not carried out, and it is "
        'noted when one ends',
        ('instance', 'node', 'requested_networks'),
        (build_claim.save_as_a_build, operations.note_failure,
         operations.build, operations.end),
        users=('ComputeManager.build_and_run_instance',)),
    Row('manager', '_build_and_run_instance',
        'nova does not clean up after a build whose instance has moved',
        ('instance',), (operations.ATTEMPT,),
        users=('ComputeManager._do_build_and_run_instance',)),
    Row('manager', '_snapshot_instance',
        'a snapshot of an instance that has moved is not carried out',
        ('instance',), (operations.PART,),
        users=('ComputeManager.snapshot_instance',)),
    Row('manager', '_delete_instance',
        'a delete that fails as nobody answers is repeated', ('instance',),
        (operations.ATTEMPT,),
        users=('ComputeManager.terminate_instance',)),
    *(Row('manager', name,
          'a failure is not written to an instance that has moved',
          ('instance',), (operations.CLEAN_UP,),
          users=('ComputeManager', 'reverts_task_state'))
      for name in ('_instance_update', '_set_instance_obj_error_state',
                   '_try_deallocate_network')),
    Row('tracker', '_set_instance_host_and_node',
        'no build takes an instance that another compute service has claimed '
        'meanwhile, or overwrites what that has written',
        ('instance', 'node'), (build_claim.claim,),
        users=('ResourceTracker.instance_claim',)),
    Row('tracker', '_unset_instance_host_and_node',
        'an instance that has moved keeps its host and its node',
        ('instance',), (build_claim.abort,),
        users=('ResourceTracker.abort_instance_claim',)),
    Row('manager', '_nil_out_instance_obj_host_and_node',
        'the same for a build that fails in the middle of its claim',
        ('instance',), (build_claim.give_back,),
        users=('ComputeManager._do_build_and_run_instance',)),
    Row('instance', 'save',
        'a build writes over nothing but what a build has written',
        ('expected_vm_state', 'expected_task_state', 'admin_state_reset'),
        by='claims.save_as_a_build'),
    Row('driver', operations.mutations,
        'the machine of an instance that has moved is left alone',
        layers=(operations.CHANGE_MACHINE,), users=('ComputeManager',)),
)


def _used(target, why, *attributes, **methods):
    """Return rows of what is called or read, and not replaced.

    :param methods: name -> parameters that are given.
    """
    return (*(Row(target, name, why) for name in attributes),
            *(Row(target, name, why, tuple(parameters.split()))
              for name, parameters in methods.items()))


#: What is called or read; and what a class of ours overrides.
_USED = (
    *_used('virtapi', 'it is how a driver comes to its manager', '_compute'),
    *_used('manager', 'a build of another host is undone, or comes to its end',
           _deallocate_network='context instance requested_networks',
           _update_instance_after_spawn='instance',
           _notify_about_instance_usage='context instance event_suffix',
           _get_image_name='image_meta'),
    *_used('client', 'placement is asked for what may have changed, and for '
           'nothing else', '_provider_tree', '_association_refresh_time',
           _associations_stale='uuid',
           _refresh_and_get_inventory='context rp_uuid',
           _get_provider_aggregates='context rp_uuid'),
    Row('tree', '_find_with_lock', 'one root is copied',
        ('name_or_uuid', 'return_root'), until=33),
    *_used('driver', 'it is known which services share which nodes, and which '
           'nodes are free', _get_hypervisor_type='', _get_node='node_id',
           _node_resources_used='node_obj',
           _node_resources_unavailable='node_obj',
           _can_send_version='version'),
    *(Row('driver', name, 'a build waits for no list of all nodes, and nodes '
          'of others are not kept', parameters, by='driver')
      for name, parameters in (('_refresh_cache', ()),
                               ('_refresh_hash_ring', ('ctxt',)),
                               ('_node_from_cache', ('node_id',)))),
    *_used('transport', 'queues of other hosts are read',
           '_connection_pool', '_default_exchange'),
    Row('listener', '__class__', 'messages are acknowledged when they are '
        'safe', by='listeners.hold_builds'),
    *_used('bus', 'it is what listens to RabbitMQ', '_driver'),
    *_used('listener', 'nothing is taken that comes at the end', '_shutoff'),
    *_used('message', 'the thread of a listener acknowledges',
           '_message_operations_handler'),
    *_used('raw', 'it is known over which channel a message came',
           '_raw_message'),
    *_used('adapter', 'it is known whether somebody listens',
           '_poll_style_listener', '_listen_thread', '_started'),
    *_used('connection', 'nodes are read page by page', '_get_connection'),
    *_used('node', 'the same', '_max_microversion'),
)

ROWS: typing.Final = (*_AUDITS, *_SERVICE, *_OPERATIONS, *_USED)
