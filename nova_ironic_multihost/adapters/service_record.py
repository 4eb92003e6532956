# SPDX-License-Identifier: Apache-2.0

"""The row of this compute service in nova's services table.

nova's scheduler reads it (ComputeFilter). nova's API would also set a trait on
each node (ComputeManager.set_host_enabled), which takes minutes.
"""

from nova import exception
from nova import objects

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import stop_marker


class ServiceRecord:
    """The row of one compute service (port Registration)."""

    def __init__(self, host: str) -> None:
        self._host = host

    def say(self, words: str) -> bool:
        """Write the stop marker unless an operator disabled the service."""
        row = self._row()
        if row is None or row.forced_down or (
                row.disabled and not stop_marker.said(row.disabled_reason)):
            return False
        return _save(row, disabled=False, disabled_reason=words)

    def close(self, words: str) -> bool:
        """Disable the service if it still has this stop marker."""
        row = self._row()
        if row is None or row.disabled_reason != words:
            return False
        return _save(row, disabled=True)

    def take_back(self) -> bool:
        """Remove a stop marker and enable the service."""
        row = self._row()
        if row is None or not stop_marker.said(row.disabled_reason):
            return False
        return _save(row, disabled=False, disabled_reason=None)

    def _row(self):
        try:
            return objects.Service.get_by_compute_host(
                names.admin_context(), self._host)
        except exception.NotFound:
            return None


def _save(row, **changes):
    # nova cannot compare and swap: an operator's write since our read is lost.
    for name, value in changes.items():
        setattr(row, name, value)
    try:
        row.save()
    except exception.NotFound:
        # The service was deleted.
        return False
    return True
