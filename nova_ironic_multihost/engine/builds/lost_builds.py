# SPDX-License-Identifier: Apache-2.0

"""Begin interrupted builds again, and end those that were lost on the way.

nova ends lost builds before the service listens, and takes those in the queue
for lost (ComputeManager._error_out_instances_whose_build_was_interrupted).
Here the service calls itself through its queue, after all older requests.
"""

from collections import abc
import contextlib

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.base.ports import Builds
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.builds.build_backups import BackupStore
from nova_ironic_multihost.engine.builds.queue_forwarder import QueueForwarder
from nova_ironic_multihost.engine.servers.stuck_instances import attempt
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)


class InFlightBuilds:
    """Knows which builds are here, and ends those that are found nowhere.

    A lost build ends in ERROR, or its node would wait for ever. Threads of
    nova and a timer use this.

    :param copied: whether this host holds a copy of a build.
    :param forwarder: reads the queues of dead hosts.
    """

    #: Turns, half an hour: the request may be with the old owner of the node,
    #: and RabbitMQ requeues what a process had taken.
    TURNS = 60

    def __init__(self, builds: Builds, auditor: auditors.Auditor,
                 copied: abc.Callable[[SentBuild], bool],
                 forwarder: QueueForwarder) -> None:
        self._copied = copied
        self._builds = builds
        self._auditor = auditor
        self._forwarder = forwarder
        #: The instance of each build that is here, twice if it came twice.
        self._here: list[str] = []
        #: Build -> turns that did not find it; only the timer uses this.
        self._missing: abc.Mapping[SentBuild, int] = {}

    def begin(self, instance: str) -> None:
        """Note that a build has come; it runs or waits for its turn."""
        self._here.append(instance)

    def end(self, instance: str) -> None:
        """Note the end of a build; one that nova still lists was given up."""
        with contextlib.suppress(ValueError):
            self._here.remove(instance)

    def here(self, instance: str) -> bool:
        """Return whether a build has come and has not ended."""
        return instance in self._here

    def once(self) -> None:
        """End the lost builds; nothing before the first audit.

        :raises Exception: nova or this host did not answer; no turn counts.
        """
        mine, last = self._auditor.recorded, self._auditor.last
        if mine is None or last is None:
            return
        builds = self._builds.unclaimed()
        owners = dict.fromkeys(mine, last.view.host)
        searched = self._forwarder.searched
        if searched:
            owners |= self._owners({build.node for build in builds} - mine)
        looked_for = {build for build in builds if build.node in mine
                      or owners.get(build.node) in searched}
        if not all(map(self._is_found, looked_for)):
            self._builds.receive()
        self._missing = {
            build: self._missing.get(build, 0) + (build in looked_for)
            for build in builds if not self._is_found(build)}
        for build, turns in self._missing.items():
            if turns >= self.TURNS and build in looked_for:
                attempt(self._end, build.instance, build, owners[build.node])

    def _owners(self, nodes: abc.Set[str]) -> dict[str, HostKey]:
        return {record.node: record.owner for record
                in self._auditor.cloud.records(sorted(nodes))
                if not record.second} if nodes else {}

    def _is_found(self, build: SentBuild) -> bool:
        return (self.here(build.instance) or self._copied(build)
                or self._forwarder.holds(build.instance))

    def _end(self, uuid: str, build: SentBuild, owner: HostKey) -> None:
        """End a build, unless it comes or its node moves meanwhile."""
        if self._builds.give_up(
            build,
            f'Its build was lost on the way to compute service {owner}, or '
            'could not be begun there: delete the server and build it anew',
            lambda: self._owners({build.node}).get(build.node) == owner
                    and not self._is_found(build),
        ):
            LOG.warning(
                'The build of instance %(uuid)s never came to compute service '
                '%(host)s, or could not be begun, and is in ERROR now. Delete '
                'it and build it anew. If that service was not killed: was '
                'RabbitMQ started anew, or did nova-conductor or placement '
                'not answer?', {'uuid': uuid, 'host': owner})


class BuildRetry:
    """Decides on builds that were interrupted before Ironic knew of them.

    With a copy, the earlier attempt is undone and the build is requested
    again. Without one it ends in ERROR. Each thread asks about other builds.
    """

    def __init__(self, backups: BackupStore, attempts: Attempts,
                 here: abc.Callable[[str], bool]) -> None:
        self._backups = backups
        self._attempts = attempts
        self.here = here
        #: Uuid -> how often the build was seen without a thread.
        self._looks: dict[str, int] = {}

    def step(self, instance: Instance, provision_state: str | None) -> Step:
        """Return the next step for a build that no thread works on.

        :raises Exception: nova does not answer.
        """
        if not self._backups.readable:
            return Step.FAIL
        if self.here(instance.uuid):
            # Soon over: the guard refuses it while the instance is here.
            return Step.AWAIT
        # An outage has no known length, so looks count and no seconds.
        looks = self._looks[instance.uuid] = 1 + self._looks.get(
            instance.uuid, 0)
        step = forwarding.retry_step(
            provision_state, looks,
            self._backups.copy(_build(instance)) is not None,
            self._attempts.count(instance.uuid))
        if step is Step.REPEAT and not self._attempts.repeatable(instance):
            return Step.FAIL
        return step

    def wait_anew(self, instances: abc.Iterable[str]) -> None:
        """Let the builds of instances wait anew: other hosts had them."""
        for uuid in instances:
            self._looks.pop(uuid, None)

    def undo(self, instance: Instance) -> None:
        """Undo a build to begin it again; repeat this after an Exception."""
        build = _build(instance)
        copy = self._backups.copy(build)
        if copy is None:
            raise LookupError('its copy has just gone back to RabbitMQ')
        self._backups.repeat(build)
        self._attempts.undo(instance, copy)
        self._looks.pop(instance.uuid, None)
        LOG.info('The build of instance %(uuid)s was interrupted before '
                 'Ironic knew of it; it begins again.',
                 {'uuid': instance.uuid})


def _build(instance: Instance) -> SentBuild:
    return SentBuild(instance.uuid, instance.node or '')
