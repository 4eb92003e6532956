# SPDX-License-Identifier: Apache-2.0
"""Layers around nova's audits, and around the start and end of a service.

Each is a function of (parts, :class:`.apply.Call`), and :mod:`.table` says
around which method. ``parts`` is what the driver hands to :mod:`.apply`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import typing

from nova.compute import vm_states
from nova import context as nova_context
from nova import exception
from nova import objects
import os_traits
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import errors
from nova_ironic_multihost.adapters import listeners
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: States of an instance in which it is not at rest, whatever it does.
RESTLESS = tuple(sorted(
    value for name, value in vars(vm_states).items()
    if name.isupper() and isinstance(value, str)
    and not takeover.rests_at_start(value, None)))


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the layers work with: parts of the driver, and its functions.

    :ivar moving: the node whose record the tracker is about to move, under
        its lock -> host of the record as it was read, and whether the record
        was deleted.
    """

    guard: typing.Any
    schedule: typing.Any
    arrivals: typing.Any
    #: The records of the audit that has just begun, and of this moment.
    audited: Callable[[], Iterable[Record]]
    current: Callable[[], Iterable[Record]]
    may_take: Callable[[Record], bool]
    may_create: Callable[[str], bool]
    #: As for :class:`.adapters.nova_tracker.NovaTracker`.
    moved: Callable[[str, bool], None]
    barred: Callable[[str, Exception], None]
    #: Called when nova begins and has ended with a node.
    sign: Callable[[], None]
    #: Given what nova would do for an instance at the start of a service.
    init: Callable[[Callable[[], None], objects.Instance], None]
    #: Given the uuids of a build's instance and node; whether it may have
    #: taken anything from a dead host. Raises nothing.
    adopt: Callable[[str, str | None], bool]
    evacuate: Callable[[str], object]
    #: Undoes what a build has begun; given the networks it was asked for with.
    renew: Callable[[str, object], None]
    failed: Callable[[str, BaseException], None]
    #: Given the arguments of a build. Raises nothing.
    copy: Callable[[str, str | None, Mapping[str, object]], None]
    #: Given whether the guard has refused or ended the build.
    over: Callable[[str, str | None, bool], None]
    begin: Callable[[], None]
    switched: Callable[[], None]
    #: Maybe called twice; in the main thread, or in a handler of signals.
    stop: Callable[[], None]
    ending: Callable[[], bool]
    #: Whether COMPUTE_STATUS_DISABLED is to stay as it is.
    keeps_trait: Callable[[], bool]
    heard: Callable[[typing.Any], None]
    moving: dict[str, tuple[str, bool]] = dataclasses.field(
        default_factory=dict)


def read_records(parts, call):
    """Let nova compare its tracker with records that the driver has read.

    At each audit nova drops from its tracker the nodes whose records it does
    not read, and logs all nodes for each record that it does not expect
    (ComputeManager.update_available_resource). Then it comes to each node; 34
    does that in threads, and warns of each for which none is free. So it gets
    to know those alone that are due.
    """
    nodenames = call['nodenames']
    listed = set(nodenames)
    # It is what nova goes through afterwards.
    nodenames.intersection_update(parts.schedule.next_of(nodenames))
    # Those of the others would be taken for nodes that are gone.
    return [record.row for record in parts.audited()
            if record.node in nodenames or record.node not in listed]


def keep_current(parts, call):
    """Keep the nodes in the tracker that came since the audit began."""
    def rows():
        # The tracker asks when it has its lock; no node comes in between.
        for record in parts.current():
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
    if not (parts.may_create(node) if row is None or row.deleted
            else parts.may_take(db.record(row))):
        raise names.ComputeHostNotFound(host=node)
    if row is not None:
        if row.host != tracker.host:
            parts.moving[node] = row.host, row.deleted
        if not row.deleted:
            nova_tracker.keep_failed_builds(tracker, row)
    return row


def judge_again(parts, call):
    """Judge a record that moves again when placement has answered.

    That may be late. A deleted record was judged as one that is created; nova
    has undeleted it for its old owner by then.
    """
    call()
    node, tracker = call['compute_node'].uuid, call.target
    if node in parts.moving:
        host, deleted = parts.moving[node]
        row = apply.novas(tracker, '_get_compute_node')(
            call['context'], node)
        if row is None or row.host != host or not (
                deleted or parts.may_take(db.record(row))):
            raise names.ComputeHostNotFound(host=node)


def note_moves(parts, call):
    """Say which record could be moved to this host, and which could not."""
    done = False
    try:
        try:
            created = call()
        except messaging.RemoteError as exc:
            if errors.for_good(exc):
                for node in parts.moving:
                    parts.barred(node, exc)
            raise
        done = True
        return created
    finally:
        for node, (_, deleted) in parts.moving.items():
            if not deleted:
                parts.moved(node, done)
        parts.moving.clear()


def pass_over(parts, call):
    """Pass over a node whose record another host creates at that moment.

    A starting compute service ends, and a running one logs an error; or nova
    takes that record without a word (nova.db.main.api:compute_node_create,
    which looks for a deleted one). So what it has created is read again.
    """
    node, tracker = call['resources']['hypervisor_hostname'], call.target
    try:
        created = call()
    except exception.InvalidConfiguration as exc:
        if not isinstance(exc.__context__, exception.DuplicateRecord):
            raise
        raise names.ComputeHostNotFound(host=node) from exc
    if created:
        row = apply.novas(tracker, '_get_compute_node')(
            call['context'], call['resources']['uuid'])
        if row is None or row.host != tracker.host:
            tracker.remove_node(node)
            raise names.ComputeHostNotFound(host=node)
    return created


def audit_if_due(parts, call):
    """Audit a node when it is due: nova comes to every node."""
    if not parts.schedule.is_next(call['nodename']):
        return
    parts.sign()
    try:
        call()
    finally:
        parts.sign()


def note_audit(parts, call):
    """Note whether the audit of a node succeeds."""
    node = call['nodename']
    try:
        with parts.schedule.auditing(node):
            call()
    except exception.ComputeHostNotFound:
        # The driver has said so, and nova would log a warning.
        LOG.debug('Node %s is left to another compute service.', node)


def note_update(parts, call):
    """Have a node audited again when its usage has changed."""
    told = False
    try:
        call()
        told = _was_told(call.target, call['compute_node'].uuid)
    finally:
        parts.schedule.touch(call['compute_node'].hypervisor_hostname, told)


def note_change(parts, call):
    """Have a node audited again: nova relies on the next audit."""
    node = call['nodename'] or call['instance'].node
    try:
        return call()
    finally:
        if node is not None:
            parts.schedule.touch(node)


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
    """Note of which nodes something is allocated.

    The tracker reads that at each audit of a node, and takes off what is left
    of deleted servers.
    """
    found = call()
    if found.allocations:
        parts.schedule.note_allocated(call['rp_uuid'])
    return found


def set_traits(parts, call):
    """Set the traits of a node that do not depend on the node.

    COMPUTE_STATUS_DISABLED, by what the services table says of its service;
    it may have to be left as it is.

    OWNER_NOVA since nova 34. Its scheduler asks for that as soon as the last
    compute service is of that release, which is before the first audit of
    that one (nova.scheduler.request_filter:owner_nova_filter). So a node has
    it before, whatever nova audits it.
    """
    call['traits'].add(os_traits.OWNER_NOVA)
    if not parts.keeps_trait():
        call()


def begin(parts, call):
    """Begin when the service has started, and builds arrive."""
    call()
    parts.begin()


def switch(parts, call):
    """Note that the service is disabled or enabled.

    nova would mark all nodes in placement, one after the other, in the
    request of the operator. Its database has the service as it is to be
    (nova.compute.api:HostAPI.service_update).
    """
    parts.switched()


def end(parts, call):
    """Note that the service is told to end; it goes on for minutes."""
    try:
        parts.stop()
    except Exception:
        LOG.exception('This compute service ends all the same.')
    return call()


def hold_builds(parts, call):
    """Have messages acknowledged when they are safe (:mod:`.listeners`).

    nova makes the listeners of a service after it has started its driver, and
    they get nothing before they are polled (nova.service.Service.start).
    """
    adapter = call()
    listeners.hold_builds(adapter)
    parts.heard(adapter)
    return adapter


def init_instance(parts, call):
    """Have something else done for each instance when the service starts.

    nova goes through the instances of its host one by one
    (ComputeManager.init_host), and what fails for one ends the service.
    """
    instance = call['instance']

    def init():
        nova_tracker.spell_host(instance, call.target.host)
        call()

    parts.init(init, instance)


def no_nodes(parts, call):
    """Read no records for the start of the service.

    nova looks for evacuated instances and interrupted builds by them
    (ComputeManager.init_host), which is done otherwise.
    """
    return {}


def no_instances(parts, call):
    """Destroy no machine when a service starts.

    nova does that for what was to be evacuated from this host, also if it was
    only asked for. Over Ironic nothing ever is, the machine is the server's.
    """
    # None is left out when the service goes through its instances.
    return {}


def nothing(parts, call):
    """Look for no lost builds before the service listens.

    nova cannot tell them from those that wait. See
    :mod:`.engine.builds.in_flight`.
    """


def read_few_instances(parts, call):
    """Have nova read only instances for which there is something to do.

    nova reads all instances of a host in one reply, with their flavors, and
    goes through them before it listens for builds (ComputeManager.init_host:
    ``InstanceList.get_by_host``, right after this method). With thousands that
    takes minutes. Others that need something the check for stuck instances
    finds soon afterwards (:mod:`.engine.servers.stuck_instances`).
    """
    call()
    _answer_once()


def _answer_once() -> None:
    """Replace the next ``InstanceList.get_by_host``, and no other."""
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
    """Read the instances of a host that are in the middle of something.

    :param host: as nova spells it.
    :param expected_attrs: what is to be read with them.
    """
    found = {}
    for filters in (
            {'vm_state': list(RESTLESS)},
            {'task_state': [*nova_tracker.TASK_STATES, *takeover.marks(
                host_key(host), nova_tracker.TASK_STATES)]}):
        for row in db.all_rows(
                context, {'host': host, **filters}, expected_attrs or ()):
            found[row.uuid] = row
    return objects.InstanceList(context, objects=list(found.values()))


def tell_of_one(parts, call):
    """Do not tell the scheduler of all instances, as nova has read a few.

    It asks for them itself when it knows none
    (HostManager.update_instance_info).
    """
    if not isinstance(call['instance'], objects.InstanceList):
        call()
