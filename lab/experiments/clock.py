# SPDX-License-Identifier: Apache-2.0

"""The clock of one compute is wrong.

Six servers are booted. The compute that has most of them is stopped, and
started with a clock that is --ahead seconds ahead (less than nothing: behind).
To it, all services are down then, its own included, as nova compares the last
sign of life with its own clock. When all is at rest six servers more are
booted and deleted; then the compute gets the right time back. The time is that
which nova reads; see lab/wrong_clock.py.

Figures: ahead, shifted (the compute); from its stop to the end: moves,
moved_nodes, most_moves of one node, most_moves_per_change (the same between
two changes of members), needless (moves from a live compute to one that the
ring does not prefer), unschedulable (nodes that moved to a compute while nova
sent no builds to it); active (of the six servers that were booted meanwhile),
undeleted (of those six), residents_lost (of the six from before), taken_over
(how often a server got another compute), leaked (machines that Ironic holds
for servers that are gone), quiet.

Must be: residents_lost, undeleted, taken_over, needless and leaked 0, quiet,
consistent. Builds that fail are told and not judged.
"""

from lab.bench import criteria
from lab.bench import residents as remaining
from lab import errors

SERVERS = 6


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--ahead', type=int, default=90, metavar='SECONDS',
        help='how far ahead the clock is; behind if negative (default: 90)')


def choices(args):
    """What the options ask of :func:`run`."""
    return {'ahead': args.ahead}


def run(bench, ahead):
    """Shift a clock, boot and delete, put it right; returns the figures.

    :param ahead: seconds by which it is ahead
    """
    adoptions = remaining.Adoptions()
    bench.recorder.listen(adoptions.see)
    residents = bench.cloud.boot(SERVERS, 'resident')
    bench.recorder.watch(bench.audit)
    name = remaining.busiest(bench)
    begin = bench.note(f'stop {name}')
    bench.computes.stop(name)
    bench.note(f'start {name}, {ahead:+d} s')
    bench.computes.start_at(name, ahead)
    bench.await_quiet()
    used = _use(bench)
    bench.note(f'the time of {name} is right again')
    bench.computes.restart([name])
    quiet = bench.await_quiet()
    found = {server['id']: server for server in bench.cloud.servers()}
    lost = remaining.lost(residents, found)
    bench.cloud.delete(set(residents) & set(found))
    return {'ahead': ahead, 'shifted': name, **bench.moved(begin), **used,
            'residents_lost': lost, 'taken_over': adoptions.count,
            'quiet': quiet}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.none('residents_lost', 'servers that nobody touched: {}'),
        criteria.none('undeleted', '{} servers could not be deleted'),
        criteria.none('taken_over', '{} times a server got another compute'),
        criteria.NEEDLESS, criteria.LEAKED, criteria.QUIET)


def _use(bench):
    """Figures of servers that are booted and deleted."""
    made = set(bench.cloud.boot(SERVERS, 'meanwhile'))
    active = sum(1 for server in bench.cloud.servers()
                 if server['id'] in made and server['status'] == 'ACTIVE')
    try:
        bench.cloud.delete(made)
    except errors.LabError as error:
        bench.say(str(error))
    left = made & {server['id'] for server in bench.cloud.servers()}
    return {'active': active, 'undeleted': len(left)}
