# SPDX-License-Identifier: Apache-2.0

"""Send notifications without waiting for the message bus.

Each notification has a thread of its own and one try, so a bus that is down
delays no audit. The log or the metrics say the same.
"""

from collections.abc import Callable
import threading

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Audit
from nova_ironic_multihost.engine.base.ports import Instances
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules import notifications
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason

LOG = logging.getLogger(__name__)

#: Reasons of the nodes that other hosts get when this service is disabled.
FREE = frozenset({Reason.KEPT, Reason.CREATED, Reason.ADOPTED,
                  Reason.PULLED})


def start_thread(target: Callable[..., object], *args: object) -> None:
    """Call a function in a new thread."""
    threading.Thread(target=target, args=args, daemon=True,
                     name='ironic-multihost-notifier').start()


class Notifier:
    """Sends notifications, for any thread; ``_lock`` guards its state."""

    def __init__(self, instances: Instances,
                 start: Callable[..., None] = start_thread) -> None:
        self._instances = instances
        self._start = start
        self._lock = threading.Lock()
        # The state that was sent last; a new process sends no change.
        self._braked = False
        self._drain = notifications.DrainProgress.IN_SERVICE

    def tell(self, event: notifications.Notification) -> None:
        """Send a notification soon; raises nothing."""
        try:
            self._start(self._send, event)
        except RuntimeError as exc:
            LOG.warning('Threads of nova-compute are used up: %s.', exc)

    def follow(self, host: str, audit: Audit, absences: mirror.Absences
               ) -> None:
        """Send the changes that an audit of all nodes has found."""
        me = audit.view.services.get(audit.view.host)
        counted = ownership.count_reasons(audit.reasons)
        free = sum(counted[reason] for reason in FREE)
        # A stopped service is disabled as well, but comes back.
        state = notifications.drained(
            me is not None and me.disabled and not me.stop_marker, free)
        with self._lock:
            braked, self._braked = self._braked, absences.braked
            before, self._drain = self._drain, state
        if braked != absences.braked:
            self.tell(notifications.brake(
                host, absences.braked, len(absences.counts)))
        if before is not state:
            self.tell(notifications.drain(
                host, state, free,
                sum(counted[reason] for reason in ownership.SERVED)))

    def _send(self, event: notifications.Notification) -> None:
        try:
            self._instances.notify(event.kind, event.payload)
        except Exception as exc:  # noqa: BLE001
            LOG.warning('The notification %(kind)s was not sent: %(exc)s. '
                        'Nothing else depends on it.',
                        {'kind': event.kind, 'exc': exc})
