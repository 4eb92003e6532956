# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The cache of Ironic's nodes that nova's driver works with."""

from collections.abc import Callable
from collections.abc import Mapping
import threading
import typing

from nova_ironic_multihost.contract import names


class NodeCache(dict):
    """Node objects by uuid: of the nodes that are this host's.

    It takes the place of ``IronicDriver.node_cache``, a plain dict, over
    which nova's driver iterates in one thread while it adds to it and takes
    from it in others, without a lock. Here that is safe, as an iteration goes
    over a copy: no other thread, native or of eventlet, can interrupt the
    copying of a dict's keys or values.

    Nodes come from listings of all nodes, which may take minutes, and from
    reads of one node. A node that changes meanwhile must not come in as it
    was before, so whoever changes one calls :meth:`forget` afterwards. What
    others change (an operator, Ironic itself) shows at the next listing.
    """

    def __init__(self, nodes: Mapping[str, typing.Any] | None = None):
        super().__init__(nodes or {})
        # Guards _changed, and the methods that look at it. It is never held
        # while Ironic is asked.
        self._lock = threading.Lock()
        self._changed: set[str] = set()

    def __iter__(self):
        return iter(self.keys())

    def keys(self):
        """Return a list of the uuids of this moment."""
        return list(super().keys())

    def values(self):
        """Return a list of the nodes of this moment."""
        return list(super().values())

    def items(self):
        """Return a list of (uuid, node) pairs of this moment."""
        return list(super().items())

    def begin_listing(self) -> None:
        """Remember from now on which nodes change, for :meth:`replace`."""
        with self._lock:
            self._changed.clear()

    def replace(self, nodes: Mapping[str, typing.Any]) -> None:
        """Have the nodes of a listing, and no others.

        Those that changed since the listing began are left out and read anew
        when they are needed. A node that stays is there at any moment.

        :param nodes: uuid -> node.
        """
        with self._lock:
            kept = {uuid: node for uuid, node in nodes.items()
                    if uuid not in self._changed}
            self.update(kept)
            for uuid in self.keys():
                if uuid not in kept:
                    self.pop(uuid, None)

    def add(self, nodes: Mapping[str, typing.Any]) -> None:
        """Have these nodes, too, which have just been read.

        :param nodes: uuid -> node.
        """
        self.update(nodes)

    def forget(self, uuid: str) -> None:
        """Read a node anew when it is needed next: it has changed.

        :param uuid: of the node.
        """
        # A read of the node that began before ends first.
        @_one_at_a_time(uuid)
        def forget():
            with self._lock:
                self._changed.add(uuid)
                self.pop(uuid, None)

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
                if is_mine(uuid):
                    self[uuid] = node
            return node

        return read()


def _one_at_a_time(uuid):
    # nova's own lock (IronicDriver._unprovision takes a node from the cache).
    return names.synchronized(f'ironic-node-{uuid}')
