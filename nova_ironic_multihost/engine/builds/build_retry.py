# SPDX-License-Identifier: Apache-2.0

"""Begins builds again of which Ironic was never told.

Whoever was at such a build has ended. If there is a copy of it, what was done
for it is undone, and it is asked for again; if not, it ends in ERROR.
"""

from collections.abc import Callable
import threading
import time

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Attempts
from nova_ironic_multihost.engine.base.ports import Instance
from nova_ironic_multihost.engine.builds.build_backups import BackupStore
from nova_ironic_multihost.rules import backup_copies
from nova_ironic_multihost.rules.lost_builds import SentBuild
from nova_ironic_multihost.rules.takeover import Step

LOG = logging.getLogger(__name__)

#: Seconds after which it is forgotten that a build was seen.
FORGOTTEN = 3600


class BuildRetry:
    """Says what becomes of them. Several threads use it, for others each.

    :param backups: has the copies.
    :param attempts: what was begun.
    :param here: says of the uuid of an instance whether its build is here, if
        only to wait for its turn.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, backups: BackupStore, attempts: Attempts,
                 here: Callable[[str], bool],
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._backups = backups
        self._attempts = attempts
        self.here = here
        self._clock = clock
        self._lock = threading.Lock()
        #: Build -> when it was seen for the first time, and the last.
        self._seen: dict[SentBuild, tuple[float, float]] = {}

    def step(self, instance: Instance, provision_state: str | None) -> Step:
        """Say what is to be done about one.

        :param instance: on this host, building; nobody is at it.
        :param provision_state: of its node, None if that is not reserved for
            it.
        :raises Exception: that is not known.
        """
        if not self._backups.readable:
            return Step.FAIL
        if self.here(instance.uuid):
            # It is soon over: the gate refuses it while the instance is here.
            return Step.AWAIT
        build = _build(instance)
        # An earlier attempt here may have ended; its copy was dropped then.
        self._backups.repeat(build)
        step = backup_copies.step(
            provision_state, self._waited(build),
            self._backups.copy(build) is not None, self._backups.all_seen,
            self._attempts.count(instance.uuid))
        if step is Step.REPEAT and not self._attempts.repeatable(instance):
            return Step.FAIL
        return step

    def _waited(self, build: SentBuild) -> float:
        """Return the seconds since a build was seen for the first time.

        One that was not looked at for long was somebody else's meanwhile.
        """
        now = self._clock()
        with self._lock:
            self._seen = {one: times for one, times in self._seen.items()
                          if now - times[1] < FORGOTTEN}
            first, _ = self._seen.get(build, (now, now))
            self._seen[build] = first, now
        return now - first

    def undo(self, instance: Instance) -> None:
        """Undo what was done for one that is to be begun again.

        :raises Exception: not all could be undone; it is to be repeated.
        """
        build = _build(instance)
        copy = self._backups.copy(build)
        if copy is None:
            raise LookupError('its copy went back just now')
        with self._backups.repeating(build):
            self._attempts.undo(instance, copy)
        with self._lock:
            self._seen.pop(build, None)
        LOG.info('The build of instance %(uuid)s was interrupted before '
                 'Ironic knew of it; it begins again.',
                 {'uuid': instance.uuid})


def _build(instance: Instance) -> SentBuild:
    return SentBuild(instance.uuid, instance.node or '')
