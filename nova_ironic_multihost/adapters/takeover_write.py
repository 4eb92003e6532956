# SPDX-License-Identifier: Apache-2.0

"""The writes that take over instances of a dead host.

The first write sets the first mark (:mod:`.rules.takeover`) if vm_state and
task_state have not changed (nova.db.main.api:_instance_update). The second
sets the host, and the second mark if work is left, if the first mark is still
there. The instance is read in between, as the database compares no host:
another host may have taken it over and restored both states.

A write takes nova's conductor 20 ms, and a thousand instances must move within
a minute: hence batches, parallel writes, and no related objects.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
from concurrent import futures
import functools

from nova import context as nova_context
from nova import exception
from nova import objects
from oslo_log import log as logging
import oslo_messaging as messaging

from nova_ironic_multihost.engine.base.ports import Eligible
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

AT_ONCE = 8

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


def take_over(context: nova_context.RequestContext,
              instances: Mapping[str, InstanceState], host: str,
              eligible: Eligible, attempts: Mapping[str, int]
              ) -> dict[str, Outcome]:
    """Move instances that have not changed to another host.

    :param instances: uuid -> state when read; few, as all are read again
        between the two writes.
    :param eligible: asked after the first marks are written, which may take
        minutes. Instances of a host that is up again lose their mark.
    :param attempts: uuid -> another number than those of its attempts before.
    :returns: uuid -> whether it was moved; an Exception if unknown. The host
        in the mark then goes on with it or undoes it
        (engine/servers/recovery.py).
    :raises Exception: the outcome is unknown for all of them.
    """
    transfers = {uuid: _Transfer(context, uuid, state, host, attempts[uuid])
                 for uuid, state in instances.items()}

    def run_step(
            step: Callable[[_Transfer, objects.Instance], None],
            exclude: Callable[[Iterable[objects.Instance]], Set[str]] = (
                lambda rows: frozenset())) -> None:
        pending = [uuid for uuid, transfer in transfers.items()
                   if transfer.outcome is None]
        if not pending:
            return
        rows = _read(context, pending)
        excluded = exclude(rows.values())
        for uuid in pending:
            # It is deleted, or a migration of it is in progress.
            if uuid not in rows or uuid in excluded:
                transfers[uuid].outcome = False
        unanswered: list[str] = []

        def attempt(uuid: str) -> None:
            if len(unanswered) < MAX_UNANSWERED or step is _Transfer.check:
                answered = transfers[uuid].attempt(step, rows[uuid])
                unanswered.extend([] if answered else [uuid])

        for _ in pool.map(attempt, rows.keys() - excluded):
            pass

    def run_late_step(step: Callable[[_Transfer, objects.Instance], None],
                      prepare: Callable[[], None] = lambda: None) -> None:
        try:
            prepare()
            run_step(step)
        except Exception as exc:  # noqa: BLE001
            # The outcome of the other instances is known.
            for transfer in transfers.values():
                if transfer.outcome is None:
                    transfer.outcome = exc

    with futures.ThreadPoolExecutor(AT_ONCE) as pool:
        run_step(_Transfer.mark, functools.partial(_migrating, context))
        run_late_step(
            _Transfer.move, lambda: _note_live_hosts(transfers, eligible))
        run_late_step(_Transfer.check)
    return {uuid: transfer.outcome or False
            for uuid, transfer in transfers.items()}


def _note_live_hosts(
    transfers: Mapping[str, '_Transfer'], eligible: Eligible
) -> None:
    """Note on the transfers which old hosts are not dead any more."""
    old_hosts = {
        transfer: transfer.old_host for transfer in transfers.values()
        if transfer.outcome is None and transfer.old_host is not None}
    dead = (eligible(frozenset(old_hosts.values())) if old_hosts
            else frozenset())
    for transfer, host in old_hosts.items():
        transfer.old_host_is_live = host_key(host) not in dead


def _read(context: nova_context.RequestContext, uuids: list[str]
          ) -> dict[str, objects.Instance]:
    """Read instances that are not deleted, without related objects."""
    return {row.uuid: row for row in objects.InstanceList.get_by_filters(
        # nova leaves out soft-deleted instances by default.
        context, {'uuid': uuids, 'deleted': False, 'soft_deleted': True},
        expected_attrs=[])}


def _migrating(context: nova_context.RequestContext,
               rows: Iterable[objects.Instance]) -> frozenset[str]:
    """Return the uuids of instances with a migration in progress.

    Only evacuations migrate bare metal servers, so the lists are short, and
    nova cannot filter by instances. A mark written later fails, as nova's API
    writes the task state before the migration; unless that was the task state
    already.
    """
    hosts = {row.host for row in rows if row.host}
    return frozenset().union(
        *(_in_progress(context, {'host': host}) for host in sorted(hosts)),
        # Evacuations from a host that the instance was on earlier.
        _in_progress(context, {'status': [*EVACUATION_BEGUN]}))


def _in_progress(context: nova_context.RequestContext,
                 filters: Mapping[str, object]) -> frozenset[str]:
    return frozenset(
        migration.instance_uuid for migration
        in objects.MigrationList.get_by_filters(context, filters)
        if migration.status not in FINISHED)


class _Transfer:
    """The takeover of one instance, used by one thread at a time."""

    def __init__(self, context: nova_context.RequestContext, uuid: str,
                 state: InstanceState, host: str, attempt: int) -> None:
        self.outcome: Outcome | None = None  # None: in progress
        self.old_host = state.host
        self.old_host_is_live = False
        self._context = context
        self._uuid = uuid
        self._state = state
        self._host = host
        self._first_mark = takeover.taking(
            state.task_state, host_key(host), attempt)
        # The timeout of a write that may have been carried out.
        self._timeout: Exception | None = None

    def attempt(self, step: Callable[['_Transfer', objects.Instance], None],
                row: objects.Instance) -> bool:
        """Call a step and keep its error; return whether nova answered."""
        earlier = self._timeout
        try:
            step(self, row)
        except (exception.NotFound, exception.UnexpectedTaskStateError,
                exception.InstanceUpdateConflict) as exc:
            LOG.debug('Instance %(instance)s is not taken over: %(exc)s', {
                'instance': self._uuid, 'exc': exc})
            # check() decides: a late write may have done it.
            self.outcome = None if step is _Transfer.move else False
        except Exception as exc:  # noqa: BLE001
            self.outcome = exc
            return False
        return self._timeout is None or self._timeout is earlier

    def mark(self, row: objects.Instance) -> None:
        """Write the first mark if the instance has not changed."""
        state = self._state
        seen = (state.host, state.node, state.vm_state, state.task_state)
        if seen != (row.host, row.node, row.vm_state, row.task_state) or (
                # A second evacuation: nova is about to create its migration.
                state.task_state == evacuation.TASK
                and _in_progress(
                    self._context, {'instance_uuid': self._uuid})):
            self.outcome = False
            return
        row.task_state = self._first_mark
        self._save(row, expected_vm_state=[state.vm_state],
                   expected_task_state=[state.task_state])

    def move(self, row: objects.Instance) -> None:
        """Write the host if the mark is still there and the old host dead."""
        if row.task_state != self._first_mark:
            self.check(row)
        elif row.host != self._state.host or self.old_host_is_live:
            row.task_state = self._state.task_state
            row.save(expected_task_state=[self._first_mark])
            self.outcome = False
        else:
            row.host = self._host
            row.task_state = takeover.resting_or_taken(
                row.vm_state, self._state.task_state, host_key(self._host))
            self._timeout = None
            self._save(row, expected_task_state=[self._first_mark])
            if self._timeout is None:
                self.outcome = True

    def check(self, row: objects.Instance) -> None:
        """Set the outcome by the instance as it is now."""
        # A late write counts; the user may have begun something since.
        done = row.host == self._host and row.task_state != self._first_mark
        # Unknown after a timeout: many instances wait, so there is no retry.
        self.outcome = done or self._timeout or False

    def _save(self, row, **expected):
        try:
            row.save(**expected)
        except messaging.MessagingTimeout as exc:
            self._timeout = exc
