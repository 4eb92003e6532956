# SPDX-License-Identifier: Apache-2.0

"""Give up builds that were sent to a dead host and are found nowhere.

A build is lost when its host dies between reading the request and claiming the
node: no database or queue has the request. It ends in ERROR, or its node would
wait for ever. :mod:`.in_flight` does this for live hosts.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Set
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Builds
from nova_ironic_multihost.engine.base.ports import Sources
from nova_ironic_multihost.engine.servers.stuck_instances import attempt
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.lost_builds import SentBuild
from nova_ironic_multihost.rules.peers import HostKey

LOG = logging.getLogger(__name__)


class DeadHostBuilds:
    """Gives up lost builds. One thread uses it."""

    def __init__(self, builds: Builds, sources: Sources,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._builds = builds
        self._sources = sources
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
        record = next(iter(self._sources.records([node])), None)
        return record.owner if record is not None else None
