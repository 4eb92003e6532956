# SPDX-License-Identifier: Apache-2.0

"""Begin interrupted builds again, and end those that were lost on the way.

nova ends lost builds once, before the service listens, and so cannot tell a
lost build from one in the queue
(ComputeManager._error_out_instances_whose_build_was_interrupted). Here the
service calls itself through its own queue: with the answer, all older requests
have come.
"""

from collections.abc import Callable
from collections.abc import Container
from collections.abc import Mapping
from collections.abc import Set
import contextlib
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.base.ports import Builds
from nova_ironic_multihost.engine.base.ports import Cloud
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.builds.build_backups import BackupStore
from nova_ironic_multihost.engine.servers.stuck_instances import attempt
from nova_ironic_multihost.rules import builds as rules
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.peers import HostKey
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)


class InFlightBuilds:
    """Knows which builds are here. Threads of nova and a timer use it.

    :param may_come: see :meth:`.build_backups.BackupStore.may_come`.
    """

    def __init__(self, builds: Builds, auditor: auditors.Auditor,
                 may_come: Callable[[SentBuild], bool],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._may_come = may_come
        self._builds = builds
        self._auditor = auditor
        self._clock = clock
        #: The instance of each build that is here, twice if it came twice.
        self._here: list[str] = []
        # Only the timer uses these.
        self._own_nodes: Mapping[str, float] = {}
        self._noted_before = False
        self._missing: Mapping[SentBuild, rules.Missing] = {}

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

        :raises Exception: no answer of nova or this host; waits begin anew.
        """
        recorded = self._auditor.recorded
        if recorded is None:
            return
        before, self._missing = self._missing, {}
        now = self._clock()
        self._note_nodes(recorded, now)
        builds = self._builds.unclaimed()
        if self._absent(builds):
            self._builds.receive()
        self._missing = rules.missing_since(
            before, self._absent(builds), self._own_nodes, now)
        lost = self._still_mine(rules.lost(self._missing, now))
        ended = [build for build in sorted(
            lost, key=lambda build: build.instance) if self._end(build)]
        if ended:
            LOG.warning(
                '%(count)d builds never came to this compute service, or '
                'could not be begun, and are in ERROR now. Delete them and '
                'build them anew. If it was not killed just now: was RabbitMQ '
                'started anew, or did nova-conductor or placement not '
                'answer?', {'count': len(ended)})

    def _note_nodes(self, nodes: Set[str], now: float) -> None:
        since = now if self._noted_before else float('-inf')
        self._own_nodes = {
            node: self._own_nodes.get(node, since) for node in nodes}
        self._noted_before = True

    def _still_mine(self, lost: Set[SentBuild]) -> list[SentBuild]:
        """Return those builds with a node that is this host's now.

        If another host has taken the node since the audit, it has the build.
        """
        audit = self._auditor.last
        if audit is None or not lost:
            return []
        mine = {record.node for record in self._auditor.cloud.records(
            sorted({build.node for build in lost}))
            if record.owner == audit.view.host and not record.second}
        return [build for build in lost if build.node in mine]

    def _absent(self, builds: Set[SentBuild]) -> list[SentBuild]:
        return [build for build in builds if build.node in self._own_nodes
                and not self._awaited(build)]

    def _awaited(self, build: SentBuild) -> bool:
        return self.here(build.instance) or self._may_come(build)

    def _end(self, build: SentBuild) -> bool:
        """End a build; return whether it was still lost."""
        try:
            return self._builds.give_up(
                build, 'Its build was lost on the way to the compute service '
                'that has its node, or could not be begun there: delete the '
                'server and build it anew',
                lambda: not self._awaited(build))
        except Exception as exc:  # noqa: BLE001
            LOG.debug('The build of instance %(uuid)s is not ended yet: '
                      '%(exc)s', {'uuid': build.instance, 'exc': exc})
            return False


#: The most seconds that count between two sights of a build that waits:
#: nothing may have answered in a longer time.
GAP = 60

#: Seconds for which the sights of a build are kept.
FORGOTTEN = 3600


class BuildRetry:
    """Decides on builds that were interrupted before Ironic knew of them.

    With a copy, the earlier attempt is undone and the build is requested
    again. Without one it ends in ERROR. Each thread asks about other builds.
    """

    def __init__(self, backups: BackupStore, attempts: Attempts,
                 here: Callable[[str], bool],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._backups = backups
        self._attempts = attempts
        self.here = here
        self._clock = clock
        #: Build -> (seconds that it has waited, last seen).
        self._seen: dict[SentBuild, tuple[float, float]] = {}

    def step(self, instance: Instance, provision_state: str | None) -> Step:
        """Return the next step for a build that no thread works on.

        :raises Exception: nova does not answer.
        """
        if not self._backups.readable:
            return Step.FAIL
        if self.here(instance.uuid):
            # Soon over: the guard refuses it while the instance is here.
            return Step.AWAIT
        build = _build(instance)
        step = forwarding.retry_step(
            provision_state, self._waited(build),
            self._backups.copy(build) is not None, self._backups.all_seen,
            self._attempts.count(instance.uuid))
        if step is Step.REPEAT and not self._attempts.repeatable(instance):
            return Step.FAIL
        return step

    def _waited(self, build: SentBuild) -> float:
        """Return the seconds since a build was first seen, without gaps."""
        now = self._clock()
        for one, (_, seen) in list(self._seen.items()):
            if now - seen >= FORGOTTEN:
                self._seen.pop(one, None)
        before, last = self._seen.get(build, (0, now))
        waited = before + min(now - last, GAP)
        self._seen[build] = waited, now
        return waited

    def wait_anew(self, instances: Container[str]) -> None:
        """Let the builds of instances wait anew: other hosts had them."""
        self._backups.forget(instances)
        for build in list(self._seen):
            if build.instance in instances:
                self._seen.pop(build, None)

    def undo(self, instance: Instance) -> None:
        """Undo a build to begin it again; repeat this after an Exception."""
        build = _build(instance)
        copy = self._backups.copy(build)
        if copy is None:
            raise LookupError('its copy has just gone back to RabbitMQ')
        with self._backups.repeating(build):
            self._attempts.undo(instance, copy)
        self._seen.pop(build, None)
        LOG.info('The build of instance %(uuid)s was interrupted before '
                 'Ironic knew of it; it begins again.',
                 {'uuid': instance.uuid})


def _build(instance: Instance) -> SentBuild:
    return SentBuild(instance.uuid, instance.node or '')


class DeadHostBuilds:
    """Gives up builds that were sent to a dead host and are found nowhere.

    A build is lost when its host dies between reading the request and claiming
    the node. It ends in ERROR, or its node would wait for ever.
    :class:`InFlightBuilds` does this for live hosts. One thread uses it.
    """

    def __init__(self, builds: Builds, cloud: Cloud,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._builds = builds
        self._cloud = cloud
        self._clock = clock
        self._since: Mapping[SentBuild, float] = {}

    def once(self, read: Mapping[HostKey, float], found: Set[str],
             begun: float) -> Set[str]:
        """Give up builds that have waited too long.

        :param read: host -> since when its queues are read to the end.
        :param found: uuids of builds with a request that is held or handed on.
        :param begun: when the queues began to be read this time.
        :returns: uuids of all builds that wait.
        :raises Exception: nova does not answer; that time is not counted.
        """
        before, self._since = self._since, {}
        if not read:
            return frozenset()
        waiting = self._builds.unclaimed()
        now = self._clock()
        self._since = {build: before.get(build, now) for build in waiting}
        for build in forwarding.overdue(self._since, found, begun):
            attempt(self._give_up, build.instance, build.node, frozenset(
                host for host, since in read.items()
                if begun - since >= forwarding.GRACE))
        return frozenset(build.instance for build in waiting)

    def interrupt(self) -> None:
        """Count no time before this: nova did not answer."""
        self._since = {}

    def _give_up(self, uuid: str, node: str, read: Set[HostKey]) -> None:
        """Give up a build if its node is of a host that was read."""
        host = self._owner(node)
        if host in read and self._builds.give_up(
            SentBuild(uuid, node),
            f'Compute service {host} died before it '
            'had begun this build, and what it was asked for is lost: '
            'delete the server and build it anew',
            lambda: self._owner(node) == host,
        ):
            LOG.warning(
                'Build %(uuid)s, which was sent to compute service %(host)s, '
                'is in ERROR: that host is dead, and no queue has had the '
                'build for at least %(seconds)d s. Its user has to ask for it '
                'again.', {'uuid': uuid, 'host': host,
                           'seconds': forwarding.GRACE})

    def _owner(self, node: str) -> HostKey | None:
        record = next(iter(self._cloud.records([node])), None)
        return record.owner if record is not None else None
