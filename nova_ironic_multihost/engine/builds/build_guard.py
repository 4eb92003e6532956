# SPDX-License-Identifier: Apache-2.0

"""Let a build run only once, on the host that its instance and node are on."""

import contextlib
import itertools
import math

from oslo_log import log as logging

from nova_ironic_multihost.engine.builds import guard
from nova_ironic_multihost.engine.builds.guard import PAUSE
from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import BuildStage

LOG = logging.getLogger(__name__)

#: Times to ask placement for the allocation of a build; it may lag behind.
ASKED = 3


class BuildGuard(guard.OperationGuard):
    """Lets in builds, too; their steps call it from the build's thread."""

    def build(self, name, instance, act, node, otherwise,
              adopt=lambda: False, failed=lambda _: False,
              renew=lambda: None, later=None):
        """Carry out a build, unless it is done or on another host.

        Only this thread knows of it, so it waits until the service stops.

        :param adopt: takes the node and this instance from a dead host;
            returns whether it may have taken anything.
        :param failed: whether a result means that nova frees the node.
        :param renew: undoes an interrupted attempt; called again if it raises.
        :param later: answers for a build that needs its copy: it is carried
            out later, or goes on here. None to raise its error.
        """
        if self._thread.inside:
            return act()
        self._thread.state = None
        self._thread.unsure = False

        def leave():
            state = self._thread.state
            needed = self._thread.unsure or (
                state is not None and builds.in_progress(state, self._host))
            return (later if later is not None and needed else otherwise)()

        def is_refused():
            # adopt() may have taken this very instance.
            if self._is_outdated(instance, node) or (
                    adopt() and self._is_outdated(instance, node)):
                return True
            if self._thread.left_over:
                LOG.info('An interrupted attempt to build instance '
                         '%(instance)s is undone.',
                         {'instance': instance.uuid})
                renew()
            return False

        def act_for_this_host():
            self._thread.building = True
            self._thread.claim = BuildStage.NONE
            self._thread.node = node
            try:
                result = act()
                if not failed(result):
                    return result
                begun = self._is_begun_elsewhere(name, instance)
                if begun is None and later is not None:
                    return later()
                return result if begun is False else otherwise()
            except Exception as exc:
                self.note_unfinished(instance.uuid)
                if self._is_begun_elsewhere(name, instance):
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
            finally:
                self._thread.building = False

        self._thread.patience_left = math.inf
        with self._noted(instance.uuid):
            return self._operate(
                name, instance, act_for_this_host, leave, True, is_refused)

    def claim(self, name, instance, act):
        """Claim the node of a build, unless another host has begun it.

        nova writes the claim without a check, under a lock that other threads
        wait for. So this method does not wait for an answer.

        :raises Cancelled: another host has begun the build.
        """
        if not self.building:
            return act()
        self._thread.claim = BuildStage.BEGUN
        if self._is_begun_elsewhere_now(instance):
            self.leave(name)
        result = act()
        self._thread.claim = BuildStage.HELD
        return result

    def has_node(self):
        """Return whether the build's node has no record of another host.

        nova's tracker still has a node that another host took during a pause.
        """
        node = self._thread.node
        return node is None or self._owner(node) in (None, self._host)

    def give_back(self, name, instance, act, patient=False):
        """Undo :meth:`claim`, as the build failed; see :meth:`clean_up`."""
        def act_and_have_none():
            # Before the call, as its answer may be lost.
            self._thread.claim = BuildStage.RETURNED
            return act()

        return self.clean_up(name, instance, act_and_have_none, patient)

    def note_scheduled(self):
        """Note that nova sends this thread's build to the scheduler."""
        self._thread.claim = BuildStage.SCHEDULED

    def persist(self, name, instance, act, again, asks=False):
        """Write something, and retry while the service does not answer.

        The retries end with the time that an operation may wait. A host that
        took the build over writes the same.

        :param again: replaces ``act`` when an earlier try may have written.
        :param asks: look where the instance is before the first try, too.
        :raises Cancelled: another host has the instance.
        :raises Exception: it may not be written.
        """
        tries = itertools.count()

        def write():
            first = not next(tries)
            if (asks or not first) and self._has_moved(instance):
                self.leave(name)
            return act() if first else again()

        return self._patiently(
            name, f'instance {instance.uuid}', write, writes=True)

    def _is_outdated(self, instance, node):
        state = self._instance_state(instance)
        self._thread.left_over = builds.left_over(state)

        def allocated():
            return any(self._has_allocated(instance, node, attempt)
                       for attempt in range(ASKED))

        return builds.outdated(state, node, self._host, allocated)

    def _is_begun_elsewhere(self, name, instance):
        """Return whether a build has failed as another host has begun it.

        None if nova does not answer. Then its copy has to stay.
        """
        try:
            return self._patiently(
                name, f'instance {instance.uuid}',
                lambda: self._is_begun_elsewhere_now(instance))
        except Exception as exc:  # noqa: BLE001
            LOG.warning('The build of instance %(instance)s has failed, and '
                        'nova does not say on which host it is: %(exc)s. It '
                        'is carried out later if there is a copy of it.',
                        {'instance': instance.uuid, 'exc': exc})
            return None

    def _is_begun_elsewhere_now(self, instance):
        return builds.begun_elsewhere(
            self._cloud.instance_states(
                [instance.uuid]).get(instance.uuid),
            self._host, self._claim)

    def _has_moved(self, instance):
        try:
            state = self._instance_state(instance)
        except guard.TakeoverInProgress:
            return True
        return builds.elsewhere(state, self._host, self._claim)

    def _is_given_up(self, instance):
        with contextlib.suppress(Exception):
            return builds.given_up(self._instance_state(instance))
        return False

    def _has_allocated(self, instance, node, attempt):
        if attempt:
            self._sleep(PAUSE)
        consumers = self._cloud.consumers(node)
        if consumers is None:
            raise guard.NoAnswer(
                'placement does not say who has allocated its node')
        return instance.uuid in consumers
