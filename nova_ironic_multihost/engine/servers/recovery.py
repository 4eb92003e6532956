# SPDX-License-Identifier: Apache-2.0

"""Finish the interrupted operations of instances that this host takes over.

Marks in task states (:mod:`.rules.takeover`) name them. The *sweep* lists the
marks every few seconds and starts threads (workers), as an operation may take
minutes. So a later sweep finishes work that an audit or a process left. While
nova works on an instance its mark is off, as nova needs the task state from
before, and kept here. When the process ends, nova's next start does the rest.
"""

import collections
from collections import abc
import functools
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base import periodic
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.engine.base.ports import Machines
from nova_ironic_multihost.engine.base.ports import Operations
from nova_ironic_multihost.engine.builds.lost_builds import BuildRetry
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)

#: Instances that are worked on at the same time.
WORKERS = 8

#: Sweeps between two full checks of the instances of this host.
FULL_SWEEP = 6

#: Sweeps that must find a mark of this host on another host's instance.
ASTRAY = 3 * FULL_SWEEP


class StillBusy(Exception):
    """nova did not finish the operation of an instance."""


class Recovery:
    """Finishes interrupted operations of instances of this host.

    Audit, sweep, start of the service and workers are different threads.
    ``_lock`` guards their shared state, and nothing is asked while it is held.

    :param under_way: returns uuids of instances that an audit takes over now.
    :param receive: as for :class:`.stuck_instances.StuckInstances`.
    """

    def __init__(self, host: str, instances: Instances, machines: Machines,
                 operations: Operations, retry: BuildRetry,
                 clock: abc.Callable[[], float] = time.monotonic,
                 start: abc.Callable[..., bool] | None = None,
                 under_way: abc.Callable[[], abc.Set[str]] = frozenset,
                 recorder: Metrics | None = None,
                 receive: abc.Callable[[], object] = lambda: None) -> None:
        self._name = host
        self._host = host_key(host)
        self._instances = instances
        self._machines = machines
        self._clock = clock
        self._start = start or functools.partial(
            periodic.start_thread, 'takeover')
        self._under_way = under_way
        self._recorder = recorder or Metrics(clock)
        self._operations = operations
        self._build_retry = retry
        self._lock = threading.Lock()
        self._waiting: collections.deque[str] = collections.deque()
        #: Instances that wait for a worker, or that a worker has.
        self._at_work: set[str] = set()
        self._workers = 0
        self._backoffs: dict[str, backoff.Backoff] = {}
        #: Whether the last operation that ended had no answer of a service.
        self._silence = False
        #: Instances without their mark -> the task state from before it.
        self._unmarked: dict[str, str | None] = {}
        #: Those of them that a late write may still unmark.
        self._unmark_pending: set[str] = set()
        #: The same of unmarked instances that Ironic deploys.
        self._awaited: dict[str, str | None] = {}
        #: Whether this host may have marked instances; any thread sets it.
        self._may_have_marks = True
        #: Whether nova did not answer a thread since the last sweep.
        self._unanswered = False
        # Only the sweep uses these.
        self._sweeps = 0
        self._astray: abc.Mapping[tuple[str, str], int] = {}
        self._stuck_instances = stuck_instances.StuckInstances(
            host, instances, operations, receive, self._in_progress,
            retry.here)

    def add(self, uuids: abc.Iterable[str]) -> None:
        """Have workers finish the operations of instances of this host."""
        for uuid in uuids:
            self._may_have_marks = True
            with self._lock:
                if uuid in self._at_work:
                    continue
                if self._workers < WORKERS and self._start(self._work):
                    self._workers += 1
                if not self._workers:
                    # The next sweep tries again.
                    return
                self._at_work.add(uuid)
                self._waiting.append(uuid)

    def note_silence(self) -> None:
        """Note an unanswered request to nova: it may be done or half done."""
        self._unanswered = True

    def took_over(self, instances: abc.Mapping[str, str | None],
                  at_rest: abc.Set[str] = frozenset()) -> None:
        """Log and notify a takeover, and finish the instances' operations.

        :param instances: uuid -> the host before.
        :param at_rest: uuids of the instances that need nothing.
        """
        self._build_retry.wait_anew(instances)
        self.add(uuid for uuid in instances if uuid not in at_rest)
        for host in sorted({before or '' for before in instances.values()}):
            uuids = sorted(uuid for uuid, before in instances.items()
                           if (before or '') == host)
            LOG.info('Took over %(count)d instances of compute service '
                     '%(host)s, which is down.',
                     {'count': len(uuids), 'host': host})
            # A message bus that is down must delay nothing.
            self._start(operator_news.notify_takeover, self._instances,
                        self._name, host, uuids)

    def start(self, init: abc.Callable[[], object], instance: Instance
             ) -> None:
        """Call nova's ``init`` for an instance at the start of the service.

        Instead, marked instances, possible evacuations, and the builds and
        rebuilds that nova would set to ERROR go to a worker. A rebuild that
        may wait in the queue and a half deleted instance go to
        :class:`.StuckInstances`: nova would delete the record before it frees
        the allocation, which may fail. Idle instances are skipped, as there
        may be thousands. An error does not stop the service.
        """
        state = instance.task_state
        if (takeover.is_mark(state)
                or takeover.lost_at_start(instance.vm_state, state)
                or self._may_be_evacuated(instance)):
            with self._lock:
                self._unmarked[instance.uuid] = takeover.before_mark(state)
            stuck_instances.attempt(self._mark_again, instance.uuid)
            self.add([instance.uuid])
            return
        if (takeover.may_wait(instance.vm_state, state)
                or takeover.half_deleted(instance.vm_state)):
            self._stuck_instances.suspect(instance.uuid)
            return
        if (instance.host == self._name
                and takeover.rests_at_start(instance.vm_state, state)):
            return
        try:
            init()
        except Exception:
            LOG.exception(
                'The interrupted operation of instance %(uuid)s has failed '
                'at the start of this service, which goes on. If its task '
                'state stays: openstack server set --state active %(uuid)s',
                {'uuid': instance.uuid})

    def _may_be_evacuated(self, instance: Instance) -> bool:
        """Return whether an evacuation may have left a task state.

        nova would take it for a rebuild and set the instance to ERROR.
        """
        before = takeover.before_mark(instance.task_state)
        try:
            return stuck_instances.before(self._instances, instance) != before
        except Exception as exc:  # noqa: BLE001
            LOG.debug('Instance %(uuid)s has to wait: %(exc)s',
                      {'uuid': instance.uuid, 'exc': exc})
            return True

    def sweep(self, view: peers.View | None = None) -> None:
        """Finish the operations of marked instances that no worker has.

        :raises Exception: nova does not list the marked instances.
        """
        try:
            self._sweep(view)
        except Exception:
            self._unanswered = True
            raise

    def _sweep(self, view: peers.View | None) -> None:
        if self._unanswered:
            self._unanswered, self._may_have_marks = False, True
            self._stuck_instances.interrupt()
        with self._lock:
            unmarked, unfinished = list(self._unmarked), bool(self._backoffs)
        for uuid in unmarked:
            stuck_instances.attempt(self._mark_again, uuid)
        found = self._marked(bool(unmarked) or unfinished)
        marked = takeover.sort_marked(self._host, found)
        self.add(sorted(self._due(marked.to_finish)))
        self._undo(marked.astray)
        self._recorder.note_pending(Pending.REST, {
            *marked.to_finish, *(uuid for uuid, _ in marked.astray),
            *self._in_progress()})
        self._sweeps += 1
        if view is None or view.fenced(self._host):
            self._stuck_instances.interrupt()
        else:
            self.add(self._stuck_instances.once(
                self._sweeps % FULL_SWEEP == 0))

    def _marked(self, unfinished: bool) -> abc.Mapping[str, InstanceState]:
        """Read the instances that this host has marked.

        Only this host writes its marks. While it can have none, it asks
        seldom: a write of an earlier process may be late.
        """
        if not (unfinished or self._may_have_marks
                or self._sweeps % FULL_SWEEP == 0):
            return {}
        self._may_have_marks = False
        found = self._instances.marked(self._host)
        self._may_have_marks = self._may_have_marks or bool(found)
        return found

    def _in_progress(self) -> frozenset[str]:
        with self._lock:
            return frozenset(
                {*self._at_work, *self._unmarked, *self._awaited})

    def _due(self, marked: frozenset[str]) -> set[str]:
        """Return the instances that are due for a worker now."""
        now = self._clock()
        busy = self._operations.at_work
        with self._lock:
            due = {*marked, *self._awaited} - self._at_work - busy
            known = due | self._at_work | self._unmarked.keys()
            self._backoffs = {
                uuid: pause for uuid, pause in self._backoffs.items()
                if uuid in known}
            new = due - self._backoffs.keys()
            due = new | backoff.due(
                {uuid: self._backoffs[uuid] for uuid in due - new}, now,
                self._silence, WORKERS)
        if new:
            LOG.info('Found %d instances that were taken over and that no '
                     'thread works on.', len(new))
        return due

    def _undo(self, astray: frozenset[tuple[str, str]]) -> None:
        """Take marks of this host off instances of other hosts.

        Most are gone by then (:mod:`.takeover`, :mod:`.stuck_instances`).
        """
        under_way = self._under_way()
        self._astray = {key: self._astray.get(key, 0) + 1 for key in astray
                        if key[0] not in under_way}
        for (uuid, mark), sweeps in sorted(self._astray.items()):
            if sweeps >= ASTRAY:
                stuck_instances.attempt(self._release, uuid, mark)

    def _release(self, uuid: str, mark: str) -> None:
        instance = self._instances.read(uuid)
        if instance is not None and instance.task_state == mark:
            LOG.info('The unfinished takeover of instance %(uuid)s is '
                     'undone.', {'uuid': uuid})
            self._instances.set_states(
                instance, instance.vm_state,
                stuck_instances.before(self._instances, instance))

    def bring_to_rest(self, uuid: str) -> bool:
        """Finish the interrupted operation of one instance.

        :returns: whether it is over; False while Ironic deploys.
        :raises Exception: it failed, and is kept for another try.
        """
        instance = self._instances.read(uuid)
        if instance is None or host_key(instance.host or '') != self._host:
            return True
        before = stuck_instances.before(self._instances, instance)
        if not takeover.is_mark(instance.task_state):
            with self._lock:
                awaited = (uuid in self._awaited
                           and self._awaited[uuid] == before)
                remembered = uuid in self._unmarked
            if not awaited:
                # It has another task by now, the sweep marks it, or a write of
                # the process before this one was late.
                self._stuck_instances.suspect(uuid)
                return not remembered
        elif takeover.is_anothers(instance.task_state, self._host):
            raise StillBusy('another compute service takes it over')
        machine = self._machines.provision_state(instance)
        step = takeover.step(
            instance.vm_state, before, machine,
            lambda: self._machines.deployed_since(
                instance, self._instances.began(uuid, 'rebuild')))
        if step is Step.FAIL and instance.vm_state == 'building':
            step = self._build_retry.step(instance, machine)
        if step is Step.AWAIT and not takeover.awaited_unmarked(
                instance.vm_state):
            return False
        with self._lock:
            self._awaited.pop(uuid, None)
            self._unmarked.pop(uuid, None)
            (self._awaited if step is Step.AWAIT
             else self._unmarked)[uuid] = before
        if instance.task_state != before:
            with self._lock:
                self._unmark_pending.add(uuid)
            if not self._instances.set_states(
                    instance, instance.vm_state, before):
                # The sweep reads it again.
                return False
            with self._lock:
                self._unmark_pending.discard(uuid)
        if step is Step.AWAIT:
            return False
        self._carry_out(step, instance, before, machine)
        self._require_finished(uuid, before)
        return True

    def _carry_out(self, step: Step, instance: Instance, before: str | None,
                   machine: str | None) -> None:
        if step is Step.DEPLOYED:
            # It may still have a task state, to be stopped once more.
            self._stuck_instances.suspect(instance.uuid)
            self._instances.deployed(instance)
        elif step is Step.FAIL:
            self._instances.fail(
                instance, 'Nobody is at work on it any more. It was '
                f'{before or instance.vm_state}, and ' + (
                    f'Ironic has the node {machine}' if machine
                    else 'no node is reserved for it in Ironic'))
        elif step is Step.REPEAT:
            self._build_retry.undo(instance)
        elif step is Step.DELETE:
            with self._operations.repeating():
                self._instances.delete(instance)
        elif step is Step.RESTORE:
            self._instances.restore(instance)
        else:
            self._instances.init(instance)
            self._clear_task_state(instance.uuid, before)

    def _clear_task_state(self, uuid: str, before: str | None) -> None:
        """Clear a task state that nova's own start leaves."""
        instance = self._instances.read(uuid)
        if (instance is None or instance.task_state is None
                or host_key(instance.host or '') != self._host
                or takeover.ended_by_nova(instance.vm_state, before)
                or not takeover.same_operation(before, instance.task_state)):
            return
        self._instances.set_states(
            instance, takeover.resting(
                instance.vm_state,
                self._machines.provision_state(instance)), None)

    def _require_finished(self, uuid: str, before: str | None) -> None:
        """Raise StillBusy if unfinished: nova only logs many errors."""
        instance = self._instances.read(uuid)
        if (instance is not None
                and host_key(instance.host or '') == self._host
                and not takeover.at_rest(
                    before, instance.vm_state, instance.task_state)):
            raise StillBusy(
                f'it is still {instance.vm_state}/{instance.task_state}')

    def _mark_again(self, uuid: str, at_end: bool = False) -> None:
        """Mark an instance that is not finished and that no worker has.

        The mark tells the next process what to do; its removal cancels that.
        With ``at_end`` the worker of the instance asks, at its end.
        """
        with self._lock:
            if uuid not in self._unmarked or (
                    uuid in self._at_work and not at_end):
                return
            before = self._unmarked[uuid]
            unmark_pending = uuid in self._unmark_pending
        instance = self._instances.read(uuid)
        mark = takeover.taken(before, self._host)
        if (instance is not None
                and host_key(instance.host or '') == self._host):
            if instance.task_state == mark:
                if unmark_pending:
                    return
            elif not (takeover.at_rest(
                    before, instance.vm_state, instance.task_state)
                    or unmark_pending and before is not None
                    and instance.task_state is None):
                with self._lock:
                    if uuid in self._at_work and not at_end:
                        return
                if not self._instances.set_states(
                        instance, instance.vm_state, mark):
                    return
        with self._lock:
            if at_end or uuid not in self._at_work:
                self._unmarked.pop(uuid, None)
                self._unmark_pending.discard(uuid)

    def _work(self) -> None:
        try:
            while uuid := self._next():
                self._work_on(uuid)
        except BaseException:
            with self._lock:
                self._workers -= 1
            raise

    def _next(self) -> str | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            # Within the lock, so that add() sees that no worker waits.
            self._workers -= 1
            return None

    def _work_on(self, uuid: str) -> None:
        pause: float = backoff.FIRST
        done = silent = False
        try:
            done = self.bring_to_rest(uuid)
            pause = backoff.POLL
        except Exception as exc:
            silent = self._operations.silent(exc)
            with self._lock:
                last = self._backoffs.get(uuid)
            pause = backoff.longer(last, silent)
            # Logged once in an outage.
            if not (silent and last and last.silent):
                LOG.warning(
                    'The interrupted operation of instance %(uuid)s cannot be '
                    'finished: %(exc)s. The next try is in %(pause)d s. If '
                    'its task state stays: '
                    'openstack server set --state active %(uuid)s',
                    {'uuid': uuid, 'exc': exc, 'pause': pause},
                    exc_info=pause == backoff.FIRST)
        finally:
            # While this worker still has it.
            if not done:
                stuck_instances.attempt(self._mark_again, uuid, True)
            self._leave(uuid, pause, done, silent)

    def _leave(self, uuid: str, seconds: float, done: bool,
               silent: bool) -> None:
        with self._lock:
            self._at_work.discard(uuid)
            self._silence = silent
            if done:
                self._backoffs.pop(uuid, None)
                self._unmarked.pop(uuid, None)
                self._unmark_pending.discard(uuid)
                self._awaited.pop(uuid, None)
            else:
                self._backoffs[uuid] = backoff.Backoff(
                    self._clock() + seconds, seconds, silent)
