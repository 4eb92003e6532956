# SPDX-License-Identifier: Apache-2.0

"""Begin builds again that were interrupted before Ironic knew of them.

With a copy, the earlier attempt is undone and the build is requested again.
Without one it ends in ERROR.
"""

from collections.abc import Callable
from collections.abc import Container
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.builds.build_backups import BackupStore
from nova_ironic_multihost.rules.builds import SentBuild
from nova_ironic_multihost.rules import forwarding
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)

#: The most seconds that count between two sights of a build that waits:
#: nothing may have answered in a longer time.
GAP = 60

#: Seconds for which the sights of a build are kept.
FORGOTTEN = 3600


class BuildRetry:
    """Decides on interrupted builds; each thread asks about other builds."""

    def __init__(self, backups: BackupStore, attempts: Attempts,
                 here: Callable[[str], bool],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._backups = backups
        self._attempts = attempts
        self.here = here
        self._clock = clock
        self._lock = threading.Lock()
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
        with self._lock:
            self._seen = {one: times for one, times in self._seen.items()
                          if now - times[1] < FORGOTTEN}
            before, last = self._seen.get(build, (0, now))
            waited = before + min(now - last, GAP)
            self._seen[build] = waited, now
        return waited

    def wait_anew(self, instances: Container[str]) -> None:
        """Let the builds of instances wait anew: other hosts had them."""
        self._backups.forget(instances)
        with self._lock:
            self._seen = {build: times for build, times in self._seen.items()
                          if build.instance not in instances}

    def undo(self, instance: Instance) -> None:
        """Undo a build to begin it again; repeat this after an Exception."""
        build = _build(instance)
        copy = self._backups.copy(build)
        if copy is None:
            raise LookupError('its copy has just gone back to RabbitMQ')
        with self._backups.repeating(build):
            self._attempts.undo(instance, copy)
        with self._lock:
            self._seen.pop(build, None)
        LOG.info('The build of instance %(uuid)s was interrupted before '
                 'Ironic knew of it; it begins again.',
                 {'uuid': instance.uuid})


def _build(instance: Instance) -> SentBuild:
    return SentBuild(instance.uuid, instance.node or '')
