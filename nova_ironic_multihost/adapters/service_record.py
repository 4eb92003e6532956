# SPDX-License-Identifier: Apache-2.0

"""This compute service as nova's services table has it.

Written to the table and not by nova's API: that has the service put a trait on
the provider of each of its nodes, and take it off again (ComputeManager.
set_host_enabled), which takes minutes when nodes are thousands. nova's
scheduler reads the table for each request (ComputeFilter).
"""

from nova import exception
from nova import objects

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules import stop_marker


class ServiceRecord:
    """The row of one compute service.

    Implements the port :class:`.engine.base.ports.ServiceRecord`. A write
    reads first: nova cannot compare and swap here, and an operator who
    disables the service meanwhile has to do so once more.

    :param host: as nova spells it.
    """

    def __init__(self, host: str) -> None:
        self._host = host

    def say(self, words: str) -> bool:
        """Give it these words, unless an operator has disabled it.

        It is enabled with them, also if it was disabled with earlier ones.
        """
        row = self._row()
        if row is None or row.forced_down or (
                row.disabled and not stop_marker.said(row.disabled_reason)):
            return False
        return _save(row, disabled=False, disabled_reason=words)

    def close(self, words: str) -> bool:
        """Disable it, if these words are still there; they stay."""
        row = self._row()
        if row is None or row.disabled_reason != words:
            return False
        return _save(row, disabled=True)

    def take_back(self) -> bool:
        """Enable it and remove the words, if there are such."""
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
    for name, value in changes.items():
        setattr(row, name, value)
    try:
        row.save()
    except exception.NotFound:
        # Somebody has deleted the service.
        return False
    return True
