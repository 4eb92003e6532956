# SPDX-License-Identifier: Apache-2.0

"""Finds stuck instances of this host, from time to time.

Instances that another host was about to take and has not, or with a host in
another spelling; and instances with an operation that was given up in an
outage, or a delete that never came. The latter get the mark of a take-over, so
that they are finished (:mod:`.engine.servers.recovery`).

An outage may last, so no clock says when an operation is given up. It is when
nova has shown the same in two sweeps in a row, and a message of this host to
itself has come back then: no earlier message waits in its queue.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.engine.base.ports import Operations
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: (uuid, vm_state, task_state) of an instance.
Key = tuple[str, str | None, str | None]

#: Sweeps in a row in which an instance must be in the same state, with no
#: thread at work on it, until it is recovered; and those for a rebuild that
#: this process has not seen: the conductor may still have it.
UNATTENDED, ON_ITS_WAY = 2, 30


def attempt(act: Callable[..., object], uuid: str, *args: object) -> None:
    """Do something for one instance; its failure delays no other."""
    try:
        act(uuid, *args)
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Instance %(uuid)s has to wait: %(exc)s',
                  {'uuid': uuid, 'exc': exc})


def before(instances: Instances, instance: Instance) -> str | None:
    """Return the interrupted task state of an instance.

    :param instance: as it was read, with a mark or not.
    :raises Exception: nova does not say.
    """
    return evacuation.interrupted(
        instance.task_state, lambda: instances.asked_last(instance.uuid))


class StuckInstances:
    """Finds stuck instances of this host. One thread uses it.

    :param host: this host.
    :param instances: nova's instances.
    :param operations: nova's operations in this process.
    :param receive: sends a message to this host and returns when it has
        arrived, after all that waited in its queue.
    :param seen_to: returns the uuids of instances that recovery works on.
    :param here: returns whether the build of an instance is in this process,
        waiting or not.
    """

    def __init__(self, host: str, instances: Instances,
                 operations: Operations, receive: Callable[[], object],
                 seen_to: Callable[[], Set[str]],
                 here: Callable[[str], bool]) -> None:
        self._name = host
        self._host = host_key(host)
        self._instances = instances
        self._operations = operations
        self._receive = receive
        self._seen_to = seen_to
        self._here = here
        self._foreign: frozenset[tuple[str, str]] = frozenset()
        self._last: str | None = None
        self._been_round = False
        #: Instances with which something may be wrong, though the gate has
        #: let in no operation on them. Any thread adds to it.
        self._suspects: set[str] = set()
        #: nova has answered in the sweep before.
        self._answered = False
        #: What nobody is at work on -> sweeps in which it was seen.
        self._unattended: Mapping[Key, int] = {}

    def suspect(self, uuid: str) -> None:
        """Check soon whether a thread works on an instance."""
        self._suspects.add(uuid)

    def interrupt(self) -> None:
        """Begin anew: nova does not answer, or this host is fenced."""
        self._answered = False
        self._unattended = {}

    def once(self, thorough: bool) -> list[str]:
        """Look once.

        :param thorough: look without a reason, too.
        :returns: uuids of the instances that are marked now.
        :raises Exception: nova does not say which instances there are.
        """
        if thorough:
            self._keep()
        if not (thorough or not self._answered or self._unattended
                or self._suspects or self._operations.unfinished):
            return []
        taken_up = self._attend()
        self._answered = True
        return taken_up

    def _keep(self) -> None:
        """Keep instances of this host that others were about to take.

        A live host removes its own marks. Any other may not, so this host
        looks at all its instances, some at a time.
        """
        # Whoever had just written it may have been about to write the host.
        for uuid, mark in sorted(self._foreign):
            attempt(self._keep_one, uuid, mark)
        self._foreign = frozenset()
        for some in self._some():
            self._foreign |= takeover.sort_marked(self._host, some).foreign
            for uuid, state in some.items():
                if state.host != self._name:
                    attempt(self._instances.spell_host, uuid)

    def _some(self) -> Iterator[Mapping[str, InstanceState]]:
        """Read some instances; the first time all of them.

        nova read only a few of them when it started
        (:mod:`.adapters.patches.handlers`).
        """
        some = self._instances.of_host(self._name, self._last)
        if not some and self._last is not None:
            some = self._instances.of_host(self._name, None)
        while some:
            self._last = next(reversed(list(some)))
            yield some
            if self._been_round:
                return
            some = self._instances.of_host(self._name, self._last)
        self._been_round = True
        self._last = None

    def _keep_one(self, uuid: str, mark: str) -> None:
        """Remove another host's mark from an instance of this host.

        That host's take-over then fails. The interrupted operation goes on, or
        is found stuck; but work that no task state shows would be forgotten.
        """
        instance = self._instances.read(uuid)
        if instance is not None and instance.task_state == mark:
            self._instances.set_states(
                instance, instance.vm_state,
                before(self._instances, instance)
                or takeover.taken(mark, self._host))

    def _attend(self) -> list[str]:
        """Take up operations that no thread works on any more.

        A request that no operation has left may still be on its way; so only
        operations that may be done twice are taken up, or that wait in no
        queue.

        :returns: uuids of the instances that are marked now.
        """
        unfinished = self._operations.unfinished
        suspects = frozenset(self._suspects)
        busy = self._instances.busy(self._name)
        self._operations.forget(unfinished - busy.keys())
        self._suspects -= suspects - busy.keys()
        attended = self._seen_to() | self._operations.at_work
        keys = [(uuid, state.vm_state, state.task_state)
                for uuid, state in sorted(busy.items())
                if uuid not in attended and (
                    uuid in unfinished | suspects
                    or takeover.may_be_done_twice(
                        state.vm_state, state.task_state)
                    or not self._here(uuid) and takeover.has_begun(
                        state.vm_state, state.task_state))]
        self._unattended = {
            key: self._unattended.get(key, 0) + 1 for key in keys}
        ripe = [(uuid, vm_state, task_state) for (uuid, vm_state, task_state),
                sweeps in self._unattended.items() if sweeps >= (
                    ON_ITS_WAY if uuid not in unfinished
                    and takeover.may_wait(vm_state, task_state)
                    else UNATTENDED)]
        taken_up: list[str] = []
        if ripe and self._have_all_come():
            for key in ripe:
                attempt(self._take_up, *key, taken_up)
        return taken_up

    def _have_all_come(self) -> bool:
        """Whether all messages have arrived that waited for this host."""
        try:
            self._receive()
        except Exception as exc:  # noqa: BLE001
            LOG.debug('Messages may still wait for this compute service: %s',
                      exc)
            return False
        return True

    def _take_up(self, uuid: str, vm_state: str | None,
                 task_state: str | None, taken_up: list[str]) -> None:
        instance = self._instances.read(uuid)
        if (instance is not None
                and (instance.vm_state, instance.task_state)
                == (vm_state, task_state)
                and host_key(instance.host or '') == self._host
                and uuid not in self._operations.at_work
                and self._instances.set_states(
                    instance, instance.vm_state,
                    takeover.taken(task_state, self._host))):
            taken_up.append(uuid)
            LOG.warning('Instance %(uuid)s is %(state)s and nobody is at '
                        'work on it: that is finished now.', {
                            'uuid': uuid, 'state': task_state or (
                                'half deleted' if vm_state == 'deleted'
                                else vm_state)})
