# SPDX-License-Identifier: Apache-2.0

"""Writes of the driver to placement's resource provider of a node.

A Reservation makes placement offer nothing of a node while its record moves,
in four requests; nova's tracker takes thirteen. If a build is sent to the old
owner meanwhile, either the generation changes and the node stays, or the build
finds nothing to allocate and is rescheduled. If two hosts pull one node, one
gets the reservation.
"""

from __future__ import annotations
from collections import abc
import contextlib
import typing

from keystoneauth1 import exceptions as ks_exception
from nova.compute import provider_tree as nova_tree
from nova.scheduler.client import report

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.rules import peers


def reserve(provider_tree: nova_tree.ProviderTree, node: str) -> None:
    """Reserve a node in the provider tree, so that it is not offered."""
    inventory = provider_tree.data(node).inventory
    provider_tree.update_inventory(node, {
        name: {**item, 'reserved': item['total']}
        for name, item in inventory.items()})


@contextlib.contextmanager
def renewed(provider_tree: nova_tree.ProviderTree, node: str,
            tracker: nova_tracker.NovaTracker) -> abc.Iterator[None]:
    """Refresh nova's copy of a node if its inventory changes in here.

    nova's client does not see that allocations change the generation: it would
    write with the old one, log an ERROR and retry. If the tracker has no
    record, the node is moving; an allocation since nova's last read must then
    make the write fail (:meth:`.engine.audit.recheck.Recheck.of`).
    """
    before = provider_tree.data(node).inventory
    yield
    if tracker.has(node) and provider_tree.has_inventory_changed(
            node, before):
        tracker.renew(node)


def follow_aggregates(provider_tree: nova_tree.ProviderTree, node: str,
                      audit, tracker: nova_tracker.NovaTracker) -> None:
    """Set the aggregates of this host on a node."""
    def wanted(current):
        return peers.wanted_aggregates(
            audit.view.host, audit.host_aggregates, current,
            audit.view.services)

    copy = provider_tree.data(node).aggregates
    if wanted(copy) == copy:
        return
    # nova's copy may be minutes old; keep the aggregates that others set.
    current = db.provider_aggregates(tracker.report_client, node)
    if current is not None:
        provider_tree.update_aggregates(node, wanted(current))


#: The first microversion that allows to reserve all of an inventory.
INVENTORIES_VERSION = '1.26'


class Reservation:
    """The reservation of one node, used by one thread at a time."""

    def __init__(self, client: report.SchedulerReportClient, node: str,
                 inventories: abc.Mapping[str, abc.Mapping[str, typing.Any]],
                 generation: int) -> None:
        self.node = node
        self._client = client
        self._inventories = inventories
        self._generation = generation

    def make(self) -> bool:
        """Reserve the node; False if its provider changed or on an error."""
        return self._write({name: {**item, 'reserved': item['total']}
                            for name, item in self._inventories.items()})

    def end(self) -> bool:
        """Offer the node again; returns as :meth:`make`."""
        return self._write(self._inventories)

    def _write(self, inventories):
        try:
            answer = self._client.put(
                f'/resource_providers/{self.node}/inventories',
                {'resource_provider_generation': self._generation,
                 'inventories': inventories}, version=INVENTORIES_VERSION)
            if not answer:
                return False
            self._generation = answer.json()['resource_provider_generation']
        except (ks_exception.ClientException, ValueError, LookupError,
                TypeError):
            # Placement is unavailable, or a proxy has answered in its place.
            return False
        return True


def of_idle(client: report.SchedulerReportClient, node: str
            ) -> Reservation | None:
    """Return the Reservation of an idle node; None if it may be in use."""
    try:
        answer = client.get(f'/resource_providers/{node}/inventories')
    except ks_exception.ClientException:
        return None
    if not answer:
        return None
    body = answer.json()
    inventories = body['inventories']
    # Without an inventory the one to restore would be unknown.
    if not inventories or any(item['reserved'] for item
                              in inventories.values()):
        return None
    # Read after the generation: any later allocation changes it.
    if db.consumers(client, node) != frozenset():
        return None
    return Reservation(client, node, inventories,
                       body['resource_provider_generation'])
