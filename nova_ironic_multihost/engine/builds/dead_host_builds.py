# SPDX-License-Identifier: Apache-2.0

"""Builds that were sent to a dead host and are found nowhere.

What a compute service had taken from its queue and had not claimed a node
for is lost with it: neither nova's database nor any queue has what is to be
built. Such a build would stay as it is for ever, and its node would wait for
it. It ends in ERROR, with a fault that says why. Those of live hosts end in
:mod:`.in_flight`.
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


class LostBuilds:
    """Gives up builds that are nowhere. One thread uses it.

    :param builds: what nova has of builds.
    :param sources: asked for ``records``.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, builds: Builds, sources: Sources,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._builds = builds
        self._sources = sources
        self._clock = clock
        self._since: Mapping[SentBuild, float] = {}

    def once(self, read: Mapping[HostKey, float], found: Set[str]
             ) -> Set[str]:
        """Give up what has waited too long.

        :param read: host -> since when its queue has been read to its end
            again and again.
        :param found: uuids of the builds whose message is held or was handed
            on.
        :returns: uuids of all builds that wait.
        :raises Exception: nova does not say what there is; time in which it
            does not is not counted.
        """
        before, self._since = self._since, {}
        if not read:
            return frozenset()
        waiting = self._builds.unclaimed()
        now = self._clock()
        self._since = {build: before.get(build, now) for build in waiting}
        for build in forwarding.overdue(self._since, found, now):
            attempt(self._judge, build.instance, build.node, frozenset(
                host for host, since in read.items()
                if now - since >= forwarding.GRACE))
        return frozenset(build.instance for build in waiting)

    def _judge(self, uuid: str, node: str, read: Set[HostKey]) -> None:
        """Give up a build if its node is one of a host that was read."""
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
                'is in ERROR: that is dead, and nothing is left of the build '
                'for at least %(seconds)d s. Its user has to ask for it '
                'again.', {'uuid': uuid, 'host': host,
                           'seconds': forwarding.GRACE})

    def _owner(self, node: str) -> HostKey | None:
        """Return whose a node is; who takes it for a build, begins that."""
        record = next(iter(self._sources.records([node])), None)
        return record.owner if record is not None else None
