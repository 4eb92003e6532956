# SPDX-License-Identifier: Apache-2.0

"""Let an operation run only on the host that has the instance.

A dead or paused compute service resumes with old requests for instances that
may be on other hosts by then. So it checks the host before an operation leaves
any trace, changes the machine or writes its failure. Without an answer of nova
the machine is left alone. The request has left the queue and nova's error
handling runs in the guard, so an operation waits longer than a usual outage.
"""

import contextlib
import math
import sys
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost import exception
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import BuildStage
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Seconds between two tries while a service does not answer.
PAUSE = 5


class Cancelled(BaseException):
    """End an operation: another host has its instance.

    No :class:`Exception`: nova's error handling (ERROR, task state, ports,
    allocation) would hit the new owner's instance. It never leaves the guard.
    """

    def obj_to_primitive(self):
        """Return the text that nova sends to the conductor.

        nova.objects.base:serialize_args does that only for an Exception.
        """
        return str(self)


class NoAnswer(Exception):
    """A service that has to answer does not."""


class TakeoverInProgress(Exception):
    """Another host is about to take over the instance."""


class ThreadState(threading.local):
    """What the guard knows of the operation of a thread."""

    inside = cancelled = building = gone = False
    #: Whether it ended as nobody could say where its instance is.
    unsure = False
    #: Seconds that it may still wait; None before the first wait.
    patience_left: float | None = None
    #: Whether it may be repeated, and whether this is a repetition.
    repeatable = again = False
    no_answer: str | None = None
    #: The (name, instance) of :meth:`OperationGuard.change_machine`.
    changing: tuple | None = None
    state = None


class OperationGuard:
    """Lets in operations on the instances of one compute service.

    ``act`` is the operation; an instance has ``uuid`` and ``node``. If a
    service does not answer, methods but :meth:`clean_up` and
    :meth:`.BuildGuard.build` raise its error, and nothing is done.

    :param cloud: an :class:`.engine.base.ports.Cloud`.
    :param patience: returns the seconds that one operation may wait in all.
    :param passing: ``passing(exception, again)``: whether a retry may succeed;
        ``again``: it is not the first try.
    :param refused: called when an operation is not carried out.
    """

    def __init__(self, host, cloud, patience=lambda: 0,
                 clock=time.monotonic, sleep=time.sleep,
                 passing=lambda exc, again: False, refused=lambda: None):
        self._host = host_key(host)
        self._cloud = cloud
        self._patience = patience
        self._passing = passing
        self._refused = refused
        self._clock = clock
        self._sleep = sleep
        self._thread = ThreadState()
        # Several threads change both, each time in one step.
        #: The instance of each operation.
        self._at_work = []
        self._unfinished = set()
        self.last_note = object()
        self._ending = threading.Event()

    def end(self):
        """Stop the waits that have no end: the service stops."""
        self._ending.set()

    @property
    def at_work(self):
        """Uuids of the instances of operations, but for synchronous calls."""
        return frozenset(self._at_work)

    @property
    def unfinished(self):
        """Uuids of instances that may keep a failed operation's task state."""
        return frozenset(self._unfinished)

    def forget(self, uuids):
        """Take instances out of :attr:`unfinished`."""
        self._unfinished.difference_update(uuids)

    def operate(self, name, instance, act, otherwise=lambda: None,
                patient=True):
        """Carry out an operation if the instance is here.

        :param otherwise: called instead if it is not; it returns or raises.
        :param patient: the sender does not wait, so the operation may.
        """
        if self._thread.inside:
            return act()
        if not patient:
            # Not in at_work: no task state shows a synchronous call.
            self._thread.patience_left = 0
            return self._operate(name, instance, act, otherwise, patient)
        self._thread.patience_left = None
        with self._noted(instance.uuid):
            return self._operate(name, instance, act, otherwise, patient)

    def _operate(self, name, instance, act, otherwise, patient,
                 is_refused=None):
        try:
            refuse = self._patiently(
                name, f'instance {instance.uuid}',
                is_refused or (lambda: self._is_elsewhere(instance)))
        except TakeoverInProgress:
            self.note_unfinished(instance.uuid)
            refuse = True
        except Exception as exc:
            if is_refused is None:
                raise
            # Not raised: nova would free the node of a server that may run.
            LOG.warning('%(name)s of instance %(instance)s is not carried '
                        'out: %(exc)s. If it is still due, it ends in ERROR.',
                        {'name': name, 'exc': exc, 'instance': instance.uuid})
            self._refused()
            return otherwise()
        if self._tireless:
            self._thread.patience_left = None
        if refuse:
            LOG.info('%(name)s is not carried out: instance %(instance)s is '
                     'on another compute service now, or about to be%(or)s.',
                     {'name': name, 'instance': instance.uuid,
                      'or': ', or done, or has failed' if is_refused else ''})
            self._refused()
            return otherwise()
        with self._entered(patient):
            try:
                return act()
            except (Cancelled, Exception) as exc:
                # nova may have raised another error in its place.
                if not self._thread.cancelled:
                    raise
                self.note_unfinished(instance.uuid)
                LOG.info('%(name)s of instance %(instance)s ends here: '
                         '%(exc)s', {'name': name, 'exc': exc,
                                     'instance': instance.uuid})
                return otherwise()

    def attempt(self, name, instance, act):
        """Carry out a part of an operation that nova cleans up after.

        :raises Cancelled: it failed; another host cleans up, or it is retried.
        """
        try:
            return act()
        except Exception as exc:
            if not self._thread.inside:
                raise
            self._leave_unfinished(name, exc)
            # The mark that made it fail may be gone by now.
            if takeover.mentions_mark(
                    str(exc)) or self._may_be_elsewhere(name, instance):
                raise self._cancelled(f'{name} has failed: {exc}') from exc
            raise

    def clean_up(self, name, instance, act, patient=True):
        """Clean up after a failure, unless another host has the instance.

        nova does some of it at the end of any delete, too.

        :param patient: no lock is held that other threads wait for.
        :raises Cancelled: another host has it, or the operation is repeated.
        """
        if self._thread.inside:
            if self._thread.cancelled:
                raise self._cancelled(_left_to_owner(name))
            self._leave_unfinished(name, sys.exc_info()[1])
        if not self._may_be_elsewhere(name, instance, patient):
            return act()
        if self._thread.inside:
            raise self._cancelled(_left_to_owner(name))
        LOG.info('%(name)s is left to the compute service that instance '
                 '%(instance)s is on now, or about to be.',
                 {'name': name, 'instance': instance.uuid})
        return None

    def _leave_unfinished(self, name, exc):
        """Cancel an operation that has failed and may be done twice.

        nova would write the failure; :mod:`.stuck_instances` tries again.
        """
        if (exc is not None and self._thread.repeatable
                and self._passing(exc, self._thread.again)):
            self._thread.no_answer = why = (
                f'{name} is repeated, as a service did not answer: {exc}')
            raise self._cancelled(why) from exc

    def _cancelled(self, why):
        self._thread.cancelled = True
        return Cancelled(why)

    @contextlib.contextmanager
    def repeating(self):
        """Repeat a failed operation in this thread; nova writes failures.

        :raises NoAnswer: a service does not answer, and nothing was written.
        """
        self._thread.again = True
        self._thread.no_answer = None
        try:
            yield
        finally:
            self._thread.again = False
        if self._thread.no_answer:
            raise NoAnswer(self._thread.no_answer)

    def silent(self, exc):
        """Return whether an error says that a service does not answer."""
        return isinstance(exc, NoAnswer) or self._passing(exc, True)

    @property
    def hurried(self):
        """Whether the sender waits for this thread's operation."""
        return self._thread.inside and not self._thread.patient

    def leave(self, name):
        """Raise Cancelled: end the operation without cleaning up."""
        raise self._cancelled(_left_to_owner(name))

    def change_machine(self, name, instance, act):
        """Change the machine of an instance that this host has.

        :raises Cancelled: another host has it, inside an operation.
        :raises InstanceElsewhere: another host has it, outside of one.
        :raises InstanceGone: a build's instance is deleted; nova cleans up.
        """
        self._require(name, instance)
        before = self._thread.changing
        self._thread.changing = name, instance
        try:
            return act()
        finally:
            self._thread.changing = before

    def ask_again(self):
        """Check again within a long :meth:`change_machine`; same errors."""
        if self._thread.changing is not None:
            self._require(*self._thread.changing)

    def present(self, name, instances):
        """Return the uuids of those of the instances that are here."""
        self._thread.patience_left = None
        instance_states = self._patiently(
            name, f'{len(instances)} instances',
            lambda: self._cloud.instance_states(instances))
        return frozenset(
            instance for instance in instances
            if not builds.elsewhere(
                instance_states.get(instance), self._host))

    def _patiently(self, name, instance, act, writes=False):
        """Call ``act``, and retry while the service does not answer.

        :param writes: no retry after another error, or when the service stops.
        :raises TakeoverInProgress: the takeover lasts too long.
        """
        thread, warned = self._thread, False
        while True:
            before = self._clock()
            try:
                return act()
            except Exception as exc:
                passing = self._passing(exc, False)
                if writes and not passing:
                    raise
                if thread.patience_left is None or self._tireless and not (
                        passing or isinstance(exc, NoAnswer)):
                    thread.patience_left = self._patience()
                thread.patience_left -= self._clock() - before
                if thread.patience_left <= 0 or self._ending.is_set() and (
                        writes or self._tireless):
                    raise
                if not warned:
                    warned = True
                    LOG.warning(
                        '%(name)s waits, for up to %(seconds)s s: nova does '
                        'not answer about %(instance)s: %(exc)s. If that '
                        'lasts: are nova-conductor and its database up?',
                        {'name': name, 'instance': instance, 'exc': exc,
                         'seconds': 'any number of' if self._tireless
                         else round(thread.patience_left)})
                self._sleep(PAUSE)
                thread.patience_left -= PAUSE

    def _require(self, name, instance):
        def ask():
            return self._may_change_machine(instance)

        # A takeover in progress: leave the machine alone.
        with contextlib.suppress(TakeoverInProgress):
            if (self._patiently(name, f'instance {instance.uuid}', ask)
                    if self._thread.inside else ask()):
                if (self.building and self._thread.gone
                        and name in builds.DEPLOY_METHODS):
                    raise exception.InstanceGone(instance_id=instance.uuid)
                return
        if self._thread.inside:
            raise self._cancelled(_left_to_owner(name))
        raise exception.InstanceElsewhere(name=name, instance=instance.uuid)

    def _may_change_machine(self, instance):
        state = self._instance_state(instance)
        owner = None
        self._thread.gone = state is None or state.deleted
        if self._thread.gone:
            owner = self._owner(instance.node)
        return builds.may_change_machine(
            state, owner, self._host, self._claim)

    @property
    def _tireless(self):
        return self._thread.patience_left == math.inf

    @property
    def building(self):
        """Whether this thread carries out a build."""
        return self._thread.building

    @property
    def _claim(self):
        return self._thread.claim if self.building else BuildStage.NONE

    @contextlib.contextmanager
    def _noted(self, uuid):
        self._at_work.append(uuid)
        try:
            yield
        except Exception:
            self.note_unfinished(uuid)
            raise
        finally:
            self._at_work.remove(uuid)

    def note_unfinished(self, uuid):
        """Note that no thread may work on the task of an instance."""
        self.last_note = object()
        self._unfinished.add(uuid)

    @contextlib.contextmanager
    def _entered(self, patient):
        self._thread.inside = True
        self._thread.patient = patient
        self._thread.cancelled = False
        # Read before: nova clears the task state of a delete early.
        state = self._thread.state
        self._thread.repeatable = (
            state is not None and takeover.may_be_done_twice(
                state.vm_state, state.task_state))
        try:
            yield
        finally:
            self._thread.inside = False

    def _instance_state(self, instance):
        state = self._thread.state = self._cloud.instance_states(
            [instance.uuid]).get(instance.uuid)
        if builds.contested(state, self._host):
            raise TakeoverInProgress(
                'another compute service is about to take it over')
        return state

    def _is_elsewhere(self, instance):
        return builds.elsewhere(self._instance_state(instance), self._host)

    def _may_be_elsewhere(self, name, instance, patient=True):
        def ask():
            try:
                state = self._instance_state(instance)
            except TakeoverInProgress:
                # Likely the cause; recovery finishes what no host takes over.
                return True
            return builds.elsewhere(state, self._host) or (
                self.building
                and builds.begun_elsewhere(
                    state, self._host, self._claim))

        try:
            return (self._patiently(name, f'instance {instance.uuid}', ask)
                    if patient and self._thread.inside else ask())
        except Exception as exc:  # noqa: BLE001
            # Ports and allocations can be changed without the conductor.
            self._thread.unsure = True
            LOG.warning('It cannot be known where instance %(instance)s is, '
                        'so nothing is cleaned up: %(exc)s',
                        {'instance': instance.uuid, 'exc': exc})
            return True

    def _owner(self, node):
        record = next(iter(self._cloud.records([node])), None)
        return record and record.owner


def _left_to_owner(name):
    return f'{name} is left to the compute service that the instance is on'
