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

"""Deciding, and what has to be asked and written before it is final.

Which nodes are idle is asked of placement right before they are pulled; an
instance is taken over by a write that may fail. What comes of that is part
of the decision.
"""

from collections.abc import Mapping
import dataclasses

from nova_ironic_multihost.audit.model import Settings
from nova_ironic_multihost.audit.sources import Sources
from nova_ironic_multihost.audit.sources import Writes
from nova_ironic_multihost.core.facts import Facts
from nova_ironic_multihost.core.facts import InstanceState
from nova_ironic_multihost.core import ownership
from nova_ironic_multihost.core.ownership import Reason


@dataclasses.dataclass(frozen=True)
class Decision:
    """What came of the facts.

    :param reasons: node uuid -> why it is mine or not.
    :param busy: what :func:`.ownership.still_busy` returned.
    :param refused: what :func:`.ownership.still_refused` returned.
    :param taken_over: uuid -> host that it was on before, of the instances
        that were taken over.
    """

    reasons: Mapping[str, Reason]
    busy: tuple[str, ...]
    refused: tuple[str, ...]
    taken_over: Mapping[str, str | None]


def decide(sources: Sources, writes: Writes, facts: Facts,
           settings: Settings, busy: tuple[str, ...] = (),
           refused: tuple[str, ...] = ()) -> Decision:
    """Decide, and take over what is to be taken over.

    :param busy: of the audit before.
    :param refused: of the audit before.
    """
    reasons = ownership.decide(facts)
    asked = ownership.pulls(reasons, settings.pulls_per_audit, busy)
    allocated = frozenset(node for node in asked if in_use(sources, node))
    busy = ownership.still_busy(reasons, busy, asked, allocated)
    builds = _builds(sources, reasons)
    abandoned = _take_over_builds(writes, facts, builds, settings)
    reasons = ownership.with_pulls(reasons, asked, allocated.union(
        node for node, some in builds.items()
        if ownership.awaited(some, abandoned, facts.host)))
    asked = ownership.takeovers(
        reasons, settings.takeovers_per_audit - len(abandoned), refused)
    taken = _take_over(writes, facts, asked, settings)
    refused = ownership.still_refused(reasons, refused, asked, taken)
    reasons = ownership.with_takeovers(reasons, refused, taken)
    return Decision(reasons, busy, refused, {**abandoned, **{
        instance: facts.instance_states[instance].host
        for instance in taken.values()}})


def in_use(sources: Sources, node: str) -> bool:
    """Whether placement has an allocation of a node, or may have."""
    consumers = sources.consumers(node)
    return consumers is None or bool(consumers)


def _builds(sources: Sources, reasons: Mapping[str, Reason]
            ) -> dict[str, dict[str, InstanceState]]:
    """Return {node: {instance: state}} of builds sent to dead hosts.

    A consumer that nova has deleted is no build: whoever owns the node
    clears that up (ResourceTracker._remove_deleted_instances_allocations).
    """
    consumers = {
        node: sources.consumers(node) or frozenset()
        for node, reason in reasons.items() if reason is Reason.ADOPTED}
    every = frozenset[str]().union(*consumers.values())
    states = sources.instance_states(sorted(every)) if every else {}
    return {node: {uuid: states[uuid] for uuid in some
                   if uuid in states and not states[uuid].deleted}
            for node, some in sorted(consumers.items())}


def _take_over_builds(writes: Writes, facts: Facts,
                      builds: Mapping[str, Mapping[str, InstanceState]],
                      settings: Settings) -> dict[str, str | None]:
    """Take over builds that nobody will carry out.

    :param builds: what :func:`_builds` returned.
    :returns: {instance: host before} of those taken over.
    """
    wanted = [(uuid, some[uuid]) for node, some in builds.items()
              for uuid in ownership.abandoned_builds(node, some, facts)]
    return {uuid: state.host
            for uuid, state in wanted[:settings.takeovers_per_audit]
            if writes.take_over(uuid, state, settings.host)}


def _take_over(writes: Writes, facts: Facts, nodes: list[str],
               settings: Settings) -> dict[str, str]:
    """Take over the instances on some nodes.

    :returns: {node: instance} of those taken over.
    """
    wanted = {node: instance for node in nodes
              if (instance := facts.nodes[node]) is not None}
    return {node: instance for node, instance in wanted.items()
            if writes.take_over(
                instance, facts.instance_states[instance], settings.host)}
