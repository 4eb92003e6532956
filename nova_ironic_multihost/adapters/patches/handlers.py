# SPDX-License-Identifier: Apache-2.0

"""Layers around nova's audits, and around the start and end of a service.

Each is a function of (parts, :class:`.apply.Call`), where ``parts`` is the
:class:`.service.DriverService`; :mod:`.table` says around which method it
stands.
"""

from __future__ import annotations

from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects
import os_traits
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_servers
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: States of an instance for which there is something to do at a start.
RESTLESS = tuple(sorted(
    value for name, value in vars(vm_states).items()
    if name.isupper() and isinstance(value, str)
    and not takeover.rests_at_start(value, None)))


def read_records(parts, call):
    """Let nova compare its tracker with records that the driver has read.

    An audit (ComputeManager.update_available_resource) drops nodes without a
    record from the tracker, and logs all nodes for each record that it does
    not expect. Then it audits each node. nova 34 does that in threads, and
    warns of each node for which none is free. So nova gets due nodes only.
    """
    parts.nodes.follow_up()
    nodenames = call['nodenames']
    listed = set(nodenames)
    # nova goes through this set afterwards.
    nodenames.intersection_update(parts.due_nodes.next_of(nodenames))
    # nova would delete the record of a node that is listed and not due.
    return [record.row for record in parts.nodes.audited.records
            if record.node in nodenames or record.node not in listed]


def keep_current(parts, call):
    """Keep the nodes in the tracker that came since the audit began."""
    def rows():
        # The tracker asks when it has its lock; no node comes in between.
        for record in (*parts.auditor.last.records,
                       *parts.rebalancer.records):
            yield record.row

    return call.changed(compute_nodes_in_db=rows())


def judge_record(parts, call):
    """Ask before the tracker makes a record this host's.

    The tracker reads a record, tells placement of its node, makes this host
    the owner and saves it, even if another host has become the owner
    meanwhile (ResourceTracker._init_compute_node).
    """
    node, tracker = call['node_uuid'], call.target
    row = call()
    if not (parts.nodes.may_create(node) if row is None or row.deleted
            else parts.nodes.may_take(db.record(row))):
        raise names.ComputeHostNotFound(host=node)
    if row is not None:
        if row.host != tracker.host:
            parts.moving[node] = row.host, row.deleted
        if not row.deleted:
            nova_tracker.keep_failed_builds(tracker, row)
    return row


def judge_again(parts, call):
    """Judge a record that moves again: placement may have answered late.

    A deleted record was judged as one that is created; nova has undeleted it
    for its old owner by then.

    Of a record in its cache nova compares the service_id alone, and makes it
    this service's (ResourceTracker._init_compute_node). If another host has
    the record by now, it would be deleted with this service
    (nova.db.main.api:service_destroy).
    """
    call()
    tracked, tracker = call['compute_node'], call.target
    node = tracked.uuid
    if node in parts.moving or 'service_id' in tracked.obj_what_changed():
        host, deleted = parts.moving.get(node, (tracker.host, True))
        row = _record(call, node)
        if row is None or row.host != host or not (
                deleted or parts.nodes.may_take(db.record(row))):
            tracker.remove_node(tracked.hypervisor_hostname)
            raise names.ComputeHostNotFound(host=node)


def note_moves(parts, call):
    """Say which record moved to this host, and which could not.

    Another host may create the record at the same time. Then a starting
    service of nova ends, and a running one logs an error; or nova silently
    takes that record (nova.db.main.api:compute_node_create finds a deleted
    one). So the record is read again, and the node left to the other host.
    """
    node, tracker = call['resources']['hypervisor_hostname'], call.target
    tracked = tracker.compute_nodes.get(node)
    if tracked is not None and tracked.host != tracker.host:
        # A save has brought the new owner: the record is judged anew.
        tracker.remove_node(node)
    done = False
    try:
        created = call()
        done = True
    except messaging.RemoteError as exc:
        if retry.for_good(exc):
            for moving in parts.moving:
                parts.nodes.bar(moving, exc)
        raise
    except exception.InvalidConfiguration as exc:
        if not isinstance(exc.__context__, exception.DuplicateRecord):
            raise
        raise names.ComputeHostNotFound(host=node) from exc
    finally:
        for moving, (_, deleted) in parts.moving.items():
            if not deleted:
                parts.nodes.note_move(moving, done)
        parts.moving.clear()
    if created:
        row = _record(call, call['resources']['uuid'])
        if row is None or row.host != tracker.host:
            tracker.remove_node(node)
            raise names.ComputeHostNotFound(host=node)
    return created


def _record(call, node):
    """Read the record of a node as nova's tracker does."""
    return apply.novas(call.target, '_get_compute_node')(
        call['context'], node)


def audit_if_due(parts, call):
    """Audit a node when it is due: nova comes to every node."""
    if parts.due_nodes.is_next(call['nodename']):
        parts.recorder.sign(Work.AUDIT)
        try:
            call()
        finally:
            parts.recorder.sign(Work.AUDIT)


def note_audit(parts, call):
    """Note whether the audit of a node succeeds."""
    node = call['nodename']
    try:
        with parts.due_nodes.auditing(node):
            call()
    except exception.ComputeHostNotFound:
        # The driver has refused it, and nova would log a warning.
        LOG.debug('Node %s is left to another compute service.', node)


def note_update(parts, call):
    """Have a node audited again when its usage has changed."""
    told = False
    try:
        call()
        told = _was_told(call.target, call['compute_node'].uuid)
    finally:
        parts.due_nodes.touch(call['compute_node'].hypervisor_hostname, told)


def note_change(parts, call):
    """Have a node audited again: nova relies on the next audit."""
    node = call['nodename'] or call['instance'].node
    try:
        return call()
    finally:
        if node is not None:
            parts.due_nodes.touch(node)


def note_usage(parts, call):
    """As :func:`note_change`; go on if the node is another host's by now."""
    try:
        note_change(parts, call)
    except names.ComputeHostNotFound as exc:
        # By judge_again(). A delete has still to free the allocation.
        LOG.debug('Usage is not saved: %s', exc)


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


def note_allocations(parts, call):
    """Note nodes with allocations: their next audit frees deleted servers'."""
    found = call()
    if found.allocations:
        parts.due_nodes.note_allocated(call['rp_uuid'])
    return found


def set_traits(parts, call):
    """Set the traits of a node that do not depend on the node.

    COMPUTE_STATUS_DISABLED as the services table says of the service, unless
    it is about to end. OWNER_NOVA also before nova 34: the scheduler
    asks for it as soon as the last compute service is of that release, which
    is before its first audit (nova.scheduler.request_filter:
    owner_nova_filter).
    """
    call['traits'].add(os_traits.OWNER_NOVA)
    if not parts.shutdown.begun():
        call()


def start_driver(parts, call):
    """Begin when the service has started, and builds arrive."""
    call()
    parts.begin()


def note_switch(parts, call):
    """Note that the service is disabled or enabled.

    nova would mark all nodes in the operator's request. Here audits do that.
    Its database has the new state of the service already.
    """
    parts.note_switch()


def stop_driver(parts, call):
    """Note that the service is told to end; it goes on for minutes."""
    try:
        parts.end()
    except Exception:
        LOG.exception('This compute service ends all the same.')
    return call()


def hold_builds(parts, call):
    """Have messages acknowledged when they are safe (:mod:`.listeners`).

    nova polls a listener, and so takes messages, after it has started its
    driver (nova.service.Service.start).
    """
    adapter = call()
    listeners.hold_builds(adapter)
    parts.attendance.note(adapter)
    return adapter


def init_instance(parts, call):
    """Have the driver decide what is done for an instance at the start.

    An error of one instance would end the service (ComputeManager.init_host).
    """
    instance = call['instance']

    def init():
        nova_servers.spell_host(instance, call.target.host)
        call()

    parts.recovery.start(init, instance)


def leave_out(parts, call):
    """Leave out a step of ComputeManager.init_host that finds things to do.

    ``_destroy_evacuated_instances`` destroys the machine of a server with an
    evacuation that was only requested. For
    ``_error_out_instances_whose_build_was_interrupted`` a build that waits in
    a queue is lost (:mod:`.engine.builds.lost_builds` finds lost ones). Only
    these two and ``_check_for_host_rename`` use what ``_get_nodes`` returns.
    """
    return {}


def read_few_instances(parts, call):
    """Have nova read only instances for which there is something to do.

    nova reads all instances of its host in one reply, with their flavors,
    right after this method (ComputeManager.init_host), and goes through them
    before it listens for builds: minutes for thousands. So its next
    ``InstanceList.get_by_host`` is another. What the others need,
    :mod:`.engine.servers.stuck_instances` finds soon afterwards.
    """
    call()
    listed = objects.InstanceList
    original = vars(listed)['get_by_host']

    def get_by_host(context, host, expected_attrs=None, use_slave=False):
        listed.get_by_host = original
        try:
            return restless(context, host, expected_attrs)
        except exception.MarkerNotFound:
            # Many are being deleted at this moment.
            return listed.get_by_host(
                context, host, expected_attrs=expected_attrs,
                use_slave=use_slave)

    listed.get_by_host = staticmethod(get_by_host)


def restless(context: nova_context.RequestContext, host: str,
             expected_attrs: list[str] | None) -> objects.InstanceList:
    """Read the instances that have work left; ``host`` as nova spells it."""
    tasks = [*nova_servers.TASK_STATES, *takeover.marks(
        host_key(host), nova_servers.TASK_STATES)]
    found = {
        row.uuid: row
        for states in ({'vm_state': [*RESTLESS]}, {'task_state': tasks})
        for row in db.all_rows(
            {'host': host, **states}, expected_attrs or ())}
    return objects.InstanceList(context, objects=list(found.values()))


def tell_of_one(parts, call):
    """Do not tell the scheduler of all instances: nova has read a few.

    It asks for them when it knows none (HostManager.update_instance_info).
    """
    if not isinstance(call['instance'], objects.InstanceList):
        call()
