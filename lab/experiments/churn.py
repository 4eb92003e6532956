# SPDX-License-Identifier: Apache-2.0

"""Computes are killed and restarted at random under load.

Four workers boot and delete servers without pause, while a compute picked
by chance is killed and started again, --cycles times. Figures: servers,
active, error (split: a compute of the server was killed while it was being
built, or not, with nova's messages for those), stuck (neither in five
minutes; stuck_own_compute_killed of them as above), not_deleted, moves,
most_moves of one node, needless (moves from a live compute to one that the
ring does not prefer), unschedulable (nodes that moved to a compute while
nova sent no builds to it), leaked (machines that Ironic holds for servers
that are gone) and whether all is consistent at the end. With --fence a
watcher does what an HA tool would: as soon as nova calls a killed compute
down it is forced down, and when it was started again no longer; fenced tells
how often that was, taken_over how often a server that was built got another
compute. Some servers stay all the time then; residents_lost are those that
are not ACTIVE at the end. With --polite a compute is told to end (SIGTERM),
and its time away begins when it has.

Must be: error, stuck, not_deleted, leaked and residents_lost 0, quiet,
consistent.
"""

import dataclasses
import random
import time

from lab.bench import criteria
from lab.bench import residents as remaining
from lab import options
from lab import workload

WORKERS = 4
# With a fence, servers that are there from the beginning to the end.
RESIDENTS = 6


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--cycles', type=options.positive, default=10, metavar='N',
        help='kill and restart this often (default: 10)')
    parser.add_argument(
        '--seed', type=int, metavar='N',
        help='choose as a run with this seed did (default: by chance; '
        'printed)')
    parser.add_argument(
        '--fence', action='store_true',
        help='force down what was killed when nova calls it down, until it '
        'is started again')
    parser.add_argument(
        '--polite', action='store_true',
        help='SIGTERM instead of SIGKILL')


def choices(args):
    """What the options ask of :func:`run`."""
    seed = int(time.time()) if args.seed is None else args.seed
    return {'cycles': args.cycles, 'seed': seed, 'fence': args.fence,
            'polite': args.polite}


def run(bench, cycles, seed, fence, polite=False):
    """Kill and restart under load; returns the figures.

    :param cycles: how often a compute is killed and restarted
    :param seed: where the choices of computes and of seconds come from
    :param fence: whether a watcher fences computes that were killed
    :param polite: whether they are told to end instead
    """
    chance = random.Random(seed)
    names = bench.computes.names()
    # Dead for long enough, sometimes, that nova notices and the free nodes
    # find new owners; for so short a time, sometimes, that nobody does and
    # casts still wait in the queue. 4 to 20 and 5 to 15 s, unless the lab
    # has other intervals.
    dead = (0.5 * bench.down_time, bench.down_time + 1.2 * bench.audit)
    alive = (0.5 * bench.audit, 1.5 * bench.audit)
    outages = []
    chosen = workload.Choices()
    bench.recorder.listen(chosen.see)
    adoptions = remaining.Adoptions()
    bench.recorder.listen(adoptions.see)
    watcher = bench.watcher()
    residents = []
    if fence:
        residents = bench.cloud.boot(RESIDENTS, 'resident')
        bench.recorder.listen(watcher.see)
    begin = bench.note(f'{WORKERS} workers begin')
    with workload.Workload(bench.settings, WORKERS, 'churn',
                           bench.recorder.now) as load:
        bench.recorder.watch(10)
        for _ in range(cycles):
            name = chance.choice(names)
            killed = bench.end(name) if polite else bench.kill(name)
            bench.recorder.watch(chance.uniform(*dead))
            # Not marked: a picture with all the starts could not be read.
            bench.say(f'start {name}')
            bench.computes.start(name)
            outages.append(workload.Outage(name, killed,
                                           bench.await_up(name)))
            bench.recorder.watch(chance.uniform(*alive))
        bench.note('workers end')
    quiet = bench.await_quiet()
    found = {server['id']: server for server in bench.cloud.servers()}
    bench.cloud.delete(server for server in residents if server in found)
    return {'cycles': cycles,
            'seed': seed,
            'fenced': watcher.fenced,
            'taken_over': adoptions.count,
            'residents_lost': remaining.lost(residents, found),
            **workload.tally(
                [dataclasses.replace(
                    life, hosts=life.hosts | chosen.of(life.server))
                 for life in load.lives], outages),
            **bench.moved(begin),
            'quiet': quiet}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.none('error', '{} servers are in ERROR'),
        criteria.none('stuck', '{} servers were neither ACTIVE nor ERROR in '
                      'time'),
        criteria.none('not_deleted', '{} servers could not be deleted'),
        criteria.none('residents_lost', 'servers that nobody touched: {}'),
        criteria.LEAKED, criteria.QUIET)
