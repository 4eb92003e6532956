# SPDX-License-Identifier: Apache-2.0

"""A compute takes long to stop: when are its free nodes elsewhere?

Machines take 90 s to deploy. A compute is told to end (SIGTERM) in the middle
of --builds builds; from then on another build is asked for each second, four
in all, of whatever compute the scheduler likes. nova 34 waits for the builds,
and nova 33 in any case, much longer than service_down_time (30 s here, unless
--set says otherwise); with 31 and 32 it does not, and this fails. When it has
ended it is started again.

Figures: stopped, its_free_nodes; from the signal on usable_after, the seconds
until the last of its free nodes is recorded on a live compute that nova sends
builds to and is offered by placement, and ended_after, until the end of the
process; limit, service_down_time and 15 s; running (whether the process was
still there when the nodes were usable, or were no longer waited for);
built_at_its_end, how many of its builds were ACTIVE when it had ended;
sent_there, how many of the later builds the scheduler sent to it; the figures
of moves; at_rest_after, seconds from the start until nothing went on with any
of the builds. Of own (those it was at) and later (the four): active, error,
building, gone, faults, hosts and not_on_one_machine as in build-restart.

Must be: usable_after no more than limit, running; all builds ACTIVE, each on
one machine, at rest; most_moves_per_change at most 1, needless and
unschedulable 0, leaked 0, quiet, consistent.
"""

import concurrent.futures

from lab.bench import bench as benches
from lab.bench import criteria
from lab.bench import fates
from lab.bench import operations
from lab.bench import takeover
from lab.bench import wanted
from lab import options
from lab import timeline
from lab import workload

SECONDS = 90
DOWN_TIME = 30
# What may be asked of a machine has to wait until Ironic lets go of it.
RETRIES = 60 + SECONDS
BUILDS = 2
LATER = 4
# Until builds that were asked for have begun.
BEGIN = 90.0
# What the guarantee leaves, after service_down_time.
REACTION = 15.0
# Those that are late are watched this much longer.
LATE = 60.0
# Beyond a deployment that has only begun: a start on a busy machine.
PATIENCE = 180.0


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--builds', type=options.positive, default=BUILDS, metavar='N',
        help=f'how many builds it is at (default: {BUILDS})')


def needs(args):
    """The lab that the options ask for."""
    return wanted.Wanted(options=(
        # A deployment has two parts that take so long.
        f'ironic:fake.deploy_delay={SECONDS // 2}',
        f'ironic.api_max_retries={RETRIES}',
        f'DEFAULT.service_down_time={DOWN_TIME}',
        *wanted.at_once(args.builds)))


def choices(args):
    """What the options ask of :func:`run`."""
    return {'builds': args.builds}


def run(bench, builds=BUILDS):
    """Stop one in the middle of builds; returns the figures.

    :param builds: how many
    """
    sent = workload.Choices()
    bench.recorder.listen(sent.see)
    name, _ = bench.busiest
    own = _build_on(bench, name, builds)
    free = bench.recorder.view.free_of(name)
    limit = bench.down_time + REACTION
    told = bench.note(f'stop {name}')
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        ending = pool.submit(bench.computes.stop, name)
        later = _ask(bench)
        at = _await_usable(bench, free, name, limit + LATE)
        running = not ending.done()
        ending.result()
    ended = bench.note(f'{name} has ended')
    bench.recorder.watch(benches.SEEN)
    seen = bench.recorder.view
    built = sum(1 for s in own if fates.stage(seen, s) == fates.BUILT)
    started, _ = bench.start(name)
    rest = _await_rest(bench, [*own, *later])
    figures = {
        'stopped': name,
        'its_free_nodes': len(free),
        'limit': limit,
        'usable_after': takeover.between(told, at),
        'running': running,
        'ended_after': takeover.between(told, ended),
        'built_at_its_end': built,
        'sent_there': sum(
            1 for server in later if name.lower() in sent.of(server)),
        'at_rest_after': takeover.between(started, rest),
        **_outcomes(bench, own=own, later=later)}
    bench.note('delete what was built')
    bench.cloud.delete([*own, *later], timeout=PATIENCE)
    return {**figures, 'quiet': bench.await_quiet(), **bench.moved(told)}


def failures(figures):
    """What is not as it must be, in sentences."""
    found = []
    if figures['usable_after'] is None or (
            figures['usable_after'] > figures['limit']):
        found.append('free nodes of a compute that takes long to stop could '
                     f'be used after {figures["usable_after"]} s, not within '
                     f'{figures["limit"]}')
    for name in 'own', 'later':
        found += criteria.unmet(figures[name], *fates.CARRIED_OUT,
                                when=f'{name}: ')
    return found + criteria.unmet(
        figures,
        criteria.true('running', 'the compute had ended too soon to tell '
                      'anything'),
        criteria.true('at_rest_after', 'the builds never came to rest'),
        criteria.LEAKED, *criteria.MOVES)


def usable_or_given(seen, nodes, host):
    """Whether builds can be sent to nodes, or have been, and not to a host.

    A node to which a build has been sent stays where it is.
    """
    given = {allocation.provider for allocation in seen.allocations}
    return operations.usable(
        seen, [n for n in nodes if n not in given], host)


def _build_on(bench, name, builds):
    """Have a compute build; returns the servers when Ironic deploys them."""
    bench.note(f'{builds} builds on {name}')
    asked = operations.ask_on(
        bench, name, [f'build {n}' for n in range(1, builds + 1)],
        'slow-stop')
    servers = [server for server, _ in asked.values()]
    bench.recorder.wait_for(
        lambda seen: fates.begun(seen, servers), BEGIN, 'the builds beginning')
    return servers


def _ask(bench):
    """Ask for builds, one each second; returns the servers."""
    servers = []
    for number in range(1, LATER + 1):
        servers.append(bench.cloud.create(f'slow-stop-later-{number}'))
        bench.recorder.watch(1)
    bench.note(f'{LATER} more builds have been asked for')
    return servers


def _await_usable(bench, nodes, name, patience):
    """When free nodes can be used elsewhere; None for not in time."""
    try:
        at = bench.recorder.wait_for(
            lambda seen: usable_or_given(seen, nodes, name), patience,
            f'free nodes of {name} being usable elsewhere')
    except timeline.NeverHappened:
        bench.note('free nodes are not usable')
        return None
    bench.note('free nodes are usable')
    return at


def _await_rest(bench, servers):
    """When nothing goes on with any server; None for not in time."""
    try:
        at = bench.recorder.wait_for(
            lambda seen: fates.at_rest(seen, servers), PATIENCE, 'rest')
    except timeline.NeverHappened:
        bench.note('the builds are not at rest')
        return None
    bench.note('the builds are at rest')
    bench.recorder.watch(benches.SEEN)
    return at


def _outcomes(bench, **builds):
    """What became of builds, as :func:`lab.bench.fates.tally` tells.

    :param builds: lists of servers by the names of their figures
    """
    seen = bench.recorder.view
    found = {server['id']: server for server in bench.cloud.servers()}
    told = ('active', 'error', 'building', 'gone', 'faults', 'hosts',
            'not_on_one_machine')
    figures = {}
    for name, servers in builds.items():
        tally = fates.tally(
            seen, {s: fates.stage(seen, s) for s in servers}, found)
        figures[name] = {figure: tally[figure] for figure in told}
    return figures
