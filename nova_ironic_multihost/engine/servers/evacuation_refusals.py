# SPDX-License-Identifier: Apache-2.0

"""Refuse nova's evacuations, and repeat that until it is done.

The compute service that gets an evacuation refuses it at once. One that no
host has refused is lost, or waits for a dead host or a service that does not
answer; meanwhile the instance is not taken over. So each compute service
checks for them (:func:`.evacuation.refuser`). A second refusal does no harm.
"""

from collections.abc import Callable
import threading

from oslo_log import log as logging

from nova_ironic_multihost.engine.base.ports import Evacuations
from nova_ironic_multihost.rules import evacuation
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import ring

LOG = logging.getLogger(__name__)

#: Sweeps between two checks. Two checks must see an evacuation, as its request
#: may still be on its way.
SWEEPS = 6


class EvacuationRefusals:
    """Refuses evacuations. ``_lock`` guards what threads share."""

    def __init__(self, host: str, evacuations: Evacuations,
                 preferences: Callable[[], ring.Preferences | None]) -> None:
        self._host = host_key(host)
        self._evacuations = evacuations
        self._preferences = preferences
        self._lock = threading.Lock()
        #: Instances with evacuations that could not be refused.
        self._failed: set[str] = set()
        # Only the sweep uses these.
        self._sweeps = 0
        #: Unrefused evacuations of the last check.
        self._seen: frozenset[str] = frozenset()

    def refuse(self, uuid: str) -> None:
        """Refuse the evacuations of an instance; failures are repeated."""
        try:
            refused = self._evacuations.refuse(uuid)
        except Exception as exc:  # noqa: BLE001
            with self._lock:
                told = uuid in self._failed
                self._failed.add(uuid)
            if not told:
                LOG.warning(
                    'The evacuation of instance %(uuid)s could not be '
                    'refused: %(exc)s. It is tried again every few seconds; '
                    'until then the instance is not taken over. If that '
                    'lasts: are nova-conductor and placement up?',
                    {'uuid': uuid, 'exc': exc})
            return
        with self._lock:
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
        self._sweeps += 1
        with self._lock:
            due = set(self._failed)
        if self._sweeps % SWEEPS == 0:
            due |= self._unrefused(view)
        for uuid in sorted(due):
            self.refuse(uuid)

    def _unrefused(self, view: peers.View) -> set[str]:
        preferences = self._preferences()
        found = self._evacuations.found()
        due = {
            uuid for uuid, one in found.items()
            if (not one.unrefused or one.unrefused & self._seen)
            and self._host == evacuation.refuser(
                one.record.owner, one.record.node, view, preferences)}
        self._seen = frozenset().union(
            *(one.unrefused for one in found.values()))
        return due
