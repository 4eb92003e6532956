# SPDX-License-Identifier: Apache-2.0

"""What an audit reads and writes in nova and placement; the service row.

A takeover writes twice (:mod:`.rules.takeover`). The instance is read in
between, as the database compares no host (nova.db.main.api:_instance_update):
another host may have taken it over and restored both states.

A write takes nova's conductor 20 ms, and a thousand instances must move within
a minute: hence batches, parallel writes, and no related objects.
"""

from collections import abc
from concurrent import futures
from http import HTTPStatus
import random

from nova import exception
from nova import objects
from oslo_log import log as logging

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Eligible
from nova_ironic_multihost.rules.counters import Event
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.model import Record
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Parallel requests to placement. One takes 5 to 7 ms; keystoneauth keeps ten
#: connections.
AT_ONCE = 8

#: Parallel writes of instances.
WRITES_AT_ONCE = 8

#: Lost answers after which no more is written, as each takes a timeout.
MAX_UNANSWERED = 2

#: Final statuses (nova.db: migration_get_in_progress_by_host_and_node).
FINISHED = frozenset({
    'confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
    'done'})

#: Statuses of an evacuation that has begun (nova.compute.api:API.evacuate).
EVACUATION_BEGUN = ('accepted', 'pre-migrating')

#: Whether the instance is on the new host; an exception if that is unknown.
Outcome = bool | Exception


class NovaCloud:
    """nova and placement (port Cloud).

    :param ending: whether this service is about to stop: no takeovers then.
    :param failed: called when an outcome is unknown.
    """

    def __init__(self, driver: names.IronicDriver,
                 tracker: nova_tracker.NovaTracker,
                 ending: abc.Callable[[], bool] = lambda: False,
                 recorder: Metrics | None = None,
                 failed: abc.Callable[[], object] = lambda: None) -> None:
        self._driver = driver
        self._tracker = tracker
        self._ending = ending
        self._recorder = recorder or Metrics()
        self._failed = failed
        #: Instance -> the number of its last attempt in this process.
        self._attempts: dict[str, int] = {}

    def services(self) -> list[peers.ComputeService]:
        return db.ironic_services(
            self._driver.servicegroup_api,
            self._driver._get_hypervisor_type())

    def service(self, host: str) -> peers.ComputeService | None:
        return db.compute_service(self._driver.servicegroup_api, host)

    def instances(self, hosts: abc.Iterable[str]) -> frozenset[str]:
        return frozenset().union(*map(db.instance_uuids, hosts))

    def instance_states(self, instances: abc.Iterable[str]
                        ) -> dict[str, InstanceState]:
        return db.instance_states(instances)

    def mapped(self, host: str) -> bool | None:
        return db.host_mapped(host)

    def aggregates(self) -> tuple[peers.Aggregate, ...] | None:
        return db.host_aggregates()

    def records_of(self, hosts: abc.Iterable[str]) -> list[Record]:
        return [record for host in hosts for record
                in self._tracker.at_hand(db.records_of(host))]

    def records(self, nodes: abc.Iterable[str]) -> list[Record]:
        return self._tracker.at_hand(db.records(nodes))

    def consumers(self, node: str) -> frozenset[str] | None:
        return db.consumers(self._tracker.report_client, node)

    def consumers_of(self, nodes: abc.Sequence[str]
                     ) -> dict[str, frozenset[str] | None]:
        """Read the consumers of nodes, one request for each.

        It stops after AT_ONCE without an answer, as each may take a timeout.
        """
        if not nodes:
            return {}
        unanswered: list[str] = []

        def ask(node: str) -> frozenset[str] | None:
            if len(unanswered) >= AT_ONCE:
                return None
            found = self.consumers(node)
            if found is None:
                unanswered.append(node)
            return found

        with futures.ThreadPoolExecutor(min(AT_ONCE, len(nodes))) as pool:
            return dict(zip(nodes, pool.map(ask, nodes), strict=True))

    def generations(self) -> dict[str, int]:
        return db.generations(self._tracker.report_client)

    def remove_provider(self, node: str) -> bool:
        context, client = names.admin_context(), self._tracker.report_client
        consumers = db.consumers(client, node)
        states = db.instance_states(consumers or ())
        if consumers is None or any(
                uuid not in states or not states[uuid].deleted
                for uuid in consumers):
            return False
        for uuid in sorted(consumers):
            client.delete_allocation_for_instance(context, uuid, force=True)
        answer = client.delete(f'/resource_providers/{node}')
        client.invalidate_resource_provider(node)
        return bool(answer) or answer.status_code == HTTPStatus.NOT_FOUND

    def take_over(self, instances: abc.Mapping[str, InstanceState], host: str,
                  eligible: Eligible) -> dict[str, Outcome]:
        if self._ending():
            return dict.fromkeys(instances, False)
        # Only one audit at a time calls this.
        unknown = len(instances)
        self._attempts |= {uuid: 1 + self._attempts.get(
            uuid, random.randrange(takeover.ATTEMPTS)) for uuid in instances}
        try:
            outcomes = take_over(instances, host, eligible, self._attempts)
            for uuid, outcome in outcomes.items():
                if outcome is True:
                    del self._attempts[uuid]
            unknown = sum(isinstance(outcome, Exception)
                          for outcome in outcomes.values())
            self._recorder.count(Event.TAKEN_OVER, sum(
                outcome is True for outcome in outcomes.values()))
            return outcomes
        finally:
            self._recorder.count(Event.TAKEOVER_FAILED, unknown)
            if unknown:
                self._failed()


class ServiceRecord:
    """The row of one compute service in nova's services table.

    The port is Registration. nova's scheduler reads the row (ComputeFilter).
    nova's API would also set a trait on each node, which takes minutes
    (ComputeManager.set_host_enabled).
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def say(self, words: str) -> bool:
        row = self._row()
        if row is None or row.forced_down or (
                row.disabled
                and not liveness.find_stop_marker(row.disabled_reason)):
            return False
        return _save(row, disabled=False, disabled_reason=words)

    def close(self, words: str) -> bool:
        row = self._row()
        if row is None or row.disabled_reason != words:
            return False
        return _save(row, disabled=True)

    def take_back(self) -> bool:
        row = self._row()
        if row is None or not liveness.find_stop_marker(row.disabled_reason):
            return False
        return _save(row, disabled=False, disabled_reason=None)

    def _row(self):
        try:
            return objects.Service.get_by_compute_host(
                names.admin_context(), self._host)
        except exception.NotFound:
            return None


def _save(row, **changes):
    # nova cannot compare and swap: an operator's write since our read is lost.
    for name, value in changes.items():
        setattr(row, name, value)
    try:
        row.save()
    except exception.NotFound:
        # The service was deleted.
        return False
    return True


def take_over(instances: abc.Mapping[str, InstanceState], host: str,
              eligible: Eligible, attempts: abc.Mapping[str, int]
              ) -> dict[str, Outcome]:
    """Move instances that have not changed to another host.

    :param instances: uuid -> state when read; few, as all are read again
        between the two writes.
    :param eligible: asked after the first marks are written, which may take
        minutes. Instances of a host that is up again lose their mark.
    :param attempts: uuid -> another number than those of its attempts before.
    :returns: uuid -> whether it was moved; an Exception if unknown. The host
        in the mark then goes on with it, or the old host removes the mark
        (engine/servers).
    :raises Exception: no instance was moved; some may carry a mark.
    """
    first_marks = {uuid: takeover.taking(
        state.task_state, host_key(host), attempts[uuid])
        for uuid, state in instances.items()}

    def mark(row: objects.Instance) -> bool:
        """Write the first mark if the instance has not changed."""
        state = instances[row.uuid]
        seen = (state.host, state.node, state.vm_state, state.task_state)
        if seen != (row.host, row.node, row.vm_state, row.task_state) or (
                # A second evacuation: nova is about to create its migration.
                state.task_state == evacuation.TASK
                and _in_progress({'instance_uuid': row.uuid})):
            return False
        row.task_state = first_marks[row.uuid]
        row.save(expected_vm_state=[state.vm_state],
                 expected_task_state=[state.task_state])
        return True

    def move(row: objects.Instance) -> bool:
        """Write the host if the mark is still there and the old host dead."""
        state, first_mark = instances[row.uuid], first_marks[row.uuid]
        if row.task_state != first_mark:
            # An earlier write may have come late.
            return row.host == host
        moves = row.host == state.host and (
            state.host is None or state.host_key in dead)
        if moves:
            row.host = host
            row.task_state = takeover.resting_or_taken(
                row.vm_state, state.task_state, host_key(host))
        else:
            row.task_state = state.task_state
        row.save(expected_task_state=[first_mark])
        return moves

    rows = _read([*instances])
    migrating = _migrating(rows.values())
    outcomes = _write(mark, [
        row for uuid, row in rows.items() if uuid not in migrating])
    marked = [uuid for uuid, outcome in outcomes.items() if outcome is True]
    if marked:
        dead = eligible({
            old for uuid in marked if (old := instances[uuid].host)})
        outcomes |= {uuid: False for uuid in marked} | _write(
            move, _read(marked).values())
    return {uuid: outcomes.get(uuid, False) for uuid in instances}


def _write(act: abc.Callable[[objects.Instance], bool],
           rows: abc.Collection[objects.Instance]) -> dict[str, Outcome]:
    """Write instances, some at a time; return uuid -> result or error."""
    unanswered: list[str] = []

    def attempt(row: objects.Instance) -> Outcome:
        if len(unanswered) >= MAX_UNANSWERED:
            return False
        try:
            return act(row)
        except (exception.NotFound, exception.UnexpectedTaskStateError,
                exception.InstanceUpdateConflict) as exc:
            LOG.debug('Instance %(instance)s is not taken over: %(exc)s', {
                'instance': row.uuid, 'exc': exc})
            return False
        except Exception as exc:  # noqa: BLE001
            unanswered.append(row.uuid)
            return exc

    with futures.ThreadPoolExecutor(WRITES_AT_ONCE) as pool:
        return dict(zip((row.uuid for row in rows), pool.map(attempt, rows),
                        strict=True))


def _read(uuids: list[str]) -> dict[str, objects.Instance]:
    """Read instances that are not deleted, without related objects."""
    return {row.uuid: row for row in objects.InstanceList.get_by_filters(
        names.admin_context(),
        # nova leaves out soft-deleted instances by default.
        {'uuid': uuids, 'deleted': False, 'soft_deleted': True},
        expected_attrs=[])}


def _migrating(rows: abc.Iterable[objects.Instance]) -> frozenset[str]:
    """Return the uuids of instances with a migration in progress.

    Only evacuations migrate bare metal servers, so the lists are short, and
    nova cannot filter by instances. A mark written later fails, as nova's API
    writes the task state before the migration; unless that was the task state
    already.
    """
    hosts = {row.host for row in rows if row.host}
    return frozenset().union(
        *(_in_progress({'host': host}) for host in sorted(hosts)),
        # Evacuations from a host that the instance was on earlier.
        _in_progress({'status': [*EVACUATION_BEGUN]}))


def _in_progress(filters: abc.Mapping[str, object]) -> frozenset[str]:
    return frozenset(
        migration.instance_uuid for migration
        in objects.MigrationList.get_by_filters(
            names.admin_context(), filters)
        if migration.status not in FINISHED)
