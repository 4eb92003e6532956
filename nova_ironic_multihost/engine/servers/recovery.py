# SPDX-License-Identifier: Apache-2.0

"""Finishes interrupted operations of instances that were taken over.

The work is written on the instances themselves, as marks
(:mod:`.rules.takeover`). Every few seconds the *sweep* lists them and finishes
each one that no thread works on, so a later sweep completes the work of a
call, an audit or a process that ended. While nova works on an instance the
mark is off, since nova wants to see the task state. The mark is remembered
meanwhile, and if the process ends, nova's next start finishes the instance.

The work runs in threads of its own, as it may take minutes: neither an audit
nor a sweep waits for it.
"""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Set
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.engine.base.ports import Machines
from nova_ironic_multihost.engine.base.ports import Operations
from nova_ironic_multihost.engine.builds.build_retry import BuildRetry
from nova_ironic_multihost.engine.lifecycle import notifier
from nova_ironic_multihost.engine.servers import stuck_instances
from nova_ironic_multihost.rules import backoff
from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import notifications
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)

#: Instances that are worked on at the same time.
WORKERS = 8

#: What its threads are called.
THREAD = 'ironic-multihost-takeover'

#: Sweeps from one look at what is this host's to the next.
PATROL = 6

#: Sweeps in which a mark of this host must be astray until it is undone: on an
#: instance of a host that is down, and of one that is up and would do so.
ASTRAY, LEFT_TO_OWNER = 2, 3 * PATROL


class StillBusy(Exception):
    """nova did not finish an interrupted operation."""


def start_thread(target: Callable[..., object], *args: object) -> None:
    """Call a function in a thread of its own."""
    threading.Thread(
        target=target, args=args, name=THREAD, daemon=True).start()


class Recovery:
    """Finishes interrupted operations of instances of this host.

    The audit, the sweep, the start of the service and the workers come in
    threads of their own. ``_lock`` guards their shared state and is never held
    during a question.

    :param host: this host.
    :param instances: nova's instances.
    :param machines: their machines.
    :param operations: nova's operations in this process.
    :param retry: begins builds again.
    :param clock: monotonic clock, in seconds.
    :param start: calls a function with arguments, in a thread of its own.
    :param under_way: returns the uuids of the instances that are being taken
        over at this moment.
    :param recorder: told which work is pending.
    :param receive: as for :class:`.stuck_instances.StuckInstances`.
    """

    def __init__(self, host: str, instances: Instances, machines: Machines,
                 operations: Operations, retry: BuildRetry,
                 clock: Callable[[], float] = time.monotonic,
                 start: Callable[..., None] = start_thread,
                 under_way: Callable[[], Set[str]] = frozenset,
                 recorder: Metrics | None = None,
                 receive: Callable[[], object] = lambda: None) -> None:
        self._name = host
        self._host = host_key(host)
        self._instances = instances
        self._machines = machines
        self._clock = clock
        self._start = start
        self._notifier = notifier.Notifier(instances, start)
        self._under_way = under_way
        self._recorder = recorder or Metrics(clock)
        self._operations = operations
        self._build_retry = retry
        self._lock = threading.Lock()
        self._waiting: collections.deque[str] = collections.deque()
        #: Instances that wait for a worker, or that one is at.
        self._at_work: set[str] = set()
        self._workers = 0
        self._pauses: dict[str, backoff.Backoff] = {}
        #: Instances whose mark is off -> what they were doing.
        self._unmarked: dict[str, str | None] = {}
        #: Those of them whose mark may be there, until a write takes it off
        #: that is done late.
        self._doubtful: set[str] = set()
        #: The same of those that Ironic deploys, and that carry no mark.
        self._awaited: dict[str, str | None] = {}
        #: Whether this host may have marked something; any thread says so.
        self._stirred = True
        #: Whether somebody else had no answer since the last sweep.
        self._silence = False
        # Only the sweep uses these.
        self._sweeps = 0
        self._astray: Mapping[tuple[str, str], int] = {}
        self._stuck_instances = stuck_instances.StuckInstances(
            host, instances, operations, receive, self._seen_to,
            retry.here)

    def add(self, uuids: Iterable[str]) -> None:
        """Finish interrupted operations of instances of this host, soon."""
        for uuid in uuids:
            self._stirred = True
            with self._lock:
                if uuid in self._at_work:
                    continue
                if self._workers < WORKERS and self._begin(self._work):
                    self._workers += 1
                if not self._workers:
                    # The next sweep tries again.
                    return
                self._at_work.add(uuid)
                self._waiting.append(uuid)

    def _begin(self, target: Callable[..., object], *args: object) -> bool:
        """Call a function in a thread of its own, if there can be one."""
        try:
            self._start(target, *args)
        except RuntimeError as exc:
            LOG.warning('Threads of nova-compute are used up: %s.', exc)
            return False
        return True

    def note_silence(self) -> None:
        """Note that nova did not answer another part of this process.

        Its write may be done, or half done.
        """
        self._silence = True

    def took_over(self, instances: Mapping[str, str | None],
                  at_rest: Set[str] = frozenset()) -> None:
        """Finish interrupted operations of instances that were taken over.

        :param instances: uuid -> earlier host.
        :param at_rest: uuids of those without an interrupted operation.
        """
        self.add(uuid for uuid in instances if uuid not in at_rest)
        for host in sorted({before or '' for before in instances.values()}):
            uuids = sorted(uuid for uuid, before in instances.items()
                           if (before or '') == host)
            LOG.info('Took over %(count)d instances of compute service '
                     '%(host)s, which is down.',
                     {'count': len(uuids), 'host': host})
            self._notifier.tell(
                notifications.takeover(self._name, host, uuids)
            )

    def start(self, init: Callable[[], object], instance: Instance) -> None:
        """Do what is due for an instance at the start of the service.

        Instances go on that this host was taking over when it ended, that
        another host has not taken after all, and builds. A rebuild that may
        wait in the queue, and a half deleted instance, are left to the check
        for stuck instances: nova would delete the record first, and leave
        placement as it is if that does not answer. An instance without an
        operation is left alone: there may be thousands. A failure for one
        instance does not end the service.

        :param init: nova's own start of the instance.
        """
        state = instance.task_state
        if (takeover.is_mark(state)
                or takeover.lost_at_start(instance.vm_state, state)
                or self._may_be_evacuated(instance)):
            with self._lock:
                self._unmarked[instance.uuid] = takeover.marked(state)
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
                'What instance %(uuid)s was in the middle of cannot be '
                'finished; it is left as it is. If its task state stays: '
                'openstack server set --state active %(uuid)s',
                {'uuid': instance.uuid})

    def _may_be_evacuated(self, instance: Instance) -> bool:
        """Whether an evacuation may have left the task state.

        nova would take it for a rebuild and set the instance to ERROR.
        """
        before = takeover.marked(instance.task_state)
        try:
            return stuck_instances.before(self._instances, instance) != before
        except Exception as exc:  # noqa: BLE001
            LOG.debug('Instance %(uuid)s has to wait: %(exc)s',
                      {'uuid': instance.uuid, 'exc': exc})
            return True

    def sweep(self, view: peers.View | None = None) -> None:
        """Take up instances with a mark that no thread works on.

        :param view: the compute services as they were seen last.
        :raises Exception: nova does not say which instances carry one.
        """
        try:
            self._sweep(view)
        except Exception:
            self._silence = True
            raise

    def _sweep(self, view: peers.View | None) -> None:
        if self._silence:
            self._silence, self._stirred = False, True
            self._stuck_instances.interrupt()
        with self._lock:
            unmarked = list(self._unmarked)
            paused = dict(self._pauses)
        for uuid in unmarked:
            stuck_instances.attempt(self._mark_again, uuid)
        found = self._marked(bool(unmarked or paused))
        marked = takeover.sort_marked(self._host, found)
        self.add(sorted(self._due(marked.rest, paused)))
        self._undo(marked.astray, found, view)
        self._recorder.note_pending(Pending.REST, {
            *marked.rest, *(uuid for uuid, _ in marked.astray),
            *self._seen_to()})
        self._sweeps += 1
        if view is None or view.fenced(self._host):
            self._stuck_instances.interrupt()
        else:
            self.add(self._stuck_instances.once(self._sweeps % PATROL == 0))

    def _marked(self, unfinished: bool) -> Mapping[str, InstanceState]:
        """Read the instances with marks of this host.

        No other host writes its marks, so nova is asked only now and then
        while there can be none: a write of an earlier process may be late.

        :param unfinished: there is unfinished work.
        """
        if not (unfinished or self._stirred or self._sweeps % PATROL == 0):
            return {}
        self._stirred = False
        found = self._instances.marked(self._host)
        self._stirred = self._stirred or bool(found)
        return found

    def _seen_to(self) -> frozenset[str]:
        with self._lock:
            return frozenset(
                {*self._at_work, *self._unmarked, *self._awaited})

    def _due(self, marked: frozenset[str],
             paused: Mapping[str, backoff.Backoff]) -> set[str]:
        """Return the instances with an operation to finish now.

        :param paused: the pauses before the marks were read.
        """
        now = self._clock()
        busy = self._operations.at_work
        with self._lock:
            due = {*marked, *self._awaited} - self._at_work - busy
            self._pauses = backoff.kept(
                self._pauses, paused,
                due | self._at_work | self._unmarked.keys())
            new = due - self._pauses.keys()
            due = backoff.due(self._pauses, due, now, WORKERS)
        if new:
            LOG.info('Found %d instances that were taken over and nobody is '
                     'at work on.', len(new))
        return due

    def _undo(self, astray: frozenset[tuple[str, str]],
              found: Mapping[str, InstanceState],
              view: peers.View | None) -> None:
        """Remove marks of this host from instances of others.

        The instance of a dead host is then taken over again. A live host
        finishes it itself (:mod:`.engine.servers.stuck_instances`), unless it
        does not know marks.
        """
        under_way = self._under_way()
        self._astray = {key: self._astray.get(key, 0) + 1 for key in astray
                        if key[0] not in under_way}
        for (uuid, mark), sweeps in sorted(self._astray.items()):
            up = view is not None and view.live(found[uuid].host_key)
            if sweeps >= (LEFT_TO_OWNER if up else ASTRAY):
                stuck_instances.attempt(self._release, uuid, mark)

    def _release(self, uuid: str, mark: str) -> None:
        instance = self._instances.read(uuid)
        if instance is not None and instance.task_state == mark:
            LOG.info('The take-over of instance %(uuid)s was not finished '
                     'and is undone.', {'uuid': uuid})
            self._instances.set_states(
                instance, instance.vm_state,
                stuck_instances.before(self._instances, instance))

    def bring_to_rest(self, uuid: str) -> bool:
        """Finish the interrupted operation of one instance.

        :returns: whether it is over; False to look again, as Ironic deploys.
        :raises Exception: it failed, which is remembered.
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
                # It is at something else by now, or the sweep marks it; or a
                # write of the process before this one was late.
                self._stuck_instances.suspect(uuid)
                return not remembered
        elif takeover.is_anothers(instance.task_state, self._host):
            raise StillBusy('another compute service wants to have it')
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
                self._doubtful.add(uuid)
            if not self._instances.set_states(
                    instance, instance.vm_state, before):
                # The sweep looks what has become of it.
                return False
            with self._lock:
                self._doubtful.discard(uuid)
        if step is Step.AWAIT:
            return False
        self._carry_out(step, instance, before, machine)
        self._require_rest(uuid, before)
        return True

    def _carry_out(self, step: Step, instance: Instance, before: str | None,
                   machine: str | None) -> None:
        if step is Step.DEPLOYED:
            # It may be in a task state then, to be stopped once more.
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
            self._settle(instance.uuid, before)

    def _settle(self, uuid: str, before: str | None) -> None:
        """End an operation that nova's own start does not end.

        :param before: the interrupted task state.
        """
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

    def _require_rest(self, uuid: str, before: str | None) -> None:
        """Check that it is finished: nova logs many errors and raises none.

        :raises StillBusy: it is not.
        """
        instance = self._instances.read(uuid)
        if (instance is not None
                and host_key(instance.host or '') == self._host
                and not takeover.at_rest(
                    before, instance.vm_state, instance.task_state)):
            raise StillBusy(
                f'it is still {instance.vm_state}/{instance.task_state}')

    def _mark_again(self, uuid: str, mine: bool = False) -> None:
        """Mark an instance with unfinished work that no thread works on.

        The mark tells the next process what to do; removing it cancels the
        work.

        :param mine: the thread that worked on it calls, at its end.
        """
        with self._lock:
            if uuid not in self._unmarked or (
                    uuid in self._at_work and not mine):
                return
            before = self._unmarked[uuid]
            doubtful = uuid in self._doubtful
        instance = self._instances.read(uuid)
        mark = takeover.taken(before, self._host)
        if (instance is not None
                and host_key(instance.host or '') == self._host):
            if instance.task_state == mark:
                if doubtful:
                    return
            elif not (takeover.at_rest(
                    before, instance.vm_state, instance.task_state)
                    or doubtful and before is not None
                    and instance.task_state is None):
                with self._lock:
                    if uuid in self._at_work and not mine:
                        return
                if not self._instances.set_states(
                        instance, instance.vm_state, mark):
                    return
        with self._lock:
            if mine or uuid not in self._at_work:
                self._unmarked.pop(uuid, None)
                self._doubtful.discard(uuid)

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
            # At once, so that whoever adds one knows that nobody waits.
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
                last = self._pauses.get(uuid)
            pause = backoff.longer(last, silent)
            # Said once of an outage.
            if not (silent and last and last.silent):
                LOG.warning(
                    'Work on instance %(uuid)s was interrupted and cannot be '
                    'finished: %(exc)s. It is tried again in %(pause)d s. If '
                    'its task state stays: '
                    'openstack server set --state active %(uuid)s',
                    {'uuid': uuid, 'exc': exc, 'pause': pause},
                    exc_info=pause == backoff.FIRST)
        finally:
            # While nobody else is at work on it.
            if not done:
                stuck_instances.attempt(self._mark_again, uuid, True)
            self._leave(uuid, pause, done, silent)

    def _leave(self, uuid: str, seconds: float, done: bool,
               silent: bool) -> None:
        """Leave an instance alone, for some time or for good."""
        with self._lock:
            self._at_work.discard(uuid)
            if not silent:
                self._pauses = backoff.answered(self._pauses, self._clock())
            if done:
                self._pauses.pop(uuid, None)
                self._unmarked.pop(uuid, None)
                self._doubtful.discard(uuid)
                self._awaited.pop(uuid, None)
            else:
                self._pauses[uuid] = backoff.Backoff(
                    self._clock() + seconds, seconds, silent)
