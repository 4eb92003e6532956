# SPDX-License-Identifier: Apache-2.0

"""A compute with servers dies and is fenced: others manage its servers.

Eight servers are booted on the compute with most nodes. It is killed, and
before nova notices users ask for a reboot, a stop and a delete, which wait in
its queue. Then it is forced down; with --policy down it is not, and the
driver has to see by itself that it is gone for good. While it stays dead
users go on: reboot, stop, start, rebuild, rescue, delete. At the end it is
started again, and what waited in its queue arrives.

Figures: killed_to_last_taken_over and fenced_to_last_taken_over (seconds
until each of its servers is on a live compute, and the record of its node
too; None when that did not come to pass), asked_before (seconds from the
fence, or the kill without one, until what was asked for before was done or
given up and the server at rest), operations (seconds of each, None when not
done; they are started when all servers are taken over), not_done (why),
error, stuck (in the middle of something) and leaked_while_dead (machines
held for servers that are gone) before the compute returns; after_return:
changed (what is not as it was before), touched (servers to whose machines
Ironic has written since), deeds (what the compute did or tried, by nova's
word).

Must be: all seconds known, error and stuck 0; after the return nothing
changed and no machine touched; leaked 0, consistent.
"""

from lab.bench import criteria
from lab.bench import operations
from lab.bench import takeover
from lab.bench import wanted

FORCED_DOWN = 'forced_down'
# What is set for each policy. The seconds must exceed those after which nova
# calls a compute down.
POLICIES = {
    FORCED_DOWN: (),
    'down': ('ironic_multihost.instance_takeover=down',
             'ironic_multihost.takeover_after=15'),
}
# What is asked for before nova notices.
BEFORE = {'deleted before': operations.DELETE,
          'stopped before': operations.STOP,
          'rebooted before': operations.REBOOT}


def _chains(image):
    """Operations on each server of a dead compute, in their order."""
    return {
        'rebooted': [operations.REBOOT, operations.SOFT_REBOOT],
        'stopped': [operations.STOP, operations.START],
        'rebuilt': [operations.rebuild(image, operations.OLD_REBUILD),
                    operations.rebuild(image)],
        'rescued': [operations.RESCUE, operations.UNRESCUE,
                    operations.FORCE_DELETE],
        'deleted': [operations.DELETE],
    }


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--policy', choices=tuple(POLICIES), default=FORCED_DOWN,
        help='fence the compute (forced_down), or have the driver take over '
        'the servers of one that is down for long (down), without a fence; '
        'default: forced_down')


def needs(args):
    """The lab that the options ask for."""
    return wanted.Wanted(options=POLICIES[args.policy])


def choices(args):
    """What the options ask of :func:`run`."""
    return {'policy': args.policy}


def run(bench, policy):
    """Boot, kill, fence, operate, start again; returns the figures.

    :param policy: which computes lose their servers, of :data:`POLICIES`
    """
    name, _ = bench.busiest
    chains = _chains(next(iter(bench.cloud.sdk.image.images())).id)
    labels = [*BEFORE, *chains]
    bench.note(f'boot {len(labels)} servers on {name}')
    servers = takeover.Servers(bench, name, operations.boot_on(
        bench, name, labels, 'fenced'))
    operator = servers.operator()

    killed = bench.kill(name)
    bench.say('reboot, stop, delete')
    for label, operation in BEFORE.items():
        operator.ask(servers[label], operation)
    rests = takeover.Rests(bench, {
        label: (servers[label], operation)
        for label, operation in BEFORE.items()})
    fenced = None
    if policy == FORCED_DOWN:
        fenced = bench.note(f'fence {name}')
        bench.computes.fence(name)
    taken = servers.await_taken_over(_patience(bench, policy))
    before = rests.seconds(killed if fenced is None else fenced,
                           takeover.BOUND)

    chains |= servers.start_again('stopped before')
    bench.note('operations')
    done = operator.chains(
        [(servers[label], chain) for label, chain in chains.items()])
    bench.recorder.watch(2)
    dead = servers.ledger()
    leaked = len(bench.recorder.view.leaked())

    takeover.bring_back(bench, name, fenced is not None)
    bench.recorder.watch(takeover.RETURNED)
    after = servers.ledger()
    servers.delete()
    return {
        'policy': policy,
        'killed': name,
        'killed_to_last_taken_over': takeover.between(killed, taken),
        'fenced_to_last_taken_over': takeover.between(fenced, taken),
        'asked_before': before,
        'operations': operations.seconds(done),
        'not_done': operations.not_done(done),
        **servers.meanwhile(dead),
        'leaked_while_dead': leaked,
        'after_return': servers.returned(dead, after)}


def failures(figures):
    """What is not as it must be, in sentences."""
    return [
        *criteria.unmet(
            figures,
            criteria.true('killed_to_last_taken_over',
                          'its servers were not taken over in time'),
            *takeover.MEANWHILE, criteria.LEAKED),
        *takeover.undone(figures),
        *takeover.undisturbed(figures['after_return'], 'returned: ')]


def _patience(bench, policy):
    """Seconds that taking over may last."""
    audits = takeover.AUDITS * bench.audit
    if policy == FORCED_DOWN:
        return audits
    return bench.down_time + bench.takeover_after + audits
