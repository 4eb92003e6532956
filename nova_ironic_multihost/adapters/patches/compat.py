# SPDX-License-Identifier: Apache-2.0

"""For nova 31 to 33 alone, until October 2027: then 33 is unmaintained.

The start of a service is found on the stack, as only nova 34 tells the
manager that the service ends.

nova's client of placement has a tree of all providers that it knows, one root
for each node. Before nova 34 the tracker is given a copy of all of it at each
audit of a node and at each claim, under its lock, and then has all of it
compared (ResourceTracker._update_to_placement): 0.8 s of CPU with 10,000
nodes. Here nova's own code copies and compares one root, with what is below
it, as nova 34 does (ProviderTree.subtree), in 0.06 ms. It sends the same
requests for the node, and leaves alone what has become of the others.
"""

from __future__ import annotations

import copy
import inspect
import typing

from nova.compute import provider_tree as nova_tree
from nova.scheduler.client import report
from nova import service


class ProviderSubtree(nova_tree.ProviderTree):
    """A copy of one root of a provider tree, with all that is below it.

    :param tree: the provider tree.
    :param provider: uuid of the root, or of a provider below it.
    :raises ValueError: it is not in the tree.
    """

    def __init__(self, tree: nova_tree.ProviderTree, provider: str) -> None:
        super().__init__()
        self.provider = provider
        with tree.lock:
            root = copy.deepcopy(
                tree._find_with_lock(provider, return_root=True))
        self.roots_by_uuid[root.uuid] = root
        self.roots_by_name[root.name] = root


class SubtreeView:
    """The provider tree of nova's client, as far as one root goes.

    It is no copy. Who asks for a certain provider gets it, whichever that is.

    :param tree: the provider tree.
    :param provider: uuid of the root, or of a provider below it.
    """

    def __init__(self, tree: nova_tree.ProviderTree, provider: str) -> None:
        self._tree = tree
        self._provider = provider

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._tree, name)

    def __deepcopy__(self, memo: dict) -> ProviderSubtree:
        return ProviderSubtree(self._tree, self._provider)

    def get_provider_uuids(self) -> list[str]:
        """Return the uuids of all providers, each after its parent.

        None if another thread has forgotten them since they were copied; nova
        then asks placement for them again.
        """
        try:
            return self._tree.get_provider_uuids_in_tree(self._provider)
        except ValueError:
            return []


class SubtreeClient:
    """nova's client of placement, to a method of it that compares trees.

    To all that the method calls it is the client itself.

    :param client: nova's client of placement.
    :param provider: uuid of the root, or of a provider below it.
    """

    def __init__(self, client: report.SchedulerReportClient,
                 provider: str) -> None:
        self._whole = client
        self._provider = provider

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._whole, name)

    @property
    def _provider_tree(self) -> SubtreeView:
        return SubtreeView(self._whole._provider_tree, self._provider)


def get_root(parts, call):
    """Return a copy of one root, which is in placement then."""
    client = call.target
    return type(client).get_provider_tree_and_ensure_root(
        SubtreeClient(client, call['rp_uuid']), **call.arguments())


def flush_root(parts, call):
    """Send to placement what has changed in the copy of a tree."""
    client, tree = call.target, call['new_tree']
    comparing = (
        SubtreeClient(client, tree.provider)
        if isinstance(tree, ProviderSubtree)
        else client
    )
    type(client).update_from_provider_tree(comparing, **call.arguments())


def starting_service(manager):
    """Return the nova.service.Service that is about to start a manager.

    nova hands it to nobody, and what has launched it is another object in
    each way to run it. But its start is on the stack.

    :returns: None if no service starts it.
    """
    frame = inspect.currentframe()
    while frame is not None:
        found = frame.f_locals.get('self')
        if isinstance(found, service.Service) and found.manager is manager:
            return found
        frame = frame.f_back
    return None
