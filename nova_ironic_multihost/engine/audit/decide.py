# SPDX-License-Identifier: Apache-2.0

"""The decision, with the reads and writes that complete it.

Placement tells which nodes are idle right before they move. Taking over an
instance is a write that may fail. Both results are part of the decision.
"""

from collections import abc
import dataclasses

from oslo_log import log as logging

from nova_ironic_multihost.engine.audit.audit_state import Settings
from nova_ironic_multihost.engine.audit.lister import Lister
from nova_ironic_multihost.engine.base.ports import Cloud
from nova_ironic_multihost.engine.base.ports import Eligible
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.model import Facts
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules import ownership
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import takeover

LOG = logging.getLogger(__name__)

#: Failed takeovers after which an audit tries no more: each may time out.
FAILURES = 2

#: Instances taken over together. If this process ends meanwhile, they wait
#: until their first mark is undone.
TOGETHER = 16


@dataclasses.dataclass(frozen=True)
class Decision:
    """The result of a decision.

    :param taken_over: instance -> the host from which it was taken over.
    :param at_rest: those of them that need no recovery.
    """

    reasons: abc.Mapping[str, Reason]
    taken_over: abc.Mapping[str, str | None]
    at_rest: frozenset[str] = frozenset()


def decide(cloud: Cloud, reader: Lister, facts: Facts,
           settings: Settings, eligible: Eligible,
           arrived: abc.Set[str] = frozenset(),
           adoptions: int | None = None) -> Decision:
    """Decide, and take over instances and builds.

    Instances come first, because reading placement may take minutes. After
    that the dead hosts are read again before builds are taken over, and their
    nodes from ``reader``, as the listing may be older than a build.

    :param arrived: instances with a build in this process.
    :param adoptions: the most free nodes of dead hosts to claim, None for all;
        each costs a read of placement.
    """
    reasons = ownership.decide(facts)
    nodes = {instance: node for node in ownership.some_of(
                 reasons, Reason.TAKEN_OVER, settings.takeovers_per_audit)
             if (instance := facts.nodes[node]) is not None}
    states = {instance: facts.instance_states[instance] for instance in nodes}
    taken, tried = _take_over(cloud, settings, eligible, states)
    served = {nodes[instance] for instance in taken}
    pulled = ownership.some_of(
        reasons, Reason.PULLED, settings.pulls_per_audit)
    adopted = ownership.some_of(reasons, Reason.ADOPTED, adoptions)
    consumers = cloud.consumers_of([*pulled, *adopted])
    builds = _builds(cloud, {node: consumers[node] for node in adopted})
    abandoned = dict([
        (uuid, node) for node, some in builds.items()
        for uuid in ownership.abandoned_builds(node, some, facts)
    ][:settings.takeovers_per_audit - len(taken)])
    nodes.update(abandoned)
    build_states = {
        uuid: builds[node][uuid] for uuid, node in abandoned.items()}
    states.update(build_states)
    ended, tried_builds = _take_over(
        cloud, settings, eligible, build_states,
        lambda uuid: _is_free(reader, nodes[uuid]))
    taken += ended
    allocated = {node: None if some is None else bool(some)
                 for node, some in consumers.items()}
    allocated.update(
        (node, ownership.awaited(some, {*arrived, *ended}, facts.host))
        for node, some in builds.items())
    return Decision(
        ownership.confirmed(reasons, allocated, served, {
            nodes[uuid] for uuid in [*tried, *tried_builds]
            if uuid not in taken}),
        {uuid: states[uuid].host for uuid in taken},
        frozenset(uuid for uuid in taken if takeover.rests(
            states[uuid].vm_state, states[uuid].task_state)))


def remove_providers(cloud: Cloud, reader: Lister,
                     gone: frozenset[str], recorded: abc.Set[str], percent: int
                     ) -> frozenset[str]:
    """Delete providers of gone nodes, return those left.

    nova tries that only once.
    """
    listed = reader.mirror.nodes.keys()
    if mirror.too_few(recorded, listed, percent):
        # Nor is it certain that Ironic lacks these.
        return gone
    leaving = gone - listed
    if leaving:
        leaving -= {record.node for record in cloud.records(sorted(leaving))}
    try:
        for node in sorted(leaving):
            # It may have been enrolled again since the listing.
            if reader.node(node) is None and cloud.remove_provider(node):
                leaving -= {node}
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Resource providers of %(count)d nodes that are gone are '
                  'deleted later: %(exc)s',
                  {'count': len(leaving), 'exc': exc})
    return leaving


def in_use(cloud: Cloud, node: str) -> bool:
    """Whether a node has, or may have, an allocation in placement."""
    consumers = cloud.consumers(node)
    return consumers is None or bool(consumers)


def _builds(cloud: Cloud, consumers: abc.Mapping[str, abc.Set[str] | None]
            ) -> dict[str, dict[str, InstanceState]]:
    """Return {node: {instance: state}} of builds sent to dead hosts.

    Consumers that nova has deleted are left out: the owner of the node removes
    them (ResourceTracker._remove_deleted_instances_allocations).
    """
    known = {node: some for node, some in consumers.items()
             if some is not None}
    every = frozenset[str]().union(*known.values())
    states = cloud.instance_states(sorted(every)) if every else {}
    return {node: {uuid: states[uuid] for uuid in some
                   if uuid in states and not states[uuid].deleted}
            for node, some in known.items()}


def _is_free(reader: Lister, node: str) -> bool:
    """Whether Ironic has reserved a node for no instance by now."""
    try:
        row = reader.node(node)
    except Exception as exc:  # noqa: BLE001
        LOG.debug('Ironic does not say who has node %(node)s: %(exc)s',
                  {'node': node, 'exc': exc})
        return False
    return row is None or row.instance is None


def _take_over(cloud: Cloud, settings: Settings, eligible: Eligible,
               wanted: abc.Mapping[str, InstanceState],
               still: abc.Callable[[str], bool] = lambda uuid: True
               ) -> tuple[list[str], list[str]]:
    """Take over instances in groups; return (those taken, those tried).

    :param still: asked about each instance when its host is known to be dead.
    """
    taken: list[str] = []
    tried: list[str] = []
    failed = 0
    for first in range(0, len(wanted), TOGETHER):
        some = dict(list(wanted.items())[first:first + TOGETHER])
        try:
            dead = eligible({state.host for state in some.values()
                             if state.host is not None})
            # A host that is back keeps its instances.
            some = {uuid: state for uuid, state in some.items()
                    if state.host_key in dead and still(uuid)}
            outcomes = cloud.take_over(some, settings.host, eligible)
        except Exception as exc:  # noqa: BLE001
            LOG.warning('%(count)d instances could not be taken over: '
                        '%(exc)s. They are tried again within seconds, then '
                        'with a growing backoff of up to five minutes.',
                        {'count': len(some), 'exc': exc})
            tried += some
            break
        unknown = [uuid for uuid, outcome in outcomes.items()
                   if isinstance(outcome, Exception)]
        # After a lost answer the others may not have been tried at all.
        tried += [uuid for uuid in some if not unknown or outcomes[uuid]]
        for uuid in unknown:
            LOG.warning('Instance %(uuid)s could not be taken over: '
                        '%(exc)s. It is tried again within seconds, then '
                        'with a growing backoff of up to five minutes.',
                        {'uuid': uuid, 'exc': outcomes[uuid]})
        failed += len(unknown)
        taken += [uuid for uuid, outcome in outcomes.items()
                  if outcome is True]
        if failed >= FAILURES:
            break
    return taken, tried
