# SPDX-License-Identifier: Apache-2.0

"""Transfers: instances of a dead host become another host's.

Two writes of each instance. The first mark (:mod:`.rules.takeover`), which the
database writes only if neither vm_state nor task_state have changed
(nova.db.main.api:_instance_update); then the host, and the second mark if
there is anything left to do, only if the first is still there. In between it
is read again, as the database compares no host: who took it meanwhile may have
finished it, so that both states are what they were.

A thousand instances are to move within a minute, and nova's conductor takes
20 ms for a write. So nothing that nova does not need is read, what can be is
read of several at once, and several are written at the same time.
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

#: Instances that are written at the same time.
AT_ONCE = 8

#: Answers that may be lost until no others are written: each keeps those that
#: come after it waiting for as long.
FAILURES = 2

#: Statuses of a migration that is over (nova.db.main.api:
#: migration_get_in_progress_by_host_and_node).
MIGRATED = frozenset({
    'confirmed', 'reverted', 'error', 'failed', 'completed', 'cancelled',
    'done'})

#: Statuses of an evacuation that nova has just been told to do
#: (nova.compute.api:API.evacuate, nova.compute.manager:ComputeManager.
#: rebuild_instance).
BEGUN = ('accepted', 'pre-migrating')

#: Whether an instance is the new host's, or why that is not known.
Outcome = bool | Exception


def take_over(context: nova_context.RequestContext,
              instances: Mapping[str, InstanceState], host: str,
              eligible: Eligible) -> dict[str, Outcome]:
    """Move instances to another host, those that are still as they were seen.

    :param instances: uuid -> what it was seen to be; few, as between the two
        writes of one all are read.
    :param host: the new host.
    :param eligible: asked once the first marks are written, for which nova may
        have taken minutes: those of a host that is back get theirs off again.
    :returns: uuid -> whether it was moved. An Exception if that is not known:
        whoever has marked it undoes that or goes on with it
        (:mod:`.engine.servers.recovery`).
    :raises Exception: as much is not known of any of them.
    """
    transfers = {uuid: _Transfer(context, uuid, state, host)
                 for uuid, state in instances.items()}

    def each(act: Callable[[_Transfer, objects.Instance], None],
             besides: Callable[[Iterable[objects.Instance]], Set[str]] = (
                 lambda rows: frozenset())) -> None:
        left = [uuid for uuid, transfer in transfers.items()
                if transfer.outcome is None]
        if not left:
            return
        rows = _read(context, left)
        others = besides(rows.values())
        for uuid in left:
            # It is deleted, or not to be taken over.
            if uuid not in rows or uuid in others:
                transfers[uuid].outcome = False
        lost: list[str] = []

        def attempt(uuid: str) -> None:
            if len(lost) < FAILURES or act is _Transfer.look:
                answered = transfers[uuid].attempt(act, rows[uuid])
                lost.extend([] if answered else [uuid])

        for _ in pool.map(attempt, rows.keys() - others):
            pass

    def each_left(act: Callable[[_Transfer, objects.Instance], None],
                  first: Callable[[], None] = lambda: None) -> None:
        try:
            first()
            each(act)
        except Exception as exc:  # noqa: BLE001
            # What has come of the others is known.
            for transfer in transfers.values():
                if transfer.outcome is None:
                    transfer.outcome = exc

    with futures.ThreadPoolExecutor(AT_ONCE) as pool:
        each(_Transfer.mark, functools.partial(_migrating, context))
        each_left(_Transfer.move, lambda: _spare(transfers, eligible))
        each_left(_Transfer.look)
    return {uuid: transfer.outcome or False
            for uuid, transfer in transfers.items()}


def _spare(transfers: Mapping[str, '_Transfer'], eligible: Eligible) -> None:
    """Note which of the old hosts are not dead any more."""
    left = {transfer: transfer.before for transfer in transfers.values()
            if transfer.outcome is None and transfer.before is not None}
    dead = eligible(frozenset(left.values())) if left else frozenset()
    for transfer, host in left.items():
        transfer.spared = host_key(host) not in dead


def _read(context: nova_context.RequestContext, uuids: list[str]
          ) -> dict[str, objects.Instance]:
    """Read instances that are not deleted, without what hangs on them."""
    return {row.uuid: row for row in objects.InstanceList.get_by_filters(
        # Without that nova leaves out what is soft-deleted.
        context, {'uuid': uuids, 'deleted': False, 'soft_deleted': True},
        expected_attrs=[])}


def _migrating(context: nova_context.RequestContext,
               rows: Iterable[objects.Instance]) -> frozenset[str]:
    """Return the uuids of instances of which nova has a migration under way.

    Few, as a bare metal server can be evacuated and no more; nova takes a host
    in a filter, but no list of instances. Its API begins a migration when it
    has written the task state, so a mark that follows this fails, unless that
    was the task state already.
    """
    hosts = {row.host for row in rows if row.host}
    return frozenset().union(
        *(_under_way(context, {'host': host}) for host in sorted(hosts)),
        # Of a host that it was on before.
        _under_way(context, {'status': [*BEGUN]}))


def _under_way(context: nova_context.RequestContext,
               filters: Mapping[str, object]) -> frozenset[str]:
    return frozenset(
        migration.instance_uuid for migration
        in objects.MigrationList.get_by_filters(context, filters)
        if migration.status not in MIGRATED)


class _Transfer:
    """One instance on its way. One thread at a time uses it.

    :param state: what it was seen to be.
    :param host: the new host.
    :ivar outcome: None while it is under way.
    :ivar before: the old host.
    :ivar spared: that is not dead any more.
    """

    def __init__(self, context: nova_context.RequestContext, uuid: str,
                 state: InstanceState, host: str) -> None:
        self.outcome: Outcome | None = None
        self.before = state.host
        self.spared = False
        self._context = context
        self._uuid = uuid
        self._state = state
        self._host = host
        self._taking = takeover.taking(state.task_state, host_key(host))
        # The answer to a write that did not come: that is no write that is
        # lost.
        self._lost: Exception | None = None

    def attempt(self, act: Callable[['_Transfer', objects.Instance], None],
                row: objects.Instance) -> bool:
        """Do something for it; what fails fails for it alone.

        :returns: whether there was an answer, whatever it says.
        """
        before = self._lost
        try:
            act(self, row)
        except (exception.NotFound, exception.UnexpectedTaskStateError,
                exception.InstanceUpdateConflict) as exc:
            LOG.debug('Instance %(instance)s is not taken over: %(exc)s', {
                'instance': self._uuid, 'exc': exc})
            # An earlier write to the same end may have been late.
            self.outcome = None if act is _Transfer.move else False
        except Exception as exc:  # noqa: BLE001
            self.outcome = exc
            return False
        return self._lost is None or self._lost is before

    def mark(self, row: objects.Instance) -> None:
        """Write the first mark, if it is what it was seen to be."""
        state = self._state
        seen = (state.host, state.node, state.vm_state, state.task_state)
        if seen != (row.host, row.node, row.vm_state, row.task_state) or (
                # nova may just be about to begin the migration.
                state.task_state == evacuation.TASK
                and _under_way(
                    self._context, {'instance_uuid': self._uuid})):
            self.outcome = False
            return
        row.task_state = self._taking
        self._save(row, expected_vm_state=[state.vm_state],
                   expected_task_state=[state.task_state])

    def move(self, row: objects.Instance) -> None:
        """Write the host, if nobody else has since and the old one is dead.

        :param row: read after the first mark was written.
        """
        if row.task_state != self._taking:
            self.look(row)
        elif row.host != self._state.host or self.spared:
            row.task_state = self._state.task_state
            row.save(expected_task_state=[self._taking])
            self.outcome = False
        else:
            row.host = self._host
            row.task_state = takeover.resting_or_taken(
                row.vm_state, self._state.task_state, host_key(self._host))
            self._lost = None
            self._save(row, expected_task_state=[self._taking])
            if self._lost is None:
                self.outcome = True

    def look(self, row: objects.Instance) -> None:
        """Say what has come of it, at the end.

        Also by a write of an earlier attempt that is done only now; and its
        user may have begun something by now.
        """
        done = row.host == self._host and row.task_state != self._taking
        # Whoever takes over many must not wait for each.
        self.outcome = done or self._lost or False

    def _save(self, row, **expected):
        try:
            row.save(**expected)
        except messaging.MessagingTimeout as exc:
            self._lost = exc
