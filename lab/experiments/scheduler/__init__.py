# SPDX-License-Identifier: Apache-2.0

"""Every mechanism of nova's scheduler, with nodes that have just moved.

The free nodes of one compute get a resource class of their own and
properties, traits and so on for each mechanism to choose by. That compute
is killed, its nodes move, and from then on all servers are asked for on
nodes of that class: every server lands on a node that has moved, or
nowhere. For each mechanism servers that must find a node and servers that
must not are asked for. At the end the nodes move once more, from a compute
that is disabled.

Figures: mechanisms, for each of them "pass" or what went wrong, and
moved_nodes. Verdict: all pass.
"""

import contextlib

from lab.bench import wanted
from lab.experiments.scheduler import aggregates
from lab.experiments.scheduler import groups
from lab.experiments.scheduler import hosts
from lab.experiments.scheduler import nodes
from lab.experiments.scheduler import stage as stages
from lab.experiments.scheduler import trial as trials

FILTERS = (
    'ComputeFilter', 'ComputeCapabilitiesFilter', 'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter', 'ServerGroupAffinityFilter',
    'AggregateInstanceExtraSpecsFilter', 'IsolatedHostsFilter', 'JsonFilter')
NEEDS = wanted.Wanted(computes=3, options=(
    f'filter_scheduler.enabled_filters={",".join(FILTERS)}',
    f'filter_scheduler.isolated_hosts={stages.ISOLATED_HOST}',
    f'filter_scheduler.isolated_images={stages.ISOLATED_IMAGE}',
    # Otherwise no other image could be used there, in all other trials.
    'filter_scheduler.restrict_isolated_hosts_to_isolated_images=false',
    'scheduler.limit_tenants_to_placement_aggregate=true',
    'scheduler.enable_isolated_aggregate_filtering=true'))
MECHANISMS = {
    'availability zones': aggregates.zones,
    'ComputeCapabilitiesFilter': nodes.capabilities,
    'traits required and forbidden': nodes.traits,
    'AggregateInstanceExtraSpecsFilter': aggregates.extra_specs,
    'aggregates of tenants': aggregates.tenants,
    'isolated aggregates': aggregates.isolated,
    'ImagePropertiesFilter': nodes.image_properties,
    'IsolatedHostsFilter': hosts.isolated,
    'server group anti-affinity': groups.anti_affinity,
    'server group affinity': groups.affinity,
    'JsonFilter': nodes.query,
    # The last one: it deletes the aggregates.
    'COMPUTE_STATUS_DISABLED': hosts.disabled,
}


def failures(figures):
    """What the figures should not be, in sentences."""
    return [f'{name}: {result}' for name, result
            in figures['mechanisms'].items() if result != 'pass']


def run(bench):
    """Set the stage, move nodes, try each mechanism; the figures."""
    with contextlib.ExitStack() as undo:
        stage = stages.Stage(bench, undo)
        stage.prepare()
        stage.kill()
        results = {}
        for name, mechanism in MECHANISMS.items():
            bench.note(name)
            trial = trials.Trial(bench, stage)
            mechanism(trial, stage)
            results[name] = trial.result()
            bench.say(f'{name}: {results[name]}')
        return {'mechanisms': results, 'moved_nodes': len(stage.nodes)}
