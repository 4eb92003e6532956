# SPDX-License-Identifier: Apache-2.0

"""Show the state of this compute service to health checks and metrics.

It only reads values that are replaced whole, takes no lock and asks no
service. So it answers even while other threads hang.
"""

from collections.abc import Callable
import contextlib
import math
import time

from nova_ironic_multihost.engine.audit import auditor as auditors
from nova_ironic_multihost.engine.base.metrics import Metrics
from nova_ironic_multihost.engine.moves import peer_poll
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import StatusSnapshot


class HealthProbe:
    """Collects the state of this moment.

    :param recorder: counts and times; with the clock of :meth:`picture`.
    :param bounds: returns the limits of a healthy service; may raise.
    :param listening: whether this host reads its RPC queue.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 peer_poller: peer_poll.PeerPoller, recorder: Metrics,
                 bounds: Callable[[], health.HealthLimits],
                 ending: Callable[[], bool] = lambda: False,
                 listening: Callable[[], bool] = lambda: True,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._auditor = auditor
        self._peer_poller = peer_poller
        self._recorder = recorder
        self._bounds = bounds
        self._ending = ending
        self._listening = listening
        self._clock = clock
        self._started: float | None = None
        self._limits = health.HealthLimits(None, math.inf, math.inf)

    def note_start(self) -> None:
        """Note the start of this service."""
        if self._started is None:
            self._started = self._clock()

    def verdict(self) -> health.HealthState:
        """Return whether this compute service is healthy."""
        # Read before the clock, so that no time is in the future.
        totals = self._recorder.totals
        turns = totals.turns
        return health.judge(health.HealthInputs(
            started=self._started, ending=self._ending(),
            listening=self._listening(),
            audit=turns[Work.AUDIT].sign, peer_poll=turns[Work.PEER_POLL].sign,
            peer_poll_ended=turns[Work.PEER_POLL].ended,
            services=turns[Work.SERVICES].succeeded,
            asking=totals.oldest_awaited), self._read_limits(),
            self._clock())

    def _read_limits(self) -> health.HealthLimits:
        """Return the limits, the last ones if nova.conf has an error.

        A working service must not end for that: it could not start again.
        """
        with contextlib.suppress(Exception):
            self._limits = self._bounds()
        return self._limits

    def picture(self) -> StatusSnapshot:
        """Return the state of this moment."""
        audit = self._auditor.last
        absences = self._auditor.absences
        totals = self._recorder.totals
        return StatusSnapshot(
            self._host, self._clock(), totals, self.verdict(),
            view=self._peer_poller.view or (audit.view if audit else None),
            reasons=audit.reasons if audit else None,
            missing=len(absences.counts), braked=absences.braked,
            ending=self._ending())
