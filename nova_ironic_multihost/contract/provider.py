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

"""What the driver changes in placement's resource provider of a node.

In nova's provider tree: nova sends to placement what differs from what
placement has.
"""

from collections.abc import Iterator
import contextlib

from nova.compute import provider_tree as nova_tree

from nova_ironic_multihost.contract import calls
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.contract import reads
from nova_ironic_multihost.core import aggregates


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
            tracker: calls.Tracker) -> Iterator[None]:
    """Let placement take at once what is changed in here of a node.

    Each allocation of a node makes the generation of its provider another;
    nova's client does not learn that, writes by the old one, logs an ERROR as
    placement refuses it, and does it again. Not for a node whose record is
    not at hand: it is on its way, and if it has got an allocation since nova
    asked placement, what is written of it is to be refused
    (:meth:`.audit.offer.Offers.of`).

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
                      audit, tracker: calls.Tracker) -> None:
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
    current = reads.provider_aggregates(
        names.admin_context(), tracker.report_client, node)
    if current is not None:
        provider_tree.update_aggregates(node, wanted(current))
