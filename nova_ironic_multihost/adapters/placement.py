# SPDX-License-Identifier: Apache-2.0

"""Writes of the driver to placement's resource provider of a node.

A Reservation makes placement offer nothing of a node while its record moves,
in four requests; nova's tracker takes thirteen. If a build is sent to the old
owner meanwhile, either the generation changes and the node stays, or the build
finds nothing to allocate and is rescheduled. If two hosts pull one node, one
gets the reservation.

Requests go one at a time: claims of builds would wait behind parallel ones.
"""

from __future__ import annotations
from collections import abc
import contextlib
import itertools
import typing

from keystoneauth1 import exceptions as ks_exception
from nova.compute import provider_tree as nova_tree
from nova.compute import resource_tracker
from nova.scheduler.client import report
import os_traits

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.adapters import nova_tracker
from nova_ironic_multihost.engine.base.ports import ProviderTraits
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


#: The first microversion with a generation in the traits.
TRAITS_VERSION = '1.6'

#: Nodes written in one hold of nova's lock, for which claims wait.
TOGETHER = 5

_Result = typing.TypeVar('_Result')


class TraitWriter:
    """The trait of nodes of disabled services (port Traits).

    Works as ComputeVirtAPI.update_compute_provider_status, in two requests
    instead of three, and also for providers that nova's client does not know.
    Methods raise VirtDriverNotReady when placement answers with an error, and
    keystoneauth1.exceptions.ClientException when it does not answer.
    """

    def __init__(self, tracker: nova_tracker.NovaTracker) -> None:
        self._tracker = tracker

    def disabled(self) -> frozenset[str]:
        return frozenset(db.generations(
            self._tracker.report_client, os_traits.COMPUTE_STATUS_DISABLED))

    def read(self, nodes: abc.Sequence[str]) -> dict[str, ProviderTraits]:
        return _answers(self._read, nodes)

    def write(self, found: abc.Mapping[str, ProviderTraits], disabled: bool
              ) -> dict[str, int]:
        written: dict[str, int] = {}
        nodes = iter(found)
        while some := list(itertools.islice(nodes, TOGETHER)):
            written.update(self._write_some(
                {node: found[node] for node in some}, disabled))
        return written

    def _read(self, node):
        answer = self._tracker.report_client.get(
            f'/resource_providers/{node}/traits', version=TRAITS_VERSION)
        if answer.status_code == 404:
            return None
        body = _body(answer)
        return ProviderTraits(frozenset(body['traits']),
                              body['resource_provider_generation'])

    # nova's lock for writes. placement answers one of two concurrent writes of
    # a provider with 500, and a claim would fail.
    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _write_some(self, found, disabled):
        return _answers(
            lambda node: self._write(node, found[node], disabled), found)

    def _write(self, node, found, disabled):
        trait = {os_traits.COMPUTE_STATUS_DISABLED}
        traits = found.traits | trait if disabled else found.traits - trait
        if traits == found.traits:
            return found.generation
        answer = self._tracker.report_client.put(
            f'/resource_providers/{node}/traits',
            {'resource_provider_generation': found.generation,
             'traits': sorted(traits)}, version=TRAITS_VERSION)
        if answer.status_code > 500:
            # Placement is unavailable: stop, as claims wait for the lock.
            _body(answer)
        if not answer:
            # The generation has changed, or placement refuses this node alone.
            return None
        generation = answer.json()['resource_provider_generation']
        self._update_nova_cache(node, traits, found.generation, generation)
        return generation

    def _update_nova_cache(self, node, traits, before, after):
        """Update nova's copy, unless something else has changed as well."""
        tree = self._tracker.report_client._provider_tree
        # ValueError: the node has not been audited yet.
        with contextlib.suppress(ValueError):
            if tree.data(node).generation == before:
                tree.update_traits(node, traits, generation=after)


def _body(answer):
    if not answer:
        raise names.VirtDriverNotReady(
            f'Placement cannot read or write the traits of a node: '
            f'{answer.text}')
    return answer.json()


def _answers(ask: abc.Callable[[str], _Result | None], nodes: abc.Iterable[str]
             ) -> dict[str, _Result]:
    """Return {node: answer}, without nodes that have none."""
    return {node: answer for node in nodes
            if (answer := ask(node)) is not None}
