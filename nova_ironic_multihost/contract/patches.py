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

"""Every attribute of a live nova object that this package replaces.

nova offers no other way to change what its manager and its resource tracker
do. :data:`PATCHES` lists the attributes; the functions below replace them,
each for one purpose. They replace attributes of objects and none of classes:
oslo.messaging, nova's own calls and its periodic tasks take a method by its
name from the object when they call it. A driver that is used alone has no
manager, and the functions then do nothing.

Not in the list are the attributes of this package's own driver, a subclass of
nova's: its overrides, and ``node_cache`` (:mod:`.node_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import contextlib
import functools
import inspect
import typing

from nova.compute import build_results
from nova import exception
from nova import service
import os_traits
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.contract import answers
from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import claims
from nova_ironic_multihost.contract import listeners
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import operations
from nova_ironic_multihost.contract import reads
from nova_ironic_multihost.contract import roots
from nova_ironic_multihost.contract import start
from nova_ironic_multihost.core.facts import Record

if typing.TYPE_CHECKING:
    # The manager loads the driver.
    from nova.compute.manager import ComputeManager

LOG = logging.getLogger(__name__)


class Refused(str):
    """The result of a build that the gate has not carried out.

    To nova it is FAILED_BY_POLICY: leave the allocation, and do not count it
    as a failure of the host.
    """

    __slots__ = ()


class Postponed(Refused):
    """The result of a build that is carried out another time.

    What nova would free is needed then.
    """

    __slots__ = ()


class Patch(typing.NamedTuple):
    """What is replaced, and why.

    :param target: ``manager`` (nova's ComputeManager), ``tracker`` (its
        ResourceTracker), ``client`` (its SchedulerReportClient, which asks
        placement), ``driver`` (its driver for Ironic), ``service``
        (nova.service.Service) or ``transport`` (oslo.messaging's driver for
        RabbitMQ).
    :param attribute: name of the attribute; or the name in
        :mod:`.operations` of that which lists several.
    :param why: what this package needs it for.
    :param users: classes or functions of nova and oslo.messaging that rely on
        the attribute.
    """

    target: str
    attribute: str
    why: str
    users: tuple[str, ...]


PATCHES = (
    # patch_record_reads
    Patch('manager', '_get_compute_nodes_in_db',
          'an audit works with the records that the driver has read, not '
          'with those of a replica that lags, and comes to no node that is '
          'not due',
          ('ComputeManager.update_available_resource',)),
    Patch('tracker', 'clean_compute_node_cache',
          'a node that this host took since the audit began stays in the '
          'tracker',
          ('ComputeManager.update_available_resource',)),
    # patch_record_moves
    Patch('tracker', '_get_compute_node',
          'this host takes no record of another host without asking',
          ('ResourceTracker._init_compute_node',)),
    Patch('tracker', '_init_compute_node',
          'a record that another host creates at the same time refuses one '
          'node, and does not end the service',
          ('ResourceTracker._update_available_resource',)),
    Patch('tracker', '_update_to_placement',
          'a record that others get while placement is told of the node stays '
          'theirs',
          ('ResourceTracker._update',)),
    # patch_node_audits
    Patch('manager', '_update_available_resource_for_node',
          'a node of which nothing has changed is not audited each time',
          ('ComputeManager.update_available_resource',)),
    Patch('tracker', 'update_available_resource',
          'it is known which audits of nodes have succeeded',
          ('ComputeManager._update_available_resource_for_node',)),
    Patch('tracker', '_update',
          'a node whose usage has changed is audited again',
          ('ResourceTracker.instance_claim',
           'ResourceTracker.abort_instance_claim',
           'ResourceTracker.update_usage')),
    Patch('tracker', 'build_failed',
          'the next audit of the node tells the scheduler of it',
          ('ComputeManager._build_failed',)),
    Patch('tracker', 'build_succeeded',
          'the same',
          ('ComputeManager._build_succeeded',)),
    Patch('tracker', 'update_usage',
          'a node is audited again when an instance has changed',
          ('ComputeManager._update_resource_tracker',)),
    Patch('manager', '_complete_deletion',
          'a node is audited again when a delete has come to its end: what '
          'could not be freed is freed then',
          ('ComputeManager._delete_instance',)),
    Patch('client', 'get_allocations_for_resource_provider',
          'a free node with an allocation is audited again: what deleted '
          'servers have left is taken off',
          ('ResourceTracker._remove_deleted_instances_allocations',)),
    # patch_enabling
    Patch('manager', '_update_compute_provider_status',
          'the request with which a service is disabled does not wait for '
          'all its nodes, and it is known when the others may have seen that',
          ('ComputeManager.set_host_enabled',)),
    # patch_post_start
    Patch('manager', 'post_start_hook',
          'the driver acts when the service takes builds, not earlier',
          ('Service.start',)),
    # patch_stop
    Patch('service', 'stop',
          'the driver begins nothing new when the service is to end',
          ('ServiceLauncher',)),
    # patch_listeners
    Patch('transport', 'listen',
          'a build is acknowledged when there is a copy of it, and nothing '
          'that comes when the service ends',
          ('Transport',)),
    # patch_traits
    Patch('tracker', '_sync_compute_service_disabled_trait',
          'no provider is marked because the service is about to end, and '
          "each is marked as nova's",
          ('ResourceTracker._get_traits',)),
    # patch_roots, before nova 34
    Patch('client', 'get_provider_tree_and_ensure_root',
          'an audit of a node or a claim copies the provider of that node and '
          'no others',
          ('ResourceTracker._update_to_placement',)),
    Patch('client', 'update_from_provider_tree',
          'that copy is compared with one provider, and nothing changes of '
          'others',
          ('ResourceTracker._update_to_placement',)),
    # patch_instance_init
    Patch('manager', '_init_instance',
          'a take-over that was interrupted goes on, and what fails for one '
          'instance does not end the service',
          ('ComputeManager.init_host',)),
    # patch_nodes_at_start
    Patch('manager', '_get_nodes',
          'the start of the service does not wait for thousands of records '
          'that nobody needs',
          ('ComputeManager.init_host',)),
    # patch_instances_at_start
    Patch('manager', '_check_for_host_rename',
          'the start of the service does not read thousands of instances for '
          'which there is nothing to do',
          ('ComputeManager.init_host',)),
    Patch('manager', '_update_scheduler_instance_info',
          'the scheduler does not take the others for all of this host',
          ('ComputeManager.init_host',)),
    # patch_evacuations
    Patch('manager', '_destroy_evacuated_instances',
          'no machine is destroyed because its server was to be evacuated',
          ('ComputeManager.init_host',)),
    # patch_operations
    Patch('manager', 'operations.sent_to_host',
          'an operation on an instance that has moved is not carried out, and '
          'no evacuation is',
          ('RPCDispatcher', 'ComputeManager')),
    Patch('manager', 'external_instance_event',
          'an event for an instance that has moved is dropped',
          ('RPCDispatcher',)),
    Patch('manager', '_do_build_and_run_instance',
          "a build that is another's or is done is not carried out, and it "
          'is noted when one ends',
          ('ComputeManager.build_and_run_instance',)),
    Patch('manager', '_snapshot_instance',
          'a snapshot of an instance that has moved is not carried out',
          ('ComputeManager.snapshot_instance',)),
    Patch('manager', '_build_and_run_instance',
          'nova does not clean up after a build whose instance has moved',
          ('ComputeManager._do_build_and_run_instance',)),
    Patch('manager', '_delete_instance',
          'a delete that fails as nobody answers is repeated',
          ('ComputeManager.terminate_instance',)),
    Patch('manager', 'operations.CLEAN_UPS',
          'a failure is not written to an instance that has moved',
          ('ComputeManager', 'reverts_task_state')),
    Patch('tracker', '_unset_instance_host_and_node',
          'an instance that has moved keeps its host and its node',
          ('ResourceTracker.abort_instance_claim',)),
    Patch('manager', '_nil_out_instance_obj_host_and_node',
          'the same for a build that fails in the middle of its claim',
          ('ComputeManager._do_build_and_run_instance',)),
    Patch('tracker', '_set_instance_host_and_node',
          'no build takes an instance that another compute service has '
          'claimed meanwhile, or overwrites what that has written',
          ('ResourceTracker.instance_claim',)),
    Patch('driver', 'operations.MUTATIONS',
          'the machine of an instance that has moved is left alone',
          ('ComputeManager',)),
    # patch_copies, patch_arrivals, and patch_operations
    Patch('manager', 'build_and_run_instance',
          'the driver knows which builds are here, and has a copy of each; '
          'one that was sent to a dead host finds its node here',
          ('RPCDispatcher',)),
    Patch('manager', '_error_out_instances_whose_build_was_interrupted',
          'the start of the service leaves builds alone that wait in its '
          'queue',
          ('ComputeManager.init_host',)),
)


def patch_record_reads(
        manager: ComputeManager | None,
        audited: Callable[[], Iterable[Record]],
        current: Callable[[], Iterable[Record]],
        due: Callable[[Iterable[str]], Iterable[str]]) -> None:
    """Let nova compare its tracker with records that the driver has read.

    At each audit nova drops from its tracker the nodes whose records it does
    not read, and logs all nodes for each record that it does not expect
    (ComputeManager.update_available_resource). Then it comes to each node; 34
    does that in threads, and warns of each for which none is free. So it gets
    to know those alone that are due.

    :param manager: nova's ComputeManager.
    :param audited: returns the records of the audit that has just begun.
    :param current: returns the records of this moment: nodes that became
        this host's since the audit began stay in the tracker.
    :param due: returns those of some nodes to which nova is to come.
    """
    if manager is None:
        return
    clean = manager.rt.clean_compute_node_cache

    def read(context, nodenames, use_slave=False, startup=False):
        listed = set(nodenames)
        # It is what nova goes through afterwards.
        nodenames.intersection_update(due(nodenames))
        # Those of the others would be taken for nodes that are gone.
        return [record.row for record in audited()
                if record.node in nodenames or record.node not in listed]

    def rows_by_then():
        for record in current():
            yield record.row

    def clean_but_current(rows):
        # A generator: the tracker asks it when it has its lock, and no
        # node can come in between.
        clean(rows_by_then())

    manager._get_compute_nodes_in_db = read
    manager.rt.clean_compute_node_cache = clean_but_current


def patch_record_moves(
        manager: ComputeManager | None,
        may_take: Callable[[Record], bool],
        may_create: Callable[[str], bool],
        moved: Callable[[str, bool], None] = lambda node, done: None,
        barred: Callable[[str, Exception], None] = lambda node, exc: None
        ) -> None:
    """Ask before the tracker makes a record this host's.

    The tracker reads a record, tells placement of its node, makes this host
    the owner and saves it, even if another host has become the owner meanwhile
    (ResourceTracker._init_compute_node). Placement may answer late, so the
    record is read and judged again after its answer. If another
    host creates the same record first, a starting compute service ends and a
    running one logs an error; or nova takes that record without a word
    (nova.db.main.api:compute_node_create, which looks for a deleted one). Now
    it passes over that one node instead, and what it has created is read
    again.

    :param manager: nova's ComputeManager.
    :param may_take: says whether a record may become this host's.
    :param may_create: says whether this host may create the record of a node.
    :param moved: as for :class:`.calls.Tracker`, as is ``barred``.
    """
    if manager is None:
        return
    tracker = manager.rt
    read = tracker._get_compute_node
    create = tracker._init_compute_node
    # The one node whose record the tracker is about to move, under its lock,
    # and the record as it was read.
    moving = {}

    def read_if_it_may_be_taken(context, node_uuid):
        row = read(context, node_uuid)
        if not (may_create(node_uuid) if row is None or row.deleted
                else may_take(reads.record(row))):
            raise names.ComputeHostNotFound(host=node_uuid)
        if row is not None:
            if row.host != tracker.host:
                moving[node_uuid] = row.host, row.deleted
            if not row.deleted:
                calls.keep_failed_builds(tracker, row)
        return row

    def create_and_note(context, resources):
        done = False
        try:
            with _barring(moving, barred):
                created = create(context, resources)
            done = True
            return created
        finally:
            for node, (_, deleted) in moving.items():
                if not deleted:
                    moved(node, done)
            moving.clear()

    tracker._get_compute_node = read_if_it_may_be_taken
    tracker._update_to_placement = _asking_again(
        tracker._update_to_placement, moving, read, may_take)
    tracker._init_compute_node = _unless_taken(create_and_note, tracker, read)


def _unless_taken(create, tracker, read):
    """Pass over a node whose record another host creates at that moment.

    :param create: ResourceTracker._init_compute_node.
    :param read: ResourceTracker._get_compute_node.
    """
    def create_unless_taken(context, resources):
        node = resources['hypervisor_hostname']
        try:
            created = create(context, resources)
        except exception.InvalidConfiguration as exc:
            if not isinstance(exc.__context__, exception.DuplicateRecord):
                raise
            raise names.ComputeHostNotFound(host=node) from exc
        if created:
            row = read(context, resources['uuid'])
            if row is None or row.host != tracker.host:
                tracker.remove_node(node)
                raise names.ComputeHostNotFound(host=node)
        return created

    return create_unless_taken


def _asking_again(tell, moving, read, may_take):
    """Tell placement of a node, and judge its record again if it moves.

    A deleted record was judged as one that is created; nova has undeleted it
    for its old owner by then.

    :param tell: ResourceTracker._update_to_placement.
    :param moving: node -> owner of its record, and whether it was deleted.
    :param read: ResourceTracker._get_compute_node.
    """
    @functools.wraps(tell)
    def tell_and_ask_again(context, compute_node, startup):
        tell(context, compute_node, startup)
        if compute_node.uuid in moving:
            host, deleted = moving[compute_node.uuid]
            row = read(context, compute_node.uuid)
            if row is None or row.host != host or not (
                    deleted or may_take(reads.record(row))):
                raise names.ComputeHostNotFound(host=compute_node.uuid)

    return tell_and_ask_again


@contextlib.contextmanager
def _barring(nodes, barred):
    """Say of nodes that the database refuses to move their records."""
    try:
        yield
    except messaging.RemoteError as exc:
        if answers.for_good(exc):
            for node in nodes:
                barred(node, exc)
        raise


def patch_node_audits(manager: ComputeManager | None, schedule,
                      step: Callable[[], None] = lambda: None) -> None:
    """Audit a node when it is due, and know which audits have succeeded.

    At each audit nova comes to every node
    (ComputeManager.update_available_resource), and relies on that for what it
    only notes between two of them.

    :param manager: nova's ComputeManager.
    :param schedule: :class:`nova_ironic_multihost.audit.schedule.Schedule`.
    :param step: called when nova begins and has ended with a node.
    """
    if manager is None:
        return
    tracker = manager.rt
    audit_node = manager._update_available_resource_for_node
    audit = tracker.update_available_resource
    update = tracker._update

    # What is wrapped stays at hand: :meth:`.calls.Tracker.audit` asks nobody.
    @functools.wraps(audit_node)
    def audit_if_due(context, nodename, startup=False):
        if not schedule.is_next(nodename):
            return
        step()
        try:
            audit_node(context, nodename, startup=startup)
        finally:
            step()

    @functools.wraps(audit)
    def audit_and_note(context, nodename, startup=False):
        try:
            with schedule.auditing(nodename):
                audit(context, nodename, startup=startup)
        except exception.ComputeHostNotFound:
            # The driver has said so, and nova would log a warning.
            LOG.debug('Node %s is left to another compute service.', nodename)

    @functools.wraps(update)
    def update_and_note(context, compute_node, startup=False):
        node = compute_node.hypervisor_hostname
        told = False
        try:
            update(context, compute_node, startup=startup)
            told = _was_told(tracker, compute_node.uuid)
        finally:
            schedule.touch(node, told)

    def noting(method):
        @functools.wraps(method)
        def note(nodename):
            method(nodename)
            schedule.touch(nodename)
        return note

    usage = tracker.update_usage
    complete = manager._complete_deletion

    @functools.wraps(usage)
    def update_usage_and_note(context, instance, nodename):
        try:
            usage(context, instance, nodename)
        finally:
            schedule.touch(nodename)

    @functools.wraps(complete)
    def complete_and_note(context, instance):
        node = instance.node
        try:
            complete(context, instance)
        finally:
            if node is not None:
                schedule.touch(node)

    _note_allocations(manager.reportclient, schedule)
    tracker.update_usage = update_usage_and_note
    manager._complete_deletion = complete_and_note
    manager._update_available_resource_for_node = audit_if_due
    tracker.update_available_resource = audit_and_note
    tracker._update = update_and_note
    tracker.build_failed = noting(tracker.build_failed)
    tracker.build_succeeded = noting(tracker.build_succeeded)


def _note_allocations(client, schedule):
    """Let the schedule know of which nodes something is allocated.

    The tracker reads that at each audit of a node, and takes off what is left
    of deleted servers (_remove_deleted_instances_allocations).
    """
    read = client.get_allocations_for_resource_provider

    @functools.wraps(read)
    def read_and_note(context, rp_uuid):
        found = read(context, rp_uuid)
        if found.allocations:
            schedule.note_allocated(rp_uuid)
        return found

    client.get_allocations_for_resource_provider = read_and_note


def _was_told(tracker, provider):
    """Whether placement was told all that the tracker wanted it to know.

    If it does not answer, nova logs a warning and goes on
    (SchedulerReportClient.set_traits_for_provider and
    set_aggregates_for_provider, by safe_connect).
    """
    try:
        wanted = tracker.provider_tree.data(provider)
        known = tracker.reportclient._provider_tree
        return not (
            known.have_traits_changed(provider, wanted.traits)
            or known.have_aggregates_changed(provider, wanted.aggregates))
    except ValueError:
        # Another thread has had one of the two forgotten.
        return False


def patch_enabling(manager: ComputeManager | None,
                   act: Callable[[], None]) -> None:
    """Have something done when the service is disabled or enabled.

    Instead of what nova does, in the request of whoever does that: it marks
    all nodes in placement, one after the other.

    :param manager: nova's ComputeManager.
    :param act: what is to be done; nova's database has the service as it is
        to be (nova.compute.api:HostAPI.service_update).
    """
    if manager is not None:
        manager._update_compute_provider_status = (
            lambda context, enabled: act())


def patch_post_start(manager: ComputeManager | None,
                     act: Callable[[], None]) -> None:
    """Have something done when the service has started.

    Its first audit is then over and builds that are sent to it arrive
    (nova.service.Service.start).

    :param manager: nova's ComputeManager.
    :param act: what is to be done.
    """
    if manager is None:
        return
    hook = manager.post_start_hook

    def hook_and_act():
        hook()
        act()

    manager.post_start_hook = hook_and_act


def patch_stop(manager: ComputeManager | None,
               act: Callable[[], None]) -> None:
    """Have something done as soon as the service is told to end.

    It then waits for what it is at, for minutes since nova 33, and sends
    heartbeats, before anything of it hears of that but in nova 34
    (nova.service.Service.stop).

    nova hands the service to nobody, and what has launched it is another
    object in each way to run it. But it is there while it starts.

    :param manager: nova's ComputeManager.
    :param act: what is to be done; more than once does no harm. In the
        service's main thread, or in a handler of signals there.
    """
    starting = _starting_service(manager)
    if starting is None:
        return
    stop = starting.stop

    @functools.wraps(stop)
    def act_and_stop(*args, **kwargs):
        try:
            act()
        except Exception:
            LOG.exception('This compute service ends all the same.')
        return stop(*args, **kwargs)

    starting.stop = act_and_stop


def _starting_service(manager):
    """Return the nova.service.Service that is about to start a manager.

    None if no service starts it.
    """
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get('self')
        if isinstance(found, service.Service) and found.manager is manager:
            return found
        frame = frame.f_back
    return None


def patch_listeners(manager: ComputeManager | None,
                    made: Callable[[typing.Any], None] = lambda adapter: None
                    ) -> None:
    """Have messages acknowledged when they are safe (:mod:`.listeners`).

    Each listener that is made from now on: nova makes those of a service
    after it has started its driver, and they get nothing before they are
    polled (nova.service.Service.start, oslo_messaging.server:
    MessageHandlingServer.start).

    :param manager: nova's ComputeManager.
    :param made: called with each of them.
    """
    driver = listeners.transport_driver()
    if manager is None or driver is None:
        return
    listen = driver.listen

    @functools.wraps(listen)
    def listen_and_hold(*args, **kwargs):
        adapter = listen(*args, **kwargs)
        listeners.hold_builds(adapter)
        made(adapter)
        return adapter

    driver.listen = listen_and_hold


def patch_traits(manager: ComputeManager | None,
                 leave: Callable[[], bool]) -> None:
    """Set the traits of a node that do not depend on the node.

    The tracker does it at each audit of a node (ResourceTracker._get_traits).

    COMPUTE_STATUS_DISABLED, by what the services table says of its service; it
    may have to be left as it is.

    OWNER_NOVA since nova 34. Its scheduler asks for that as soon as the last
    compute service is of that release, which is before the first audit of
    that one (nova.scheduler.request_filter:owner_nova_filter). So a node has
    it before, whatever nova audits it.

    :param manager: nova's ComputeManager.
    :param leave: says whether it is to be left as it is.
    """
    if manager is None:
        return
    sync = manager.rt._sync_compute_service_disabled_trait

    def sync_or_leave(context, traits):
        traits.add(os_traits.OWNER_NOVA)
        if not leave():
            sync(context, traits)

    manager.rt._sync_compute_service_disabled_trait = sync_or_leave


def patch_roots(manager: ComputeManager | None) -> None:
    """Let an audit of a node copy and compare nothing of others.

    So that it does not take the longer, under the tracker's lock, the more
    nodes there are (:mod:`.roots`). nova 34 needs no help.

    :param manager: nova's ComputeManager.
    """
    if manager is None or not roots.needed(manager.reportclient):
        return
    client = manager.reportclient
    client.get_provider_tree_and_ensure_root = functools.partial(
        roots.get, client)
    client.update_from_provider_tree = functools.partial(roots.flush, client)


def patch_instance_init(manager: ComputeManager | None,
                        init: Callable) -> None:
    """Have something else done for each instance when the service starts.

    nova goes through the instances of its host one by one
    (ComputeManager.init_host), and what fails for one ends the service.

    :param manager: nova's ComputeManager.
    :param init: function of (what nova would do: a function without
        arguments; the nova.objects.Instance).
    """
    if manager is None:
        return
    original = manager._init_instance

    @functools.wraps(original)
    def init_instance(context, instance):
        def start():
            calls.spell_host(instance, manager.host)
            original(context, instance)

        init(start, instance)

    manager._init_instance = init_instance


def patch_nodes_at_start(manager: ComputeManager | None) -> None:
    """Read no records for the start of the service.

    nova does it twice and wants to know of which nodes it shall look for
    evacuated instances and for interrupted builds (ComputeManager.init_host).
    Both are done otherwise: :func:`patch_evacuations`,
    :func:`patch_arrivals`.

    :param manager: nova's ComputeManager.
    """
    if manager is not None:
        manager._get_nodes = lambda context: {}


def patch_instances_at_start(manager: ComputeManager | None) -> None:
    """Read few instances for the start of the service, see :mod:`.start`.

    :param manager: nova's ComputeManager.
    """
    if manager is not None:
        start.patch_instances(manager)


def patch_evacuations(manager: ComputeManager | None) -> None:
    """Let no machine be destroyed when a service starts.

    Before 34 nova does it for what was to be evacuated from this host, also
    if that has only been asked for, and frees its allocation
    (ComputeManager._destroy_evacuated_instances). Over Ironic nothing ever
    has been, and the machine is the server's.

    :param manager: nova's ComputeManager.
    """
    if manager is not None:
        # None is left out when the service goes through its instances.
        manager._destroy_evacuated_instances = (
            lambda context, node_cache: {})


def patch_operations(manager: ComputeManager | None,
                     driver: names.IronicDriver, gate,
                     adopt: Callable[[str, str | None], bool],
                     evacuate: Callable[[str], object],
                     renew: Callable[[str, object], None],
                     failed: Callable[[str, BaseException], None] = (
                         lambda instance, error: None)) -> None:
    """Let a gate stand before nova's operations on instances.

    :param manager: nova's ComputeManager.
    :param driver: the virt driver.
    :param gate: :class:`nova_ironic_multihost.gate.Gate`.
    :param adopt: as for :func:`.operations.build`.
    :param evacuate: see :func:`.operations.operate`.
    :param renew: as for :func:`.operations.build`.
    :param failed: see :func:`.operations.failing`.
    """
    if manager is None:
        return
    for name in operations.sent_to_host(type(manager)):
        _wrap(manager, name, operations.operate(gate, evacuate))
    _wrap(manager, operations.BUILD, operations.arrive(adopt))
    # The work of that, in a thread of its own.
    _wrap(manager, '_do_build_and_run_instance', claims.build(gate))
    _wrap(manager, '_do_build_and_run_instance', operations.failing(failed))
    _wrap(manager, '_do_build_and_run_instance', operations.build(
        gate, adopt, lambda: Refused(build_results.FAILED_BY_POLICY), renew,
        lambda: Postponed(build_results.FAILED_BY_POLICY)))
    # That of snapshot_instance, since nova 33.
    _wrap(manager, '_snapshot_instance', gate.operate)
    _wrap(manager, '_build_and_run_instance', gate.attempt)
    _wrap(manager, '_delete_instance', gate.attempt)
    for name in operations.CLEAN_UPS:
        _wrap(manager, name, gate.clean_up)
    _wrap(manager.rt, '_set_instance_host_and_node', claims.claim(gate))
    _wrap(manager.rt, '_unset_instance_host_and_node', claims.abort(gate))
    _wrap(manager, '_nil_out_instance_obj_host_and_node',
          claims.give_back(gate))
    for name in operations.mutations(type(driver)):
        _wrap(driver, name, gate.change_machine)
    manager.external_instance_event = operations.sifted(
        manager.external_instance_event, gate)


def patch_copies(manager: ComputeManager | None,
                 copy: Callable[[str, str | None, Mapping[str, object]], None],
                 end: Callable[[str, str | None, bool], None],
                 ending: Callable[[], bool]) -> None:
    """Have builds copied when they come, and say when they are over.

    One that has come is acknowledged between (:mod:`.listeners`).

    :param manager: nova's ComputeManager.
    :param copy: see :func:`.operations.copied`.
    :param end: function of the uuids of the instance and of the node, or None,
        and of whether the gate has refused or ended it.
    :param ending: whether the service is about to end; what is not carried out
        then may have been given up because of that.
    """
    if manager is None:
        return

    def end_what_is_over(instance, node, result):
        refused = isinstance(result, Refused)
        if not (refused and ending() or isinstance(result, Postponed)):
            end(instance, node, refused)

    _wrap(manager, operations.BUILD, operations.copied(
        copy, listeners.acknowledge))
    _wrap(manager, '_do_build_and_run_instance',
          operations.over(end_what_is_over))


def patch_arrivals(manager: ComputeManager | None, arrivals) -> None:
    """Note which builds are here, and end none at the start of the service.

    nova looks for builds that were lost before the service listens, when it
    cannot tell them from those that wait (ComputeManager.init_host). See
    :mod:`.audit.arrivals`.

    :param manager: nova's ComputeManager; a build that waits at the gate is
        here, and so is one that is copied, or of which it is not yet said
        that it is over, so that is put there first (:func:`patch_operations`,
        :func:`patch_copies`).
    :param arrivals: :class:`nova_ironic_multihost.audit.arrivals.Arrivals`.
    """
    if manager is None:
        return
    _wrap(manager, 'build_and_run_instance', operations.begun(arrivals))
    _wrap(manager, '_do_build_and_run_instance', operations.ended(arrivals))

    def leave(context, already_handled_instances, node_uuids):
        pass

    manager._error_out_instances_whose_build_was_interrupted = leave


def _wrap(target, name, around):
    """Let another function call a method of an object.

    :param around: see :func:`.operations.wrapped`.
    """
    setattr(target, name, operations.wrapped(
        name, getattr(target, name), around))
