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
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)

#: Instances that are worked on at the same time.
WORKERS = 8

#: Sweeps between two full checks of the instances of this host.
FULL_SWEEP = 6


class StillBusy(Exception):
    """nova did not finish the operation of an instance."""


class Recovery:
    """Finishes interrupted operations of instances of this host.

    Audit, sweep, start of the service and workers are different threads.
    ``_lock`` guards their shared state, and nothing is asked while it is held.

    :param receive: as for :class:`.stuck_instances.StuckInstances`.
    """

    def __init__(self, host: str, instances: Instances, machines: Machines,
                 operations: Operations, retry: BuildRetry,
                 clock: abc.Callable[[], float] = time.monotonic,
                 start: abc.Callable[..., bool] | None = None,
                 recorder: Metrics | None = None,
                 receive: abc.Callable[[], object] = lambda: None) -> None:
        self._name = host
        self._host = host_key(host)
        self._instances = instances
        self._machines = machines
        self._clock = clock
        self._start = start or functools.partial(
            periodic.start_thread, 'takeover')
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
        #: Instances that (may soon) have no mark -> the task state before it.
        self._unmarked: dict[str, str | None] = {}
        #: Whether a sweep may find something; any thread sets it.
        self._may_be_busy = True
        # Only the sweep uses this.
        self._sweeps = 0
        #: Instances with a mark of this host, as nova listed them last; no
        #: worker has taken it off since.
        self._marked: frozenset[str] = frozenset()
        #: Instances that have (or may have) lost it since that list was asked.
        self._removed: set[str] = set()
        self._stuck_instances = stuck_instances.StuckInstances(
            host, instances, operations, receive, self._in_progress,
            retry.here)

    def add(self, uuids: abc.Iterable[str]) -> None:
        """Have workers finish the operations of instances of this host."""
        for uuid in uuids:
            self._may_be_busy = True
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
        self._may_be_busy = True

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
            self._operations.note_unfinished(instance.uuid)
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

        :raises Exception: nova does not list the instances.
        """
        try:
            self._sweep(view)
        except Exception:
            self._may_be_busy = True
            self._stuck_instances.interrupt()
            raise

    def _sweep(self, view: peers.View | None) -> None:
        self._sweeps += 1
        full = self._sweeps % FULL_SWEEP == 0
        fenced = view is None or view.fenced(self._host)
        if fenced:
            self._stuck_instances.interrupt()
        elif full:
            self._stuck_instances.check_batch()
        with self._lock:
            unmarked = self._unmarked.keys() - self._marked
        for uuid in sorted(unmarked):
            stuck_instances.attempt(self._mark_again, uuid)
        last_note = self._operations.last_note
        unfinished = self._operations.unfinished
        # A write of an earlier process may be late: a full sweep always reads.
        if not (full or self._may_be_busy or unfinished
                or self._in_progress()):
            return
        self._may_be_busy = False
        with self._lock:
            self._removed.clear()
        busy = self._instances.busy(self._name)
        self._may_be_busy = self._may_be_busy or bool(busy)
        # The list may be older than a note that was made meanwhile.
        if self._operations.last_note is last_note:
            self._operations.forget(unfinished - busy.keys())
        marked = takeover.sort_marked(self._host, busy).to_finish
        with self._lock:
            self._marked = marked - self._removed
        self.add(sorted(self._due(marked)))
        self._recorder.note_pending(
            Pending.REST, {*marked, *self._in_progress()})
        if not fenced:
            self.add(self._stuck_instances.mark_unattended({
                uuid: state for uuid, state in busy.items()
                if uuid not in marked}))

    def _in_progress(self) -> frozenset[str]:
        with self._lock:
            return frozenset({*self._at_work, *self._unmarked})

    def _due(self, marked: frozenset[str]) -> set[str]:
        """Return the instances that are due for a worker now."""
        now = self._clock()
        busy = self._operations.at_work
        with self._lock:
            due = marked - self._at_work - busy
            known = due | self._at_work | self._unmarked.keys()
            self._backoffs = {
                uuid: pause for uuid, pause in self._backoffs.items()
                if uuid in known}
            new = due - self._backoffs.keys()
            tried = backoff.due(
                {uuid: self._backoffs[uuid] for uuid in due - new}, now,
                self._silence, WORKERS)
        if new:
            LOG.info('Found %d instances that were taken over and that no '
                     'thread works on.', len(new))
        return tried | new

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
            # It has another task by now, the sweep marks it, or a write of the
            # process before this one was late.
            self._operations.note_unfinished(uuid)
            with self._lock:
                return uuid not in self._unmarked
        if takeover.is_anothers(instance.task_state, self._host):
            raise StillBusy('another compute service takes it over')
        machine = self._machines.provision_state(instance)
        step = takeover.step(
            instance.vm_state, before, machine,
            lambda: self._machines.deployed_since(
                instance, self._instances.began(uuid, 'rebuild')))
        if step is Step.FAIL and instance.vm_state == 'building':
            step = self._build_retry.step(instance, machine)
        if step is Step.AWAIT:
            return False
        with self._lock:
            self._unmarked[uuid] = before
        try:
            if not self._instances.set_states(
                    instance, instance.vm_state, before):
                # The sweep reads it again.
                return False
        except Exception:
            # It may be written later, over the next mark.
            self._operations.note_unfinished(uuid)
            raise
        finally:
            with self._lock:
                self._removed.add(uuid)
        with self._lock:
            self._marked -= {uuid}
        self._carry_out(step, instance, before, machine)
        self._require_finished(uuid, before)
        return True

    def _carry_out(self, step: Step, instance: Instance, before: str | None,
                   machine: str | None) -> None:
        if step is Step.DEPLOYED:
            # It may still have a task state, to be stopped once more.
            self._operations.note_unfinished(instance.uuid)
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
        instance = self._instances.read(uuid)
        mark = takeover.taken(before, self._host)
        if (instance is not None and instance.task_state == mark
                and uuid in self._operations.unfinished):
            # A late write may still take the mark off.
            return
        if (instance is not None
                and host_key(instance.host or '') == self._host
                and instance.task_state != mark
                and not takeover.at_rest(
                    before, instance.vm_state, instance.task_state)):
            with self._lock:
                if uuid in self._at_work and not at_end:
                    return
            if not self._instances.set_states(
                    instance, instance.vm_state, mark):
                return
        with self._lock:
            if at_end or uuid not in self._at_work:
                self._unmarked.pop(uuid, None)

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
            else:
                self._backoffs[uuid] = backoff.Backoff(
                    self._clock() + seconds, seconds, silent)
