# SPDX-License-Identifier: Apache-2.0


"""Lets a compute service do nothing to an instance that has moved.

A compute service that returns finds old requests in its queue, and goes on
where it was frozen. Meanwhile its instances may be on other compute services.
So it reads where an instance is

- before an operation begins, at the *guard* in front of all that nova does for
    it: a refused operation leaves no trace on the instance;
- before each change of the machine, as an operation may take long;
- before it writes down that an operation has failed.

If the place of an instance cannot be read, the machine is left alone. The
message of the operation is gone by then, and nova's handling of failures is
behind the guard. So an operation waits while nova's conductor does not answer,
for longer than it is usually away.
"""

import collections
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

#: Seconds between two questions while there is no answer.
PAUSE = 5

#: Times that placement is asked until a build has no node: it may lag behind.
ASKED = 3


class Cancelled(BaseException):
    """Ends an operation on an instance that has moved.

    It is no :class:`Exception`, like :class:`asyncio.CancelledError`: nova's
    handling of a failure (set the instance to ERROR, clear its task state,
    free its ports and its allocation) would hit the new owner's instance. It
    never leaves the guard.
    """

    def obj_to_primitive(self):
        """Return the text for the action log, which nova sends.

        nova makes a text of an :class:`Exception` only
        (nova.objects.base:serialize_args); other objects cannot be sent.
        """
        return str(self)


class NoAnswer(Exception):
    """nova or placement does not answer."""


class TakeoverInProgress(Exception):
    """A take-over of the instance is in progress."""


class OperationGuard:
    """Guards operations on the instances of one compute service.

    An instance is any object with ``uuid`` and ``node``; ``act`` is the work,
    a function without arguments.

    :param host: the compute service.
    :param sources: an :class:`.engine.base.ports.Sources`, asked for
        ``instance_states`` and ``records``.
    :param patience: returns the seconds for which an operation waits for
        answers in all.
    :param clock: monotonic clock, in seconds.
    :param sleep: waits for some seconds.
    :param passing: returns whether a call that failed with an exception may
        succeed later; gets the exception, and whether this is a repetition.
    :param refused: called when an operation is refused.
    """

    def __init__(self, host, sources, patience=lambda: 0,
                 clock=time.monotonic, sleep=time.sleep,
                 passing=lambda exc, again: False, refused=lambda: None):
        self._host = host_key(host)
        self._sources = sources
        self._patience = patience
        self._passing = passing
        self._refused = refused
        self._clock = clock
        self._sleep = sleep
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._at_work = collections.Counter()
        self._unfinished = set()
        self._ending = threading.Event()

    def end(self):
        """End waits without a limit: the service is told to stop."""
        self._ending.set()

    @property
    def at_work(self):
        """Uuids of the instances with an operation in progress or waiting.

        Without operations of which the sender waits: no task state shows them.
        """
        with self._lock:
            return frozenset(self._at_work)

    @property
    def unfinished(self):
        """Uuids of instances that an operation may have left unfinished."""
        with self._lock:
            return frozenset(self._unfinished)

    def forget(self, uuids):
        """Forget unfinished operations that left nothing, or are over."""
        with self._lock:
            self._unfinished -= uuids

    def operate(self, name, instance, act, otherwise=lambda: None,
                patient=True):
        """Carry out an operation if the instance is here.

        :param name: name of the operation.
        :param otherwise: answers, or raises, in place of a refused operation.
        :param patient: no sender waits, so it may take its time.
        :returns: the result of ``act``, or of ``otherwise``.
        :raises Exception: it cannot be known; nothing was done.
        """
        if self._inside:
            # Part of an operation that has been let in.
            return act()
        if not patient:
            self._thread.patience_left = 0
            return self._operate(name, instance, act, otherwise, patient)
        self._thread.patience_left = None
        with self._noted(instance.uuid):
            return self._operate(name, instance, act, otherwise, patient)

    def build(self, name, instance, act, node, otherwise,
              adopt=lambda: False, failed=lambda _: False,
              renew=lambda: None, later=None):
        """Carry out a build, unless it is done or another host's by now.

        Only this operation knows of it: without answers it waits until the
        service stops.

        :param node: uuid of its node, or None.
        :param adopt: takes the node if it is a dead host's, with the
            unfinished build on it. Returns whether it may have taken anything.
        :param failed: returns whether a result means that the build is given
            up, and its node freed in placement.
        :param renew: undoes what an earlier attempt has left. If it raises it
            is called again.
        :param later: answers in place of a failed build that nova has not
            given up and that may be carried out later; None to raise the
            error.
        """
        if self._inside:
            return act()

        def is_left():
            # What is taken may be this very instance.
            if self._is_outdated(instance, node) or (
                    adopt() and self._is_outdated(instance, node)):
                return True
            if self._thread.left_over:
                LOG.info('What was begun of the build of instance '
                         '%(instance)s and not ended is undone.',
                         {'instance': instance.uuid})
                renew()
            return False

        def act_for_this_host():
            self._thread.building = True
            self._thread.claim = BuildStage.NONE
            self._thread.node = node
            try:
                return act_or_leave()
            finally:
                self._thread.building = False

        def act_or_leave():
            try:
                result = act()
            except Exception as exc:
                self.note_unfinished(instance.uuid)
                if self._is_begun_elsewhere(name, instance, unknown=False):
                    return otherwise()
                if later is None or self._is_given_up(instance) or not (
                        self._passing(exc, False)
                        or self._claim is BuildStage.SCHEDULED):
                    raise
                LOG.warning(
                    'The build of instance %(instance)s has failed, as it '
                    'cannot be written down: %(exc)s. It is carried out later '
                    'if there is a copy of it. Are nova-conductor and its '
                    'database up?', {'instance': instance.uuid, 'exc': exc})
                return later()
            return (otherwise() if failed(result)
                    and self._is_begun_elsewhere(name, instance) else result)

        self._thread.patience_left = math.inf
        with self._noted(instance.uuid):
            return self._operate(
                name, instance, act_for_this_host, otherwise, True, is_left)

    def _operate(self, name, instance, act, otherwise, patient,
                 is_left=None):
        try:
            left = self._patiently(
                name, f'instance {instance.uuid}',
                is_left or (lambda: self._is_elsewhere(instance)))
        except TakeoverInProgress:
            self.note_unfinished(instance.uuid)
            left = True
        except Exception as exc:
            if is_left is None:
                raise
            # nova would free the node, of a server that may run.
            LOG.warning('%(name)s of instance %(instance)s is not carried '
                        'out: %(exc)s. If it was to be it ends in ERROR.',
                        {'name': name, 'exc': exc, 'instance': instance.uuid})
            self._refused()
            return otherwise()
        if self._tireless:
            self._thread.patience_left = None
        if left:
            LOG.info('%(name)s is not carried out: instance %(instance)s is '
                     'on another compute service now, or about to be%(or)s.',
                     {'name': name, 'instance': instance.uuid,
                      'or': ', or done, or has failed' if is_left else ''})
            self._refused()
            return otherwise()
        with self._entered(patient):
            try:
                return act()
            except (Cancelled, Exception) as exc:
                # Whatever has taken its place on the way.
                if not self._thread.cancelled:
                    raise
                self.note_unfinished(instance.uuid)
                LOG.info('%(name)s of instance %(instance)s ends here: '
                         '%(exc)s', {'name': name, 'exc': exc,
                                     'instance': instance.uuid})
                return otherwise()

    def attempt(self, name, instance, act):
        """Carry out a part of an operation that nova cleans up after.

        :raises Cancelled: it failed and the cleaning up is another host's, or
            it is repeated.
        """
        try:
            return act()
        except Exception as exc:
            if not self._inside:
                raise
            self._leave_unfinished(name, exc)
            # A mark that made it fail may be off again by now.
            if takeover.mentions_mark(
                    str(exc)) or self._may_be_elsewhere(name, instance):
                raise self._cancelled(f'{name} has failed: {exc}') from exc
            raise

    def clean_up(self, name, instance, act, patient=True):
        """Clean up after a failure, unless the instance is another host's.

        nova does some of this at the end of any delete, too.

        :param patient: no lock is held that others wait for.
        :raises Cancelled: it is another host's (inside an operation), or the
            failed operation is repeated.
        """
        if self._inside:
            if self._thread.cancelled:
                raise self._cancelled(_left(name))
            self._leave_unfinished(name, sys.exc_info()[1])
        if not self._may_be_elsewhere(name, instance, patient):
            return act()
        if self._inside:
            raise self._cancelled(_left(name))
        LOG.info('%(name)s is left to the compute service that instance '
                 '%(instance)s is on now, or about to be.',
                 {'name': name, 'instance': instance.uuid})
        return None

    def _leave_unfinished(self, name, exc):
        """Leave a failed operation to be repeated, if it may be done twice.

        nova would write that it has failed, and a user would have to ask for a
        delete again. See :mod:`.engine.servers.stuck_instances`.

        :param exc: the error, None if there was none.
        :raises Cancelled: the operation is left.
        """
        if (exc is not None and self._thread.repeatable
                and self._passing(exc, self._again)):
            self._thread.silence = why = (
                f'{name} is repeated, as nobody answered: {exc}')
            raise self._cancelled(why) from exc

    def _cancelled(self, why):
        """Return the error that ends this thread's operation for good."""
        self._thread.cancelled = True
        return Cancelled(why)

    @contextlib.contextmanager
    def repeating(self):
        """Mark this thread as one that repeats a failed operation.

        nova would write failures down.

        :raises NoAnswer: no service answers, and nothing was written.
        """
        self._thread.again = True
        self._thread.silence = None
        try:
            yield
        finally:
            self._thread.again = False
        if self._thread.silence:
            raise NoAnswer(self._thread.silence)

    def silent(self, exc):
        """Whether an error says that a service does not answer."""
        return isinstance(exc, NoAnswer) or self._passing(exc, True)

    @property
    def hurried(self):
        """Whether the sender of this thread's operation waits for it."""
        return self._inside and not self._thread.patient

    def claim(self, name, instance, act):
        """Claim the node of a build, unless the build was begun elsewhere.

        nova writes the claim without a condition, under a lock that others
        wait for; so this waits for no answer.

        :raises Cancelled: it was begun elsewhere.
        :raises Exception: it cannot be known, and nothing was claimed.
        """
        if not self.building:
            return act()
        self._thread.claim = BuildStage.BEGUN
        if self._is_begun_elsewhere_now(instance):
            raise self._cancelled(_left(name))
        result = act()
        self._thread.claim = BuildStage.HELD
        return result

    def has_node(self):
        """Whether no record says that the build's node is another host's.

        nova's tracker may still have it, if another host took it while this
        service stood still.

        :raises Exception: it cannot be known.
        """
        node = self._thread.node
        return node is None or self._owner(node) in (None, self._host)

    def give_back(self, name, instance, act, patient=False):
        """Take the claim back, as the build has failed.

        :param patient: as for :meth:`clean_up`.
        :raises Cancelled: the instance is another host's.
        """
        def act_and_have_none():
            # It may be done, and the answer be lost.
            self._thread.claim = BuildStage.RETURNED
            return act()

        return self.clean_up(name, instance, act_and_have_none, patient)

    def note_scheduled(self):
        """Note that this thread's build is written to be scheduled again.

        nova has its node freed next, and asks its conductor.
        """
        self._thread.claim = BuildStage.SCHEDULED

    def persist(self, name, instance, act, again):
        """Write something, and repeat that while services do not answer.

        For as long as an operation may wait in all. Not if another compute
        service has the instance by then, which writes the same.

        :param act: the write.
        :param again: the write, if it may be done already.
        :raises Cancelled: another host has the instance.
        :raises Exception: it is not written, as far as is known.
        """
        warned = False
        while True:
            before = self._clock()
            try:
                if not warned:
                    return act()
                if not self._has_moved(instance):
                    return again()
            except Exception as exc:
                if not self._passing(exc, False):
                    raise
                if self._patience_left is None:
                    self._thread.patience_left = self._patience()
                self._thread.patience_left -= self._clock() - before
                if self._patience_left <= 0 or self._ending.is_set():
                    raise
                if not warned:
                    warned = True
                    LOG.warning(
                        '%(name)s of instance %(instance)s waits, for up to '
                        '%(seconds)d s, as it cannot be written how far it '
                        'is: %(exc)s. If that lasts: are nova-conductor and '
                        'its database up?',
                        {'name': name, 'instance': instance.uuid, 'exc': exc,
                         'seconds': self._patience_left})
                self._sleep(PAUSE)
                self._thread.patience_left -= PAUSE
            else:
                raise self._cancelled(_left(name))

    def leave(self, name):
        """End this thread's operation without any cleaning up.

        :raises Cancelled: always.
        """
        raise self._cancelled(_left(name))

    def change_machine(self, name, instance, act):
        """Change the machine of an instance if this host may.

        :raises Cancelled: the instance is on another host (inside an
            operation).
        :raises InstanceElsewhere: the same, outside of an operation.
        :raises InstanceGone: inside a build the instance is deleted; nova
            frees the machine.
        :raises Exception: it cannot be known; nothing was done.
        """
        self._require(name, instance)
        before = self._changing
        self._thread.changing = name, instance
        try:
            return act()
        finally:
            self._thread.changing = before

    def ask_again(self):
        """Check again inside :meth:`change_machine`: it may take long.

        :raises Exception: as :meth:`change_machine` does.
        """
        if self._changing is not None:
            self._require(*self._changing)

    def present(self, name, instances):
        """Return the uuids of those of the instances that are here.

        :param name: name of the operation.
        :raises Exception: it cannot be known.
        """
        self._thread.patience_left = None
        instance_states = self._patiently(
            name, f'{len(instances)} instances',
            lambda: self._sources.instance_states(instances))
        return frozenset(
            instance for instance in instances
            if not builds.elsewhere(
                instance_states.get(instance), self._host))

    def _patiently(self, name, instance, ask):
        """Ask, and ask again while there is no answer.

        :param instance: for people to read.
        :raises TakeoverInProgress: a take-over lasts too long.
        :raises Exception: there is no answer for too long.
        """
        warned = False
        while True:
            before = self._clock()
            try:
                return ask()
            except Exception as exc:
                if self._patience_left is None or (
                        self._tireless and not isinstance(exc, NoAnswer)
                        and not self._passing(exc, False)):
                    self._thread.patience_left = self._patience()
                self._thread.patience_left -= self._clock() - before
                if self._patience_left <= 0 or (
                        self._tireless and self._ending.is_set()):
                    raise
                if not warned:
                    warned = True
                    LOG.warning(
                        '%(name)s waits, for up to %(seconds)s s: it is not '
                        'known whether %(instance)s belongs here: '
                        '%(exc)s. If that lasts: is nova-conductor up?',
                        {'name': name, 'instance': instance, 'exc': exc,
                         'seconds': 'any number of' if self._tireless
                         else round(self._patience_left)})
                self._sleep(PAUSE)
                self._thread.patience_left -= PAUSE

    def _require(self, name, instance):
        def ask():
            return self._may_change_machine(instance)

        # A machine that is contested is left alone.
        with contextlib.suppress(TakeoverInProgress):
            if (self._patiently(name, f'instance {instance.uuid}', ask)
                    if self._inside else ask()):
                if (self.building and self._thread.gone
                        and name in builds.DEPLOYING):
                    raise exception.InstanceGone(instance_id=instance.uuid)
                return
        if self._inside:
            raise self._cancelled(_left(name))
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
    def _patience_left(self):
        """Seconds that this thread's operation may still wait; None: all."""
        return getattr(self._thread, 'patience_left', None)

    @property
    def _tireless(self):
        return self._patience_left == math.inf

    @property
    def _again(self):
        return getattr(self._thread, 'again', False)

    @property
    def _inside(self):
        return getattr(self._thread, 'inside', False)

    @property
    def building(self):
        """Whether this thread carries out a build."""
        return getattr(self._thread, 'building', False)

    @property
    def _claim(self):
        """The stage of that build."""
        return self._thread.claim if self.building else BuildStage.NONE

    @property
    def _changing(self):
        """(name, instance) of the change in this thread, or None."""
        return getattr(self._thread, 'changing', None)

    @contextlib.contextmanager
    def _noted(self, uuid):
        """Note an operation on an instance, and its failure."""
        with self._lock:
            self._at_work[uuid] += 1
            self._unfinished.discard(uuid)
        try:
            yield
        except Exception:
            self.note_unfinished(uuid)
            raise
        finally:
            with self._lock:
                self._at_work[uuid] -= 1
                if not self._at_work[uuid]:
                    del self._at_work[uuid]

    def note_unfinished(self, uuid):
        """Note that an operation on an instance may be left unfinished."""
        with self._lock:
            self._unfinished.add(uuid)

    @contextlib.contextmanager
    def _entered(self, patient):
        self._thread.inside = True
        self._thread.patient = patient
        self._thread.cancelled = False
        # As it was: nova clears that of a delete before it is over.
        state = self._thread.state
        self._thread.repeatable = (
            state is not None and takeover.may_be_done_twice(
                state.vm_state, state.task_state))
        try:
            yield
        finally:
            self._thread.inside = False

    def _instance_state(self, instance):
        state = self._sources.instance_states(
            [instance.uuid]).get(instance.uuid)
        if builds.contested(state, self._host):
            raise TakeoverInProgress(
                'another compute service is about to take it over'
            )
        return state

    def _is_elsewhere(self, instance):
        state = self._thread.state = self._instance_state(instance)
        return builds.elsewhere(state, self._host)

    def _is_outdated(self, instance, node):
        state = self._thread.state = self._instance_state(instance)
        self._thread.left_over = builds.left_over(state)

        def allocated():
            return any(self._has_allocated(instance, node, attempt)
                       for attempt in range(ASKED))

        return builds.outdated(state, node, self._host, allocated)

    def _is_begun_elsewhere(self, name, instance, unknown=True):
        """Whether a build has failed because another host has begun it.

        After this host was asked. Then that host has its node, and goes on.

        :param unknown: the result if it cannot be known. A copy of a build
            that ended with an error is kept in any case.
        """
        try:
            return self._patiently(
                name, f'instance {instance.uuid}',
                lambda: self._is_begun_elsewhere_now(instance))
        except Exception as exc:  # noqa: BLE001
            LOG.warning('It cannot be known where instance %(instance)s is, '
                        'whose build has failed: %(exc)s',
                        {'instance': instance.uuid, 'exc': exc})
            return unknown

    def _is_begun_elsewhere_now(self, instance):
        return builds.begun_elsewhere(
            self._sources.instance_states(
                [instance.uuid]).get(instance.uuid),
            self._host, self._claim)

    def _has_moved(self, instance):
        """Whether a build is another host's, or about to be."""
        try:
            state = self._instance_state(instance)
        except TakeoverInProgress:
            return True
        return builds.elsewhere(state, self._host, self._claim)

    def _is_given_up(self, instance):
        """Whether a build has failed for good, as far as is known."""
        with contextlib.suppress(Exception):
            return builds.given_up(self._instance_state(instance))
        return False

    def _has_allocated(self, instance, node, attempt):
        if attempt:
            self._sleep(PAUSE)
        consumers = self._sources.consumers(node)
        if consumers is None:
            raise NoAnswer('placement does not say who has allocated its '
                              'node')
        return instance.uuid in consumers

    def _may_be_elsewhere(self, name, instance, patient=True):
        def ask():
            try:
                state = self._instance_state(instance)
            except TakeoverInProgress:
                # Likely that is why something failed. If nobody takes it over,
                # what is left undone is taken up (engine.servers.recovery).
                return True
            return builds.elsewhere(state, self._host) or (
                self.building
                and builds.begun_elsewhere(
                    state, self._host, self._claim))

        try:
            return (self._patiently(name, f'instance {instance.uuid}', ask)
                    if patient and self._inside else ask())
        except Exception as exc:  # noqa: BLE001
            # What is to be written cannot be written either, but ports and
            # allocations are out of the conductor's hands.
            LOG.warning('It cannot be known where instance %(instance)s is, '
                        'so nothing is cleaned up: %(exc)s',
                        {'instance': instance.uuid, 'exc': exc})
            return True

    def _owner(self, node):
        record = next(iter(self._sources.records([node])), None)
        return record and record.owner


def _left(name):
    return f'{name} is left to the compute service that the instance is on'
