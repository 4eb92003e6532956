# SPDX-License-Identifier: Apache-2.0

"""End builds that were sent to this host and were lost on the way.

nova does that once, before the service listens, and so cannot tell a lost
build from one in the queue
(ComputeManager._error_out_instances_whose_build_was_interrupted). Here the
service calls itself through its own queue: with the answer, all older requests
have come.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.ports import Builds
from nova_ironic_multihost.rules import builds as rules
from nova_ironic_multihost.rules.builds import SentBuild

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
        self._lock = threading.Lock()
        self._here: collections.Counter[str] = collections.Counter()
        # Only the timer uses these.
        self._own_nodes: Mapping[str, float] = {}
        self._noted_before = False
        self._missing: Mapping[SentBuild, rules.Missing] = {}

    def begin(self, instance: str) -> None:
        """Note that a build has come; it runs or waits for its turn."""
        with self._lock:
            self._here[instance] += 1

    def end(self, instance: str) -> None:
        """Note the end of a build; one that nova still lists was given up."""
        with self._lock:
            self._here[instance] -= 1
            if self._here[instance] <= 0:
                del self._here[instance]

    def here(self, instance: str) -> bool:
        """Return whether a build has come and has not ended."""
        with self._lock:
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
        mine = {record.node for record in self._auditor.sources.records(
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
