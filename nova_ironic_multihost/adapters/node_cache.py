# SPDX-License-Identifier: Apache-2.0

"""The node cache of nova's driver."""

from collections import abc
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
import contextlib
import threading
import typing

from nova_ironic_multihost.adapters import names
from nova_ironic_multihost.rules.mirror import NodeRow

#: Node objects kept in memory; the tracker asks for one several times.
MADE = 256


class NodeCache(abc.MutableMapping):
    """The nodes of this host by uuid, in place of nova's dict ``node_cache``.

    nova iterates over it in one thread while others change it, so iterations
    go over copies, made in one step that no thread or greenthread interrupts.
    Call :meth:`forget` after each change of a node: a listing that began
    earlier would restore the old state.
    """

    def __init__(self, make: Callable[[bytes], typing.Any]) -> None:
        self._make = make
        # Uuid -> row with a body, or object of a single read.
        self._known: dict[str, typing.Any] = {}
        # Guards the fields below and their methods. Never held during a
        # request to Ironic.
        self._lock = threading.Lock()
        # Uuid -> (row, object). nova changes the objects.
        self._made: dict[str, tuple[NodeRow, typing.Any]] = {}
        self._listings: list[set[str]] = []
        # Instance -> its node; it may be outdated.
        self._by_instance: dict[str | None, str] = {}

    def __getitem__(self, uuid):
        return self._node(self._known[uuid])

    def _node(self, known):
        return self._object(known) if isinstance(known, NodeRow) else known

    def _object(self, row):
        with self._lock:
            known, made = self._made.get(row.uuid, (None, None))
        if known is not row:
            made = self._make(row.body)
            with self._lock:
                self._made[row.uuid] = row, made
                while len(self._made) > MADE:
                    del self._made[next(iter(self._made))]
        return made

    def __setitem__(self, uuid, node):
        self._known[uuid] = node
        self._by_instance[node.instance_id] = uuid

    def __delitem__(self, uuid):
        del self._known[uuid]

    def __contains__(self, uuid):
        return uuid in self._known

    def __len__(self):
        return len(self._known)

    def __iter__(self):
        return iter(list(self._known))

    def row(self, uuid: str) -> NodeRow | None:
        """Return the row of a node from a listing, None if there is none."""
        known = self._known.get(uuid)
        return known if isinstance(known, NodeRow) else None

    def values(self):
        """Return an iterator over a copy of the nodes."""
        return (node for _, node in self.items())

    def items(self):
        """Return an iterator over a copy of the (uuid, node) pairs."""
        return ((uuid, self._node(known))
                for uuid, known in list(self._known.items()))

    def pop(self, uuid, *default):
        """Remove a node and return it."""
        return self._node(self._known.pop(uuid, *default))

    def instances(self) -> dict[str, str]:
        """Return {uuid of a node: uuid of its instance}."""
        return {uuid: instance for uuid, known in list(self._known.items())
                if (instance := _instance(known)) is not None}

    def of_instance(self, instance: str) -> typing.Any:
        """Return the node of an instance, None if it is unknown."""
        uuid = self._by_instance.get(instance)
        known = self._known.get(uuid) if uuid is not None else None
        if known is None or _instance(known) != instance:
            return None
        return self._node(known)

    @contextlib.contextmanager
    def listing(self) -> Iterator[Set[str]]:
        """Yield a set that collects the nodes that change during a listing."""
        changed: set[str] = set()
        with self._lock:
            self._listings.append(changed)
        try:
            yield changed
        finally:
            with self._lock:
                self._listings = [
                    one for one in self._listings if one is not changed]

    def replace(self, nodes: Mapping[str, NodeRow],
                changed: Set[str] = frozenset()) -> None:
        """Replace all nodes by those of a listing.

        Nodes that have changed since, or have no body, are read when needed. A
        node in both is never missing in between.
        """
        with self._lock:
            kept = self._kept(nodes, changed)
            self._known.update(kept)
            for uuid in self:
                if uuid not in kept:
                    self._known.pop(uuid, None)
            self._made = {}
            self._by_instance = _by_instance(kept)

    def add(self, nodes: Mapping[str, NodeRow], changed: Set[str] = frozenset()
            ) -> None:
        """Add nodes of a listing; otherwise as :meth:`replace`."""
        with self._lock:
            kept = self._kept(nodes, changed)
            self._known.update(kept)
            for uuid in nodes.keys() - kept.keys():
                self._known.pop(uuid, None)
            self._by_instance.update(_by_instance(kept))

    @staticmethod
    def _kept(nodes, changed):
        return {uuid: row for uuid, row in nodes.items()
                if row.body is not None and uuid not in changed}

    def forget(self, uuid: str) -> None:
        """Remove a node that has changed."""
        # Wait for a read of the node that has begun.
        @_one_at_a_time(uuid)
        def forget():
            with self._lock:
                for listing in self._listings:
                    listing.add(uuid)
                self._known.pop(uuid, None)

        forget()

    def read(self, uuid: str, get: Callable[[str], typing.Any],
             is_mine: Callable[[str], bool]) -> typing.Any:
        """Return a node from the cache, or read it with ``get``."""
        @_one_at_a_time(uuid)
        def read():
            node = self.get(uuid)
            if node is None:
                node = get(uuid)
                # A listing meanwhile may be newer.
                if (listed := self.get(uuid)) is not None:
                    return listed
                if is_mine(uuid):
                    self[uuid] = node
            return node

        return read()


def _by_instance(rows):
    return {row.instance: uuid for uuid, row in rows.items()
            if row.instance is not None}


def _instance(known):
    return known.instance if isinstance(known, NodeRow) else known.instance_id


def _one_at_a_time(uuid):
    # nova's own lock (IronicDriver._unprovision).
    return names.synchronized(f'ironic-node-{uuid}')
