# SPDX-License-Identifier: Apache-2.0

"""Mechanisms that choose by the aggregates of a host."""

from lab.experiments.scheduler import stage as stages


def zones(trial, stage):
    """Each node of a host is in the zone of the host, and no other one."""
    owned = {'lab-left': stage.of(stage.left),
             'lab-right': stage.of(stage.right)}
    for zone, nodes in owned.items():
        trial.lands(f'{len(nodes)} servers in {zone}', nodes, len(nodes),
                    availability_zone=zone)
    trial.settle()
    for zone in owned:
        trial.nowhere(f'one more in {zone}', availability_zone=zone)
    trial.settle()


def extra_specs(trial, stage):
    """Metadata of the aggregate that the flavor asks for."""
    stage.metadata('lab-left', lab_ssd='true')

    def flavor(value):
        return stage.flavor(aggregate_instance_extra_specs__lab_ssd=value)

    trial.lands('an aggregate with ssd', stage.of(stage.left),
                flavorRef=flavor('true'))
    trial.nowhere('an aggregate with tape', flavorRef=flavor('tape'))
    trial.settle()
    stage.metadata('lab-left', lab_ssd=None)


def tenants(trial, stage):
    """An aggregate that one tenant keeps to, and no other may use."""
    stage.metadata('lab-left', filter_tenant_id=stage.project)
    nodes = stage.of(stage.left)
    trial.lands(f'{len(nodes)} servers of the tenant of lab-left', nodes,
                len(nodes))
    trial.nowhere('the tenant of lab-left in lab-right',
                  availability_zone='lab-right')
    trial.settle()
    trial.nowhere('one more of the tenant of lab-left')
    trial.settle()
    stage.metadata('lab-left', filter_tenant_id=None)


def isolated(trial, stage):
    """Aggregates that only some flavors may use."""
    required = {f'trait:{stages.TRAIT_ONE}': 'required'}
    stage.metadata('lab-left', **required)
    nodes = stage.of(stage.right)
    trial.lands(f'{len(nodes)} servers beside an isolated aggregate', nodes,
                len(nodes))
    trial.settle()
    trial.nowhere('one more beside an isolated aggregate')
    trial.settle()
    trial.clear()
    stage.metadata('lab-right', **required)
    trial.lands('a server for isolated aggregates', [stage.gpu],
                flavorRef=stage.flavor(**required))
    trial.nowhere('any other server where all is isolated')
    trial.settle()
    for name in ('lab-left', 'lab-right'):
        stage.metadata(name, **dict.fromkeys(required))
