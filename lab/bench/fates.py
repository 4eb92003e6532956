# SPDX-License-Identifier: Apache-2.0

"""How far builds have come, and what became of them."""

import collections

from lab.bench import criteria
from lab.bench import logs

UNCLAIMED = 'unclaimed'
CLAIMED = 'claimed'
DEPLOYING = 'deploying'
BUILT = 'built'

#: What must be of builds at the end, see :func:`tally`.
CARRIED_OUT = (
    criteria.none('error', '{} servers are in ERROR: see faults'),
    criteria.none('building', '{} servers are still in BUILD'),
    criteria.none('gone', '{} servers are gone'),
    criteria.none('not_on_one_machine',
                  '{} servers do not have one machine each'))


def stage(seen, server):
    """How far a build has come.

    :param seen: an Observation
    :returns: UNCLAIMED, CLAIMED, DEPLOYING or BUILT
    """
    instance = seen.instance_of.get(server)
    if instance is None or not instance.host:
        return UNCLAIMED
    if instance.vm_state == 'active':
        return BUILT
    node = seen.node_of.get(instance.node)
    # Without agents of Ironic's own there is no other state of a deployment.
    if node is not None and node.provision_state == 'deploying':
        return DEPLOYING
    return CLAIMED


def allocated(seen, servers):
    """Whether the scheduler has given each server a node."""
    return set(servers) <= {a.consumer for a in seen.allocations}


def begun(seen, servers):
    """Whether Ironic was told of each build."""
    return all(stage(seen, s) in (DEPLOYING, BUILT) for s in servers)


def half_begun(seen, servers):
    """Whether Ironic deploys some, and the others are not claimed."""
    stages = {stage(seen, server) for server in servers}
    return ({DEPLOYING, UNCLAIMED} <= stages and CLAIMED not in stages
            and allocated(seen, servers))


def at_rest(seen, servers):
    """Whether nothing goes on with any server, built or not."""
    found = (seen.instance_of.get(server) for server in servers)
    return not any(
        instance and not instance.deleted
        and (instance.task_state or instance.vm_state == 'building')
        for instance in found)


def on_one_machine(seen, server):
    """Whether nova, placement and Ironic agree on one machine for a server."""
    instance = seen.instance_of.get(server)
    held = [(n.uuid, n.provision_state) for n in seen.nodes
            if n.instance_uuid == server]
    given = [a.provider for a in seen.allocations if a.consumer == server]
    return (instance is not None
            and held == [(instance.node, 'active')]
            and given == [instance.node]
            and seen.owner_of.get(instance.node) == instance.host_key)


def tally(seen, before, found, dead=''):
    """Figures of what became of builds.

    :param seen: an Observation, after all
    :param before: {server: what :func:`stage` said of it}
    :param found: {server: description by nova} of all servers
    :param dead: the compute that is fenced, '' if none is
    """
    status = {server: found[server]['status'] if server in found else 'gone'
              for server in before}
    outcomes = collections.Counter(status.values())
    hosts = collections.Counter(
        found[server]['OS-EXT-SRV-ATTR:host'] or 'none' for server in before
        if server in found)
    return {
        'active': outcomes['ACTIVE'],
        'error': outcomes['ERROR'],
        'building': outcomes['BUILD'],
        'gone': outcomes['gone'],
        'lost': dict(collections.Counter(
            before[server] for server in before
            if status[server] != 'ACTIVE')),
        # The same message for several servers is one message.
        'faults': dict(collections.Counter(
            logs.without_uuids(_fault(found[server])) for server in before
            if status[server] == 'ERROR')),
        'hosts': dict(sorted(hosts.items())),
        'left_on_dead': sum(number for host, number in hosts.items()
                            if host.lower() == dead.lower()),
        'not_on_one_machine': sum(
            1 for server in before if status[server] == 'ACTIVE'
            and not on_one_machine(seen, server))}


def _fault(server):
    return (server.get('fault', {}).get('message')
            or 'ERROR without a message')
