# SPDX-License-Identifier: Apache-2.0

"""What nova does on behalf of this package.

Through nova's manager of the compute service (its resource tracker, its work
on instances) and through nova's objects.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import datetime
import itertools
import time

from nova.compute import provider_tree
from nova.compute import resource_tracker
from nova.compute import task_states
from nova.compute import vm_states
from nova import exception
from nova import objects
from nova import rpc
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import errors
from nova_ironic_multihost.adapters import evacuation_undo
from nova_ironic_multihost.adapters import finish_build
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import settings
from nova_ironic_multihost.rules import evacuation as rules
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: What an instance can be in the middle of.
TASK_STATES = tuple(
    value for name, value in vars(task_states).items()
    if name.isupper() and isinstance(value, str))


#: A statistic of a record that nova's tracker counts, besides those whose
#: names begin with num_ (nova.compute.stats).
COUNTED = 'io_workload'

#: Records that the tracker is given at a time.
FILLED = 500

#: Questions to placement at a time.
AT_ONCE = 8


def keep_failed_builds(tracker: resource_tracker.ResourceTracker,
                       row: objects.ComputeNode) -> None:
    """Let nova's tracker go on counting the failed builds of a node.

    It begins with none whenever it reads a record
    (ResourceTracker._copy_resources), and the scheduler prefers the node.
    """
    failed = (row.stats or {}).get('failed_builds')
    if failed is not None:
        tracker.stats[row.hypervisor_hostname]['failed_builds'] = int(failed)


class NovaTracker:
    """The resource tracker of the compute service that a driver serves.

    A driver that is used alone has none; nothing is then tracked.

    :param virtapi: what nova gave to the driver.
    :param moved: called with the uuid of a node and whether its record could
        be moved to this host, when it was to be.
    :param barred: called with the uuid of a node whose record the database
        does not let become this host's, whenever that is tried, and why.
    """

    def __init__(self, virtapi, moved: Callable[[str, bool], None] = (
            lambda node, done: None),
            barred: Callable[[str, Exception], None] = (
                lambda node, exc: None)):
        self._manager = names.manager_of(virtapi)
        self._moved = moved
        self._barred = barred
        #: Node -> when placement was asked for all of it, as of when it was
        #: asked for a part.
        self._renewed: dict[str, float | None] = {}

    @property
    def report_client(self):
        """nova's client of placement."""
        return self._manager.reportclient

    def has(self, node: str) -> bool:
        """Whether the tracker has the record of a node at hand.

        It then goes on without a look at who owns the record now
        (ResourceTracker._init_compute_node), and without changing it.
        """
        return (self._manager is not None
                and node in self._manager.rt.compute_nodes)

    def at_hand(self, records: Iterable[Record]) -> list[Record]:
        """Return records with the rows that the tracker has of them.

        A row is kilobytes, and there would be another one of each.

        :param records: as they were read now; those that the tracker does not
            have, or has otherwise, stay as they are.
        """
        tracked = (self._manager.rt.compute_nodes
                   if self._manager is not None else {})

        def with_its_row(record):
            row = tracked.get(record.node)
            return (dataclasses.replace(record, row=row)
                    if row is not None and (row.id, row.host)
                    == (record.row.id, record.host) else record)

        return [with_its_row(record) for record in records]

    def audit(self, node: str) -> None:
        """Audit one node now, as nova does in turn at each audit.

        nova asks the driver for the resources of the node, makes its record
        this host's and tells placement. It logs errors itself. The caller
        must not hold nova's lock around claims and updates.

        :param node: uuid of the node.
        """
        if self._manager is not None:
            # It is wanted now, whether it is due or not.
            apply.novas(self._manager, '_update_available_resource_for_node')(
                names.admin_context(), node)

    def move(self, nodes: Sequence[str],
             judge: Callable[[Sequence[str]], Sequence[Record]]) -> set[str]:
        """Make records of dead hosts this host's as they are, without audits.

        What ResourceTracker._init_compute_node does to a record, several at
        the same time, and nothing else. A claim waits meanwhile, as it does
        there: builds are sent here as soon as a record is written. The
        records are read inside nova's lock, which a claim may hold for
        minutes.

        :param nodes: few, as each record is written by a thread.
        :param judge: as for :meth:`pull`.
        :returns: those that are this host's now. Of the others that is not
            known.
        """
        return (self._move(nodes, judge)
                if self._manager is not None and nodes else set())

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _move(self, nodes, judge):
        records = judge(nodes)
        if not records:
            return set()
        with futures.ThreadPoolExecutor(len(records)) as pool:
            moved = self._noted(records, pool.map(self._save, records))
        self._insert(moved)
        return {record.node for record in moved}

    def _noted(self, records, results):
        """Return those of the records that could be moved."""
        moved = []
        for record, done in zip(records, results, strict=True):
            self._moved(record.node, bool(done))
            if done:
                moved.append(record)
        return moved

    def _save(self, record):
        row, tracker = record.row, self._manager.rt
        row.host, row.service_id = tracker.host, tracker.service_ref.id
        try:
            row.save()
        except Exception as exc:  # noqa: BLE001
            # Its audit reads it anew.
            LOG.debug('The record of node %(node)s could not be moved: '
                      '%(exc)s', {'node': record.node, 'exc': exc})
            if errors.for_good(exc):
                self._barred(record.node, exc)
            return False
        return True

    def pull(self, nodes: Sequence[str],
             judge: Callable[[list[str]], Iterable[Record]]) -> set[str]:
        """Make idle nodes of live hosts this host's, without audits.

        Each is reserved while its record moves, see :mod:`.placement`. The
        records are read after the generations: of a node that another host
        has pulled in between the reservation fails. They are read again
        after the reservation, as placement may answer late.

        :param nodes: few, as each has a thread.
        :param judge: reads of some of them the records, and returns those
            that may become this host's as they are.
        :returns: those that are this host's now. Of the others that is not
            known, and they may be reserved: whoever has one when it is
            audited next has placement offer it.
        """
        if self._manager is None or not nodes:
            return set()
        with futures.ThreadPoolExecutor(len(nodes)) as pool:
            idle = [found for found in pool.map(
                lambda node: placement.of_idle(self.report_client, node),
                nodes) if found is not None]
            return self._pull(idle, judge, pool) if idle else set()

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _pull(self, idle, judge, pool):
        def judged(some):
            return {record.node: record for record
                    in judge([one.node for one in some])} if some else {}

        suitable = judged(idle)
        wanted = [one for one in idle if one.node in suitable]
        held = [one for one, made in zip(wanted, pool.map(
            placement.Reservation.make, wanted), strict=True) if made]
        ends = held
        try:
            # Placement may have answered late: others go on meanwhile.
            records = judged(held)
            moved = self._noted(wanted, pool.map(
                lambda one: one.node in records
                and self._save(records[one.node]), wanted))
            # From the end of its reservation on a node may be claimed.
            self._insert([records[one.node] for one in moved])
            for one in moved:
                # The client knows no generation that is written here.
                self.report_client.invalidate_resource_provider(one.node)
            # Who has the record is not known if its write failed.
            ends = [one for one in held
                    if one in moved or one.node not in records]
        finally:
            # One that stays reserved is due to be audited, as all of them.
            for _ in pool.map(placement.Reservation.end, ends):
                pass
        return {one.node for one in moved}

    def unchanged(self, nodes: Sequence[str]) -> set[str]:
        """Return the nodes whose providers are as nova's client knows them.

        Nobody has changed those since nova has read or written them last.
        """
        before = self.generations(nodes)
        asked = [node for node in nodes if node in before]
        if not asked:
            return set()
        with futures.ThreadPoolExecutor(min(AT_ONCE, len(asked))) as pool:
            return {node for node, now in zip(asked, pool.map(
                lambda node: db.generation(
                    names.admin_context(), self.report_client, node),
                asked), strict=True) if now == before[node]}

    def generations(self, nodes: Iterable[str]) -> dict[str, int]:
        """Return the generations of nodes that nova's client knows.

        As it has read or written them last.
        """
        found: dict[str, int] = {}
        for node in nodes if self._manager is not None else ():
            with contextlib.suppress(ValueError):
                found[node] = self.report_client._provider_tree.data(
                    node).generation
        return {node: generation for node, generation in found.items()
                if generation is not None}

    def fill(self, records: Iterable[Record]) -> None:
        """Have the tracker know nodes as their records say, without audits.

        That is all it needs for a build to claim them
        (ResourceTracker.instance_claim), and takes no time.

        :param records: of this host; those that the tracker has are left out.
        """
        if self._manager is None:
            return
        records = iter(records)
        # A claim does not wait for all of them.
        while some := list(itertools.islice(records, FILLED)):
            self._fill(some)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _fill(self, records):
        self._insert(records)

    def _insert(self, records):
        tracker = self._manager.rt
        if tracker.provider_tree is None:
            # A claim looks there for what it does not need to find.
            tracker.provider_tree = provider_tree.ProviderTree()
        for record in records:
            if record.node in tracker.compute_nodes:
                continue
            # Those of the driver; nova counts the others itself.
            tracker.stats[record.node].digest_stats({
                name: value for name, value
                in (record.row.stats or {}).items()
                if not name.startswith('num_') and name != COUNTED})
            keep_failed_builds(tracker, record.row)
            tracker.compute_nodes[record.node] = record.row

    def drop(self, node: str) -> None:
        """Let the tracker forget a node, so that it reads its record anew.

        ResourceTracker.clean_compute_node_cache does so at each audit with
        nodes that another host has got.
        """
        if self.has(node):
            self._remove(node)

    def refresh(self, node: str) -> None:
        """Forget what placement said of a node, so that nova asks it again.

        For a while the former owner still sets traits of a node that moved
        (ComputeManager._update_compute_provider_status); nova's cache would
        hide them for five minutes.
        """
        if self._manager is not None:
            self._invalidate(node)

    def confirm(self, node: str) -> None:
        """Let nova go by what placement has said, if that is what it has.

        nova asks for all of a node every 300 s, in four requests or more
        (SchedulerReportClient._ensure_resource_provider). The generation of
        its provider is one.
        """
        if self._manager is None:
            return
        client, now = self.report_client, time.time()
        before = client._association_refresh_time.get(node)
        if (before not in (None, self._renewed.get(node))
                and client._associations_stale(node)
                and self.unchanged([node])):
            self._confirm(node, before, now)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _confirm(self, node, before, now):
        asked = self.report_client._association_refresh_time
        # Unless another thread has asked for it or for a part, or has
        # forgotten it, since.
        if asked.get(node) == before != self._renewed.get(node):
            asked[node] = now

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _remove(self, node):
        # Who audits the node at this moment would not find it any more.
        self._manager.rt.remove_node(node)
        self.report_client.invalidate_resource_provider(node)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _invalidate(self, node):
        # Who tells placement of the node at this moment, at the end of a
        # delete say, would not find it in that cache any more, and fail
        # (SchedulerReportClient.update_from_provider_tree).
        self.report_client.invalidate_resource_provider(node)

    def renew(self, node: str) -> None:
        """Read anew what placement has of a node, and its generation.

        If placement answers with an error nova logs it and goes on with what
        it knew.

        :raises keystoneauth1.exceptions.ClientException: it does not answer.
        """
        client = self.report_client
        # Of the rest is known what it was by the generation before.
        asked = client._association_refresh_time
        self._renewed[node] = asked.get(node)
        if len(self._renewed) > len(asked):
            # nova forgets a node in several places, for good or not.
            for gone in [*self._renewed]:
                if gone not in asked:
                    self._renewed.pop(gone, None)
        # Another thread may have forgotten the provider since.
        with contextlib.suppress(ValueError):
            client._refresh_and_get_inventory(names.admin_context(), node)


class ServerCalls:
    """What nova's manager does for the instances of its compute service.

    Implements the port :class:`.engine.base.ports.ServerCalls`.

    :param virtapi: what nova gave to the driver, see :class:`NovaTracker`.
    """

    def __init__(self, virtapi):
        self._manager = names.manager_of(virtapi)

    def marked(self, host: HostKey) -> dict[str, InstanceState]:
        """Read which instances a host has marked."""
        return db.instances_with(
            names.admin_context(), takeover.marks(host, TASK_STATES))

    def of_host(self, host: str, after: str | None
                ) -> dict[str, InstanceState]:
        """Read some instances of a host, those that come after another."""
        return db.instances_of(names.admin_context(), host, after)

    def spell_host(self, uuid: str) -> None:
        """Have an instance of this host say so as the host spells itself."""
        if (instance := self.read(uuid)) is not None:
            spell_host(instance, self._manager.host)

    def busy(self, host: str) -> dict[str, InstanceState]:
        """Read which instances of a host are in the middle of something."""
        context = names.admin_context()
        return {**db.instances_with(context, takeover.TASKS, host),
                # One that was claimed has no task state for a moment.
                **db.half_done(context, host)}

    def read(self, uuid: str) -> objects.Instance | None:
        """Read an instance with what nova's start of a service wants.

        :returns: nova.objects.Instance, None if it is deleted.
        """
        try:
            return objects.Instance.get_by_uuid(
                names.admin_context(), uuid,
                expected_attrs=['info_cache', 'metadata', 'numa_topology'])
        except exception.InstanceNotFound:
            return None

    def set_states(self, instance: objects.Instance, vm_state: str,
                   task_state: str | None) -> bool:
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

    def init(self, instance: objects.Instance) -> None:
        """Do what nova does for an instance at the start of a service.

        nova does it under the id of the instance's last request: it notes
        there what it does (InstanceActionEvent), and fails over a request
        that the instance does not have.
        """
        spell_host(instance, self._manager.host)
        context = _of_last_action(instance)
        with instance.obj_alternate_context(context):
            # What fails is said.
            apply.novas(self._manager, '_init_instance')(context, instance)

    def delete(self, instance: objects.Instance) -> None:
        """Do what nova does when it is asked to delete an instance.

        That takes a lock, and copes with what is left of an instance that is
        half deleted (ComputeManager.terminate_instance).
        """
        context = _of_last_action(instance)
        with instance.obj_alternate_context(context):
            if (instance.task_state == task_states.SOFT_DELETING
                    and instance.vm_state != vm_states.DELETED):
                self._manager.soft_delete_instance(context, instance)
                return
            self._manager.terminate_instance(
                context, instance,
                objects.BlockDeviceMappingList.get_by_instance_uuid(
                    context, instance.uuid))

    def restore(self, instance: objects.Instance) -> None:
        """Do what nova does when it is asked to restore an instance."""
        context = _of_last_action(instance)
        with instance.obj_alternate_context(context):
            self._manager.restore_instance(context, instance)

    def fail(self, instance: objects.Instance, reason: str) -> None:
        """Set an instance to ERROR, with a fault that says why."""
        finish_build.note_fault(
            instance, finish_build.kind_of(instance), reason)
        self._manager._set_instance_obj_error_state(
            instance, clean_task_state=True)

    def deployed(self, instance: objects.Instance) -> None:
        """Note that a build or a rebuild has come to its end."""
        finish_build.complete(self._manager, instance)

    def began(self, uuid: str, action: str) -> datetime.datetime | None:
        """Return when the last action of one kind on an instance began.

        By the clock of nova's API, which notes it.

        :param action: name of an instance action, such as ``rebuild``.
        :returns: the time in UTC, None if there never was one.
        """
        return next((
            one.start_time for one
            in objects.InstanceActionList.get_by_instance_uuid(
                names.admin_context(), uuid) if one.action == action), None)

    def asked_last(self, uuid: str) -> str | None:
        """Return what :func:`.rules.evacuation.asked_last` says of it."""
        return rules.asked_last(
            evacuation_undo.actions_of(names.admin_context(), uuid))

    def notify(self, event: str, payload: dict) -> None:
        """Send a notification of this package, as nova's are sent.

        Where nova's versioned ones go, if it sends such, and else where its
        others go. It is tried once: a bus that is down is no reason to wait.

        :param event: type of the event.
        :param payload: dict of JSON.
        """
        if rpc.NOTIFICATION_TRANSPORT is None:
            return
        messaging.Notifier(
            rpc.NOTIFICATION_TRANSPORT,
            publisher_id=f'nova-compute:{names.CONF.host}', retry=0,
            topics=settings.topics()).info(
                {}, event, payload)


def spell_host(instance: objects.Instance, host: str) -> None:
    """Write the host of an instance as the service spells it now.

    A host whose name has changed in case finds its instances in most
    databases, and nova leaves them alone when it starts
    (ComputeManager._init_instance).

    :param instance: left as it is when it is another host's.
    :param host: the host of this service.
    """
    if instance.host == host or host_key(instance.host or '') != host_key(
            host):
        return
    # It may have been read long ago, and whoever has taken it over since has
    # marked it.
    try:
        found = objects.Instance.get_by_uuid(
            names.admin_context(), instance.uuid)
        if found.host != instance.host:
            return
        found.host = host
        found.save(expected_task_state=[found.task_state])
    except (exception.InstanceNotFound, exception.InstanceUpdateConflict):
        return
    instance.host = host
    instance.obj_reset_changes(['host'])


def _of_last_action(instance):
    """Return a context with the id of the instance's last request."""
    context = names.admin_context()
    actions = objects.InstanceActionList.get_by_instance_uuid(
        context, instance.uuid, limit=1)
    if actions:
        context.request_id = actions[0].request_id
    return context
