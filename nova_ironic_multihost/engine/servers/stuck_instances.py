# SPDX-License-Identifier: Apache-2.0

"""Find instances of this host that no thread works on any more.

Some carry the mark of another host that did not take them, or another spelling
of this host's name. Others had an operation that was given up in an outage, or
a lost delete request. Marked as taken over, they are left to :mod:`.recovery`.

An outage has no known length, so no clock decides. nova must show the same
state in two sweeps in a row. Then a message of this host to itself must come
back, so that no older message is in the queue.
"""

from collections import abc

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Evacuations
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.engine.base.ports import Operations
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: The uuid, vm_state and task_state of an instance.
Key = tuple[str, str | None, str | None]

#: Sweeps in a row that must find the same state and no thread; the second is
#: for a rebuild: the conductor may have it.
UNATTENDED, ON_ITS_WAY = 2, 30


def attempt(act: abc.Callable[..., object], uuid: str, *args: object) -> None:
    """Do something for one instance; log an error at DEBUG."""
    try:
        act(uuid, *args)
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Instance %(uuid)s has to wait: %(exc)s',
                  {'uuid': uuid, 'exc': exc})


def before(instances: Instances, instance: Instance) -> str | None:
    """Return the task state from before a mark or an evacuation; asks nova."""
    return evacuation.interrupted(
        instance.task_state, lambda: instances.asked_last(instance.uuid))


class StuckInstances:
    """Looks after the instances of this host. One thread uses it.

    :param receive: sends a message to this host and waits until it comes,
        after all older messages in its queue.
    :param seen_to: returns the uuids of instances that have a worker.
    :param here: whether the build of an instance is here, by its uuid.
    """

    def __init__(self, host: str, instances: Instances,
                 operations: Operations, receive: abc.Callable[[], object],
                 seen_to: abc.Callable[[], abc.Set[str]],
                 here: abc.Callable[[str], bool]) -> None:
        self._name = host
        self._host = host_key(host)
        self._instances = instances
        self._operations = operations
        self._receive = receive
        self._seen_to = seen_to
        self._here = here
        #: (uuid, mark) that the last round found.
        self._foreign_marks: frozenset[tuple[str, str]] = frozenset()
        #: The last uuid of the last batch.
        self._last_uuid: str | None = None
        #: Instances without a thread -> the sweeps that have found them.
        self._unattended: abc.Mapping[Key, int] = {}

    def interrupt(self) -> None:
        """Count from zero: nova does not answer, or this host is fenced."""
        self._unattended = {}

    def check_batch(self) -> None:
        """Remove the marks of others from some instances; spell the host."""
        # One batch later: the other host may have been about to take it then.
        for uuid, mark in sorted(self._foreign_marks):
            attempt(self._remove_foreign_mark, uuid, mark)
        self._foreign_marks = frozenset()
        batch = (self._instances.of_host(self._name, self._last_uuid)
                 or self._instances.of_host(self._name, None))
        self._last_uuid = next(reversed(list(batch)), None)
        self._foreign_marks = takeover.sort_marked(self._host, batch).foreign
        for uuid, state in batch.items():
            if state.host != self._name:
                attempt(self._instances.spell_host, uuid)

    def _remove_foreign_mark(self, uuid: str, mark: str) -> None:
        """Take the mark of another host off an instance of this host.

        The takeover of that host fails then, and the operation goes on.
        Without a task state that shows it, a mark of this host keeps it.
        """
        instance = self._instances.read(uuid)
        if instance is not None and instance.task_state == mark:
            self._instances.set_states(
                instance, instance.vm_state,
                before(self._instances, instance)
                or takeover.taken(mark, self._host))

    def mark_unattended(self, busy: abc.Mapping[str, InstanceState]
                        ) -> list[str]:
        """Mark the busy instances that no thread works on; return them.

        If this process has not seen the operation, its request may still come.
        So it counts only if it may be done twice or has begun.
        """
        unfinished = self._operations.unfinished
        attended = self._seen_to() | self._operations.at_work
        keys = [(uuid, state.vm_state, state.task_state)
                for uuid, state in sorted(busy.items())
                if uuid not in attended and (
                    uuid in unfinished
                    or takeover.may_be_done_twice(
                        state.vm_state, state.task_state)
                    or not self._here(uuid) and takeover.has_begun(
                        state.vm_state, state.task_state))]
        self._unattended = {
            key: self._unattended.get(key, 0) + 1 for key in keys}
        due = [(uuid, vm_state, task_state) for (uuid, vm_state, task_state),
               sweeps in self._unattended.items() if sweeps >= (
                    ON_ITS_WAY if takeover.may_wait(vm_state, task_state)
                    else UNATTENDED)]
        marked_now: list[str] = []
        try:
            if due:
                self._receive()
        except Exception as exc:  # noqa: BLE001
            # The counts stay, so that the next sweep asks again.
            LOG.debug('Requests may still wait for this compute service: %s',
                      exc)
            return []
        for key in due:
            attempt(self._mark, *key, marked_now)
        return marked_now

    def _mark(self, uuid: str, vm_state: str | None,
              task_state: str | None, marked_now: list[str]) -> None:
        instance = self._instances.read(uuid)
        if (instance is not None
                and (instance.vm_state, instance.task_state)
                == (vm_state, task_state)
                and host_key(instance.host or '') == self._host
                and uuid not in self._operations.at_work
                and self._instances.set_states(
                    instance, instance.vm_state,
                    takeover.taken(task_state, self._host))):
            marked_now.append(uuid)
            LOG.warning('Instance %(uuid)s is %(state)s, and no thread works '
                        'on it: this host finishes its operation.', {
                            'uuid': uuid, 'state': task_state or (
                                'half deleted' if vm_state == 'deleted'
                                else vm_state)})


class EvacuationRefusals:
    """Refuses nova's evacuations. Several threads use it.

    The compute service that gets an evacuation refuses it at once. One that no
    host has refused is lost, or waits for a dead host or a service that does
    not answer; meanwhile the instance is not taken over. So each compute
    service checks for them (:func:`.evacuation.refuser`). Two checks must see
    one, as its request may still be on its way. A second refusal does no harm.
    """

    def __init__(self, host: str, evacuations: Evacuations,
                 preferences: abc.Callable[[], ring.Preferences | None]
                ) -> None:
        self._host = host_key(host)
        self._evacuations = evacuations
        self._preferences = preferences
        #: Unrefused evacuations of the last check; only the sweep uses it.
        self._seen: frozenset[str] = frozenset()
        #: Instances of failed refusals, of which the log tells already.
        self._failed: set[str] = set()

    def refuse(self, uuid: str) -> None:
        """Refuse the evacuations of an instance; a check finds failed ones."""
        try:
            refused = self._evacuations.refuse(uuid)
        except Exception as exc:  # noqa: BLE001
            if uuid not in self._failed:
                LOG.warning(
                    'The evacuation of instance %(uuid)s could not be '
                    'refused: %(exc)s. It is tried again every minute; until '
                    'then the instance is not taken over. If that lasts: are '
                    'nova-conductor and placement up?',
                    {'uuid': uuid, 'exc': exc})
            self._failed.add(uuid)
            return
        self._failed.discard(uuid)
        if refused:
            LOG.warning('An evacuation of instance %(uuid)s is refused. '
                        '%(reason)s', {'uuid': uuid,
                                       'reason': evacuation.REFUSED})

    def sweep(self, view: peers.View | None) -> None:
        """Refuse the evacuations that no host has refused.

        :raises Exception: nova does not answer.
        """
        if view is None or view.fenced(self._host):
            self._seen = frozenset()
            return
        preferences = self._preferences()
        found = self._evacuations.found()
        seen, self._seen = self._seen, frozenset().union(
            *(one.unrefused for one in found.values()))
        self._failed &= found.keys()
        for uuid, one in sorted(found.items()):
            if (not one.unrefused or one.unrefused & seen) and (
                    self._host == evacuation.refuser(
                        one.record.owner, one.record.node, view, preferences)):
                self.refuse(uuid)
