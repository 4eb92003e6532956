# SPDX-License-Identifier: Apache-2.0

"""The cache of Ironic's nodes that nova's driver works with."""

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

#: Node objects that are at hand. The tracker asks for the same one several
#: times, one after the other; of all nodes they would take much memory.
MADE = 256


class NodeCache(abc.MutableMapping):
    """Node objects by uuid: of the nodes that are this host's.

    It takes the place of ``IronicDriver.node_cache``, a plain dict, over
    which nova's driver iterates in one thread while it adds to it and takes
    from it in others, without a lock. Here that is safe, as an iteration goes
    over a copy: no other thread, native or of eventlet, can interrupt the
    copying of a dict's keys or values.

    Nodes come from listings, as JSON of which an object is made when somebody
    asks for it, and from reads of one node. A node that changes while Ironic
    lists it must not come in as it was before, so whoever changes one calls
    :meth:`forget` afterwards. What others change (an operator, Ironic itself)
    shows at the next listing.

    :param make: makes an object of a :attr:`.rules.mirror.NodeRow.body`.
    """

    def __init__(self, make: Callable[[bytes], typing.Any]) -> None:
        self._make = make
        # Rows that have a body, or objects that were read.
        self._known: dict[str, typing.Any] = {}
        # Guards what follows, and the methods that look at it. It is never
        # held while Ironic is asked.
        self._lock = threading.Lock()
        # Row and object by uuid. nova changes the objects, so what is in a
        # row is no more said by them after some time.
        self._made: dict[str, tuple[NodeRow, typing.Any]] = {}
        self._listings: list[set[str]] = []
        # Where an instance was; it may be there no more.
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
        """Return what a listing had of a node, None if it is not known."""
        known = self._known.get(uuid)
        return known if isinstance(known, NodeRow) else None

    def values(self):
        """Return an iterator of the nodes of this moment."""
        return (node for _, node in self.items())

    def items(self):
        """Return an iterator of (uuid, node) of this moment."""
        return ((uuid, self._node(known))
                for uuid, known in list(self._known.items()))

    def pop(self, uuid, *default):
        """Take a node out and return it."""
        return self._node(self._known.pop(uuid, *default))

    def instances(self) -> dict[str, str]:
        """Return {uuid of a node: uuid of its instance} of this moment."""
        return {uuid: instance for uuid, known in list(self._known.items())
                if (instance := _instance(known)) is not None}

    def of_instance(self, instance: str) -> typing.Any:
        """Return the node of an instance, None if none is known.

        nova's driver looks through all nodes for it.
        """
        uuid = self._by_instance.get(instance)
        known = self._known.get(uuid) if uuid is not None else None
        if known is None or _instance(known) != instance:
            return None
        return self._node(known)

    @contextlib.contextmanager
    def listing(self) -> Iterator[Set[str]]:
        """Remember while Ironic lists nodes which of them change.

        :returns: their uuids, for :meth:`replace` and :meth:`add`.
        """
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
        """Have the nodes of a listing, and no others.

        Those that changed since it began, or of which little was read, are
        left out and read anew when they are needed. A node that stays is
        there at any moment.

        :param nodes: uuid -> node.
        :param changed: what :meth:`listing` returned.
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
        """Have these nodes, too.

        Parameters as for :meth:`replace`.
        """
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
        """Read a node anew when it is needed next: it has changed.

        :param uuid: of the node.
        """
        # A read of the node that began before ends first.
        @_one_at_a_time(uuid)
        def forget():
            with self._lock:
                for listing in self._listings:
                    listing.add(uuid)
                self._known.pop(uuid, None)

        forget()

    def read(self, uuid: str, get: Callable[[str], typing.Any],
             is_mine: Callable[[str], bool]) -> typing.Any:
        """Return a node, from here or else from Ironic.

        :param uuid: of the node.
        :param get: asks Ironic for it.
        :param is_mine: says whether it is this host's; others are not kept.
            It is asked after Ironic has answered.
        """
        @_one_at_a_time(uuid)
        def read():
            node = self.get(uuid)
            if node is None:
                node = get(uuid)
                # What was listed meanwhile may be newer.
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
    # nova's own lock (IronicDriver._unprovision takes a node from the cache).
    return names.synchronized(f'ironic-node-{uuid}')
