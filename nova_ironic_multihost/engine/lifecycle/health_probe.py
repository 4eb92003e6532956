# SPDX-License-Identifier: Apache-2.0

"""Collects what probes and reports show of this compute service.

It only reads what others have replaced whole: it takes no lock and asks
nobody, so it can be asked at any moment, whatever hangs.
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
    """Says what is known at this moment.

    :param host: this host, as nova spells it.
    :param auditor: says what is known of the nodes.
    :param looks: says who is there.
    :param recorder: what was counted and timed; its clock is
        :meth:`picture`'s.
    :param bounds: returns after which time something is taken for broken; it
        may raise.
    :param ending: says whether this service is about to end.
    :param listening: says whether somebody reads its messages.
    :param clock: monotonic clock, in seconds.
    """

    def __init__(self, host: str, auditor: auditors.Auditor,
                 looks: peer_poll.PeerPoller, recorder: Metrics,
                 bounds: Callable[[], health.HealthLimits],
                 ending: Callable[[], bool] = lambda: False,
                 listening: Callable[[], bool] = lambda: True,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._host = host
        self._auditor = auditor
        self._peer_poller = looks
        self._recorder = recorder
        self._bounds = bounds
        self._ending = ending
        self._listening = listening
        self._clock = clock
        self._started: float | None = None
        self._limits = health.HealthLimits(None, math.inf, math.inf)

    def note_start(self) -> None:
        """Note that this service has started."""
        if self._started is None:
            self._started = self._clock()

    def verdict(self) -> health.HealthState:
        """Say whether this compute service is well."""
        # What is read first is not younger than the moment.
        totals = self._recorder.totals
        turns = totals.turns
        return health.judge(health.HealthInputs(
            started=self._started, ending=self._ending(),
            listening=self._listening(),
            audit=turns[Work.AUDIT].sign, look=turns[Work.LOOK].sign,
            look_ended=turns[Work.LOOK].ended,
            services=turns[Work.SERVICES].succeeded,
            asking=totals.oldest_awaited), self._read_limits(),
            self._clock())

    def _read_limits(self) -> health.HealthLimits:
        """Return the bounds, as they were if they cannot be read.

        As if nova.conf was read anew with an error in it: that is no reason
        to end what works, and a new process could not begin.
        """
        with contextlib.suppress(Exception):
            self._limits = self._bounds()
        return self._limits

    def picture(self) -> StatusSnapshot:
        """Return all that is known."""
        audit = self._auditor.last
        absences = self._auditor.absences
        totals = self._recorder.totals
        return StatusSnapshot(
            self._host, self._clock(), totals, self.verdict(),
            view=self._peer_poller.view or (audit.view if audit else None),
            reasons=audit.reasons if audit else None,
            missing=len(absences.counts), braked=absences.braked,
            ending=self._ending())
