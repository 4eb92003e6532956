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


"""Who manages a node: the decision.

Pure: values in, decision out. Everything the decision needs is gathered
before, everything that follows from it is carried out after, by the driver.

The rules, tried in this order for every node that Ironic lists:

1. a node with an instance of mine is mine;
2. a node with any other instance is not mine, whoever's it is;
3. a node without an instance is mine if the ring prefers me for it.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import enum

from nova_ironic_multihost import ring as hash_ring


class Reason(enum.Enum):
    """Why a node is mine or not; the value is for people to read."""

    INSTANCE_HERE = 'with an instance of this compute service'
    INSTANCE_ELSEWHERE = 'with an instance that is not of this service'
    RING_HERE = 'free and mapped to this compute service'
    RING_ELSEWHERE = 'free and mapped to another compute service'

    @property
    def mine(self):
        """Whether this compute service manages the node."""
        return self in _MINE


_MINE = frozenset({Reason.INSTANCE_HERE, Reason.RING_HERE})


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that the decision depends on, gathered at one moment.

    :param nodes: node uuid -> uuid of the instance that Ironic has on it, or
        None. Exactly the nodes of the partition.
    :param my_instances: uuids of the instances that nova has on this host.
    :param ring: the preferences of the members of this moment.
    :param host: this compute service, in lower case.
    """

    nodes: Mapping[str, str | None]
    my_instances: Set[str]
    ring: hash_ring.Ring
    host: str


def decide(facts):
    """Say for each node why it is mine or not.

    :param facts: :class:`Facts`.
    :returns: dict of node uuid -> :class:`Reason`, one for each node.
    """
    return {node: _reason(node, instance, facts)
            for node, instance in facts.nodes.items()}


def _reason(node, instance, facts):
    if instance is not None:
        if instance in facts.my_instances:
            return Reason.INSTANCE_HERE
        return Reason.INSTANCE_ELSEWHERE
    if facts.ring.prefers(facts.host, node):
        return Reason.RING_HERE
    return Reason.RING_ELSEWHERE


def tally(reasons):
    """Count the nodes for each reason.

    :param reasons: what :func:`decide` returned.
    :returns: dict of :class:`Reason` -> number of nodes, every reason
        included, in the order of the rules.
    """
    counts = dict.fromkeys(Reason, 0)
    for reason in reasons.values():
        counts[reason] += 1
    return counts
