# SPDX-License-Identifier: Apache-2.0

"""What the driver changes in placement's resource provider of a node.

In nova's provider tree: nova sends to placement what differs from what
placement has.

Reservations: placement offers nothing of a node while its record moves.

What nova's tracker and the driver do for a node that is pulled, in four
requests for it instead of thirteen. A build that is sent to the old owner
either makes the generation of the provider another, and the node stays; or it
finds nothing to allocate, and the scheduler sends it elsewhere. Of two hosts
that pull a node one makes the reservation.

The trait of nodes of a disabled compute service, in placement.

What ComputeVirtAPI.update_compute_provider_status does for one node: in two
requests instead of three, as the trait is one that placement brings along,
and also for a provider that nova's client does not know yet, for which that
raises ValueError (SchedulerReportClient.set_traits_for_provider).

One request at a time, as nova does: claims of builds ask placement, too, and
each of their requests would wait for all of these. A claim waits for the
writes of a few nodes, at most.
"""

from __future__ import annotations
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
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
from nova_ironic_multihost.rules import aggregates


def reserve(provider_tree: nova_tree.ProviderTree, node: str) -> None:
    """Let placement offer nothing of a node.

    :param provider_tree: nova's copy of what placement has.
    :param node: uuid of the node, which is that of its provider.
    """
    inventory = provider_tree.data(node).inventory
    provider_tree.update_inventory(node, {
        name: {**item, 'reserved': item['total']}
        for name, item in inventory.items()})


@contextlib.contextmanager
def renewed(provider_tree: nova_tree.ProviderTree, node: str,
            tracker: nova_tracker.NovaTracker) -> Iterator[None]:
    """Let placement take at once what is changed in here of a node.

    Each allocation of a node makes the generation of its provider another;
    nova's client does not learn that, writes by the old one, logs an ERROR as
    placement refuses it, and does it again. Not for a node whose record is
    not at hand: it is on its way, and if it has got an allocation since nova
    asked placement, what is written of it is to be refused
    (:meth:`.engine.audit.recheck.Recheck.of`).

    :param provider_tree: nova's copy of what placement has.
    :param node: uuid of the node, which is that of its provider.
    :param tracker: reads anew.
    """
    before = provider_tree.data(node).inventory
    yield
    if tracker.has(node) and provider_tree.has_inventory_changed(
            node, before):
        tracker.renew(node)


def follow_aggregates(provider_tree: nova_tree.ProviderTree, node: str,
                      audit, tracker: nova_tracker.NovaTracker) -> None:
    """Let a node carry the aggregates of this host.

    :param provider_tree: nova's copy of what placement has.
    :param node: uuid of the node, which is that of its provider.
    :param audit: the :class:`.model.Audit` that says which those are.
    :param tracker: gives nova's client of placement.
    """
    def wanted(current):
        return aggregates.wanted(
            audit.view.host, audit.host_aggregates, current,
            audit.view.services)

    copy = provider_tree.data(node).aggregates
    if wanted(copy) == copy:
        return
    # nova's copy may be minutes old; what others set since must stay.
    current = db.provider_aggregates(
        names.admin_context(), tracker.report_client, node)
    if current is not None:
        provider_tree.update_aggregates(node, wanted(current))


#: The first microversion of placement in which all of a provider may be
#: reserved.
INVENTORIES_VERSION = '1.26'


class Reservation:
    """The reservation of one node. One thread at a time uses it.

    :param client: nova's client of placement.
    :param node: uuid of the node, which is that of its provider.
    :param inventories: what placement offers of it.
    :param generation: of its provider, as they were read.
    """

    def __init__(self, client: report.SchedulerReportClient, node: str,
                 inventories: Mapping[str, Mapping[str, typing.Any]],
                 generation: int) -> None:
        self.node = node
        self._client = client
        self._inventories = inventories
        self._generation = generation

    def make(self) -> bool:
        """Let nothing be offered, if nothing has changed since it was read.

        :returns: whether that is so; if not, it is not known.
        """
        return self._write({name: {**item, 'reserved': item['total']}
                            for name, item in self._inventories.items()})

    def end(self) -> bool:
        """Let it be offered as before; returns as :meth:`make`."""
        return self._write(self._inventories)

    def _write(self, inventories):
        try:
            answer = self._client.put(
                _inventories_url(self.node),
                {'resource_provider_generation': self._generation,
                 'inventories': inventories}, version=INVENTORIES_VERSION,
                global_request_id=names.admin_context().global_id)
            if not answer:
                return False
            self._generation = answer.json()['resource_provider_generation']
        except (ks_exception.ClientException, ValueError, LookupError,
                TypeError):
            # Placement is away, or a proxy has answered in its place.
            return False
        return True


def of_idle(client: report.SchedulerReportClient, node: str
            ) -> Reservation | None:
    """Return what can reserve a node, None if it is not known to be idle.

    One of which nothing is offered is not taken for idle: what is to be
    offered of it, placement does not know.
    """
    context = names.admin_context()
    try:
        answer = client.get(
            _inventories_url(node), global_request_id=context.global_id
        )
    except ks_exception.ClientException:
        return None
    if not answer:
        return None
    body = answer.json()
    inventories = body['inventories']
    if not inventories or any(item['reserved'] for item
                              in inventories.values()):
        return None
    # After that: whatever is allocated from here on changes the generation.
    if db.consumers(context, client, node) != frozenset():
        return None
    return Reservation(client, node, inventories,
                       body['resource_provider_generation'])


def _inventories_url(node):
    return f'/resource_providers/{node}/inventories'


#: The first microversion of placement that has generations with traits.
TRAITS_VERSION = '1.6'

#: Nodes that are written while claims wait. One by one each would wait for a
#: claim in turn.
TOGETHER = 5

_Result = typing.TypeVar('_Result')


class PlacementTraits(typing.NamedTuple):
    """The traits of a resource provider, with its generation."""

    traits: frozenset[str]
    generation: int


class TraitWriter:
    """The marks of nodes of disabled compute services.

    Implements the port :class:`.engine.base.ports.TraitWriter`. Each method
    raises VirtDriverNotReady when placement answers with another error than
    those that are named there, and keystoneauth1.exceptions.ClientException
    when it does not answer.

    :param tracker: its :class:`.nova_tracker.NovaTracker` gives nova's client.
    """

    def __init__(self, tracker: nova_tracker.NovaTracker) -> None:
        self._tracker = tracker

    def disabled(self) -> frozenset[str]:
        """Return the uuids of all nodes that are marked."""
        return frozenset(db.generations(
            names.admin_context(), self._tracker.report_client,
            os_traits.COMPUTE_STATUS_DISABLED))

    def read(self, nodes: Sequence[str]) -> dict[str, PlacementTraits]:
        """Return {node: its traits}; no entry for one without a provider."""
        return _each(self._read, nodes)

    def write(self, found: Mapping[str, PlacementTraits], disabled: bool
              ) -> dict[str, int]:
        """Mark nodes, or take that from them.

        :returns: {node: the generation of its provider now}; no entry for one
            that placement does not take, as when it is another by now.
        """
        written: dict[str, int] = {}
        nodes = iter(found)
        while some := list(itertools.islice(nodes, TOGETHER)):
            written.update(self._write_some(
                {node: found[node] for node in some}, disabled))
        return written

    def _read(self, node):
        answer = self._tracker.report_client.get(
            _traits_url(node), version=TRAITS_VERSION,
            global_request_id=names.admin_context().global_id)
        if answer.status_code == 404:
            return None
        body = _body(answer)
        return PlacementTraits(frozenset(body['traits']),
                              body['resource_provider_generation'])

    # nova writes of a node under this lock. placement answers with 500 to one
    # of two that write of the same provider in the same moment, and a claim
    # fails then.
    @names.synchronized(resource_tracker.COMPUTE_RESOURCE_SEMAPHORE, fair=True)
    def _write_some(self, found, disabled):
        return _each(
            lambda node: self._write(node, found[node], disabled), found)

    def _write(self, node, found, disabled):
        mark = {os_traits.COMPUTE_STATUS_DISABLED}
        traits = found.traits | mark if disabled else found.traits - mark
        if traits == found.traits:
            return found.generation
        answer = self._tracker.report_client.put(
            _traits_url(node),
            {
                'resource_provider_generation': found.generation,
                'traits': sorted(traits),
            },
            version=TRAITS_VERSION,
            global_request_id=names.admin_context().global_id,
        )
        if answer.status_code > 500:
            # placement is away. Each question may take a minute, and claims
            # wait for the lock.
            _body(answer)
        if not answer:
            # It is another by now, or two write at the same time; or there is
            # something about this one, which is not to keep others waiting.
            return None
        generation = answer.json()['resource_provider_generation']
        self._let_nova_know(node, traits, found.generation, generation)
        return generation

    def _let_nova_know(self, node, traits, before, after):
        """Let its client know what was written, or it would be refused next.

        If it knows another generation than that before, something else has
        changed, which it finds out when it is refused.
        """
        tree = self._tracker.report_client._provider_tree
        # The node may not have been audited yet.
        with contextlib.suppress(ValueError):
            if tree.data(node).generation == before:
                tree.update_traits(node, traits, generation=after)


def _traits_url(node):
    return f'/resource_providers/{node}/traits'


def _body(answer):
    if not answer:
        raise names.VirtDriverNotReady(
            f'Placement does not say or take the traits of a node: '
            f'{answer.text}')
    return answer.json()


def _each(ask: Callable[[str], _Result | None], nodes: Iterable[str]
          ) -> dict[str, _Result]:
    """Return {node: answer} of those for which there is one."""
    return {node: answer for node in nodes
            if (answer := ask(node)) is not None}
