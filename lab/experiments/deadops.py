# SPDX-License-Identifier: Apache-2.0

"""A compute is dead: what becomes of operations on its servers?

One server for each operation is booted on the compute with most nodes. It
is killed, nova notices, then each server gets its operation: reboot, stop,
rebuild, delete, force-delete. For each the figures tell nova's answer, the
state after a minute with the compute dead, and the state after it has come
back. leaked_while_dead and leaked_after count machines that Ironic still
holds for a deleted server.
"""

from lab.bench import criteria
from lab import errors

DEAD = 60.0
# From 2.93 on rebuild fails for every baremetal server (nova's bug 2127017).
MICROVERSION = '2.92'
# The reaper of nova-compute runs every 5 s here.
RETURNED = 60.0
BUILD_TIMEOUT = 120.0


def _operations(image):
    """Name of each operation -> method, path below the server, body."""
    return {
        'reboot': ('POST', '/action', {'reboot': {'type': 'HARD'}}),
        'stop': ('POST', '/action', {'os-stop': None}),
        'rebuild': ('POST', '/action', {'rebuild': {'imageRef': image}}),
        'delete': ('DELETE', '', None),
        'force-delete': ('POST', '/action', {'forceDelete': None}),
    }


def outcome(seen, server):
    """What has become of a server, in a few words, from an Observation."""
    instance = seen.instance_of.get(server)
    if instance is None or instance.deleted:
        held = any(n.instance_uuid == server for n in seen.nodes)
        return 'gone, machine leaked' if held else 'gone'
    if instance.task_state:
        return f'{instance.vm_state}, in {instance.task_state}'
    return instance.vm_state


def run(bench):
    """Boot, kill, operate, watch, start again; returns the figures."""
    name, _ = bench.busiest
    image = next(iter(bench.cloud.sdk.image.images())).id
    operations = _operations(image)
    bench.note(f'boot {len(operations)} servers on {name}')
    servers = _boot(bench, name, operations, image)
    bench.kill(name)
    bench.await_down(name)
    bench.note('operations')
    answers = {operation: _ask(bench.cloud, servers[operation], *request)
               for operation, request in operations.items()}
    bench.recorder.watch(DEAD)
    dead = bench.recorder.view
    bench.start(name)
    bench.recorder.watch(RETURNED)
    after = bench.recorder.view
    bench.cloud.delete([s for s in servers.values()
                        if outcome(after, s)[:4] != 'gone'])
    ours = set(servers.values())
    return {
        'killed': name,
        'operations': {
            operation: {'answer': answers[operation],
                        'while_dead': outcome(dead, server),
                        'after_return': outcome(after, server)}
            for operation, server in servers.items()},
        'stuck_while_dead': sum(
            1 for s in ours if ', in ' in outcome(dead, s)),
        'leaked_while_dead': len([
            n for n in dead.leaked() if n.instance_uuid in ours]),
        'leaked_after': len([
            n for n in after.leaked() if n.instance_uuid in ours])}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, criteria.none(
        'leaked_after', '{} machines are held for deleted servers'))


def _boot(bench, host, operations, image):
    """Boot one server per operation on a host; {operation: uuid}.

    One after the other: the scheduler gives a request for one host no other
    node to try when two of them collide.
    """
    [flavor] = bench.cloud.nova('GET', '/flavors')['flavors']
    servers = {}
    for operation in operations:
        created = bench.cloud.nova('POST', '/servers', {'server': {
            'name': f'deadops-{operation}', 'flavorRef': flavor['id'],
            'imageRef': image, 'networks': 'none',
            'availability_zone': f'nova:{host}'}})
        server = servers[operation] = created['server']['id']
        bench.recorder.wait_for(
            lambda seen, server=server:
                outcome(seen, server) in ('active', 'error'),
            BUILD_TIMEOUT, f'building the server for {operation}')
        if outcome(bench.recorder.view, server) != 'active':
            raise errors.LabError(
                f'The server for {operation} did not become active on '
                f'{host}; see why with: tools/lab logs {host}')
    return servers


def _ask(cloud, server, method, below, body):
    """Ask for an operation; nova's answer in words."""
    from keystoneauth1 import exceptions

    try:
        cloud.session.request(
            f'/servers/{server}{below}', method, json=body,
            microversion=MICROVERSION, endpoint_filter={
                'service_type': 'compute', 'interface': 'public'})
    except exceptions.HttpError as error:
        return f'refused: {error}'
    return 'accepted'
