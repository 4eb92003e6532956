# SPDX-License-Identifier: Apache-2.0

"""Calls of nova's resource tracker."""

from __future__ import annotations

from collections import abc
from concurrent import futures
import contextlib
import dataclasses
import itertools

from nova.compute import provider_tree
from nova.compute import resource_tracker
from nova import objects
from oslo_log import log as logging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters.patches import apply
from nova_ironic_multihost.adapters import placement
from nova_ironic_multihost.adapters import retry
from nova_ironic_multihost.rules.model import Record

LOG = logging.getLogger(__name__)

#: A statistic that nova's tracker counts itself, besides those named num_*
#: (nova.compute.stats).
IO_WORKLOAD = 'io_workload'

#: Records that the tracker gets in one hold of nova's lock.
FILL_BATCH = 500

#: Requests to placement at the same time.
AT_ONCE = 8


def keep_failed_builds(tracker: resource_tracker.ResourceTracker,
                       row: objects.ComputeNode) -> None:
    """Restore the number of failed builds of a node in nova's tracker."""
    # ResourceTracker._copy_resources resets it at each read of a record.
    failed = (row.stats or {}).get('failed_builds')
    if failed is not None:
        tracker.stats[row.hypervisor_hostname]['failed_builds'] = int(failed)


class NovaTracker:
    """nova's resource tracker (port Tracker); nova's own tests have none.

    :param moved: called with a node's uuid and whether its record was moved.
    :param barred: called with a node's uuid and the error if no retry helps.
    """

    def __init__(self, virtapi, moved: abc.Callable[[str, bool], None] = (
            lambda node, done: None),
            barred: abc.Callable[[str, Exception], None] = (
                lambda node, exc: None)):
        self._manager = names.manager_of(virtapi)
        self._moved = moved
        self._barred = barred

    @property
    def report_client(self):
        """nova's client of placement."""
        return self._manager.reportclient

    def has(self, node: str) -> bool:
        # If so, ResourceTracker._init_compute_node leaves the record as it is.
        return (self._manager is not None
                and node in self._manager.rt.compute_nodes)

    def at_hand(self, records: abc.Iterable[Record]) -> list[Record]:
        """Replace the rows of records by the tracker's, to save memory."""
        def with_its_row(record):
            row = self._manager.rt.compute_nodes.get(record.node)
            # A row takes kilobytes.
            return (dataclasses.replace(record, row=row)
                    if row is not None and (row.id, row.host)
                    == (record.row.id, record.host) else record)

        return [with_its_row(record) for record in records]

    def audit(self, node: str) -> None:
        """Audit one node now; the caller must not hold nova's lock."""
        # nova's own method, which logs errors; ours skips nodes not due.
        apply.novas(self._manager, '_update_available_resource_for_node')(
            names.admin_context(), node)

    def move(self, nodes: abc.Sequence[str],
             judge: abc.Callable[[abc.Sequence[str]], abc.Sequence[Record]]
            ) -> set[str]:
        """Make records of dead hosts this host's, without audits.

        Writes what ResourceTracker._init_compute_node writes, in parallel.
        Claims wait for the lock, as builds come once a record is written. The
        records are read inside it: a claim may hold it for minutes.
        """
        return self._move(nodes, judge) if nodes else set()

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _move(self, nodes, judge):
        records = judge(nodes)
        if not records:
            return set()
        with futures.ThreadPoolExecutor(len(records)) as pool:
            moved = self._report_moves(records, pool.map(self._save, records))
        self._insert(moved)
        return {record.node for record in moved}

    def _report_moves(self, records, results):
        """Report each result; return the records that were moved."""
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
            # The next audit of the node reads the record again.
            LOG.debug('The record of node %(node)s could not be moved: '
                      '%(exc)s', {'node': record.node, 'exc': exc})
            if retry.for_good(exc):
                self._barred(record.node, exc)
            return False
        return True

    def pull(self, nodes: abc.Sequence[str],
             judge: abc.Callable[[list[str]], abc.Iterable[Record]]
            ) -> set[str]:
        """Make idle nodes of live hosts this host's, without audits.

        Each node, with a thread of its own, is reserved while its record moves
        (:mod:`.placement`). The records are read after the generations, so
        that the reservation fails if another host pulls the node in between. A
        node with an unknown outcome may stay reserved until its owner audits
        it.
        """
        if not nodes:
            return set()
        with futures.ThreadPoolExecutor(len(nodes)) as pool:
            idle = [found for found in pool.map(
                lambda node: placement.of_idle(self.report_client, node),
                nodes) if found is not None]
            return self._pull(idle, judge, pool) if idle else set()

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _pull(self, idle, judge, pool):
        def allowed(nodes):
            return {record.node: record for record
                    in judge([one.node for one in nodes])} if nodes else {}

        records = allowed(idle)
        wanted = [one for one in idle if one.node in records]
        reserved = [one for one, made in zip(wanted, pool.map(
            placement.Reservation.make, wanted), strict=True) if made]
        finished = reserved
        try:
            # Read again: placement may have answered late.
            records = allowed(reserved)
            moved = self._report_moves(wanted, pool.map(
                lambda one: one.node in records
                and self._save(records[one.node]), wanted))
            # Builds can claim a node as soon as its reservation ends.
            self._insert([records[one.node] for one in moved])
            for one in moved:
                # nova's client does not know the generations written here.
                self.report_client.invalidate_resource_provider(one.node)
            # A failed write leaves the owner unknown: keep the reservation.
            finished = [one for one in reserved
                        if one in moved or one.node not in records]
        finally:
            # The next audit ends the reservations that are left.
            for _ in pool.map(placement.Reservation.end, finished):
                pass
        return {one.node for one in moved}

    def unchanged(self, nodes: abc.Sequence[str]) -> set[str]:
        """Return the nodes with the generation that nova's client knows."""
        before = self.generations(nodes)
        asked = [node for node in nodes if node in before]
        if not asked:
            return set()
        with futures.ThreadPoolExecutor(min(AT_ONCE, len(asked))) as pool:
            return {node for node, now in zip(asked, pool.map(
                lambda node: db.generation(self.report_client, node),
                asked), strict=True) if now == before[node]}

    def generations(self, nodes: abc.Iterable[str]) -> dict[str, int]:
        """Return the generations of nodes in the cache of nova's client."""
        found: dict[str, int] = {}
        for node in nodes:
            with contextlib.suppress(ValueError):
                found[node] = self.report_client._provider_tree.data(
                    node).generation
        return {node: generation for node, generation in found.items()
                if generation is not None}

    def fill(self, records: abc.Iterable[Record]) -> None:
        """Add records of this host to the tracker, without audits."""
        records = iter(records)
        # Batches, so that a claim need not wait for all of them.
        while some := list(itertools.islice(records, FILL_BATCH)):
            self._fill(some)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _fill(self, records):
        self._insert(records)

    def _insert(self, records):
        # That is enough for a claim (ResourceTracker.instance_claim).
        tracker = self._manager.rt
        if tracker.provider_tree is None:
            # A claim reads this tree, which may be empty.
            tracker.provider_tree = provider_tree.ProviderTree()
        for record in records:
            if record.node in tracker.compute_nodes:
                continue
            # The driver's statistics only; nova counts the others itself.
            tracker.stats[record.node].digest_stats({
                name: value for name, value
                in (record.row.stats or {}).items()
                if not name.startswith('num_') and name != IO_WORKLOAD})
            keep_failed_builds(tracker, record.row)
            tracker.compute_nodes[record.node] = record.row

    def drop(self, node: str) -> None:
        if self.has(node):
            self._remove(node)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def refresh(self, node: str) -> None:
        """Remove a node from the cache of nova's client of placement.

        The cache hides for five minutes what the former owner still sets.
        """
        # Hence the lock: SchedulerReportClient.update_from_provider_tree fails
        # in another thread when the node leaves the cache meanwhile.
        self.report_client.invalidate_resource_provider(node)

    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _remove(self, node):
        # An audit of the node must not lose it halfway: hence the lock.
        self._manager.rt.remove_node(node)
        self.report_client.invalidate_resource_provider(node)

    def renew(self, node: str) -> None:
        """Read the inventory and the generation of a node from placement.

        If placement answers with an error, nova logs it and keeps its copy.
        """
        # ValueError: another thread has removed the provider since.
        with contextlib.suppress(ValueError):
            self.report_client._refresh_and_get_inventory(
                names.admin_context(), node)
