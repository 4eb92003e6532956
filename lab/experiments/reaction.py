# SPDX-License-Identifier: Apache-2.0

"""One compute is killed: does it matter how rarely the others audit?

All computes are restarted with audits every 10 s, then with audits every
600 s, or as --every says. Each time the compute with most nodes is killed
(SIGKILL), and started again afterwards. Figures, for each interval: down_after
and usable_after, seconds from the kill until nova calls the compute down, and
until the last of its free nodes is recorded on a live compute that nova sends
builds to and is offered by placement; moves, moved_nodes and most_moves as in
kill, from the kill to that moment. limit is service_down_time and 15 s. In the
end the computes get their own interval back.

With --without placement, or conductor, that is killed right before the compute
and comes back when nova has called the compute down for some looks;
usable_after counts from the moment in which it answers. limit is then 15 s
after placement's return, and service_down_time more after the conductor's:
without it no heartbeat arrives, so that all have to be heard first.

Must be: usable_after no more than limit, most_moves 1, at each interval.
"""

import contextlib

from lab.bench import criteria
from lab.bench import operations
from lab import options
from lab import progress
from lab import stack as stacks
from lab import timeline

INTERVALS = (10, 600)
# What the guarantee leaves, after service_down_time.
REACTION = 15.0
OPTION = 'DEFAULT.update_resources_interval'
# Beyond an audit of all: a lab on a machine that is busy.
PATIENCE = 90.0
# What may be away meanwhile.
WITHOUT = {'placement': 'placement', 'conductor': 'nova-conductor'}
# Seconds in which each compute looks some times, in vain.
LOOKS = 10.0
# Whoever waits for an audit is not waited for.
AFTERWARDS = 200.0


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--every', type=options.positive, action='append', metavar='SECONDS',
        help='audit so rarely; may be repeated (default: 10 and 600)')
    parser.add_argument(
        '--without', choices=tuple(WITHOUT),
        help='what is away when the compute dies (default: nothing)')


def choices(args):
    """What the options ask of :func:`run`."""
    return {'intervals': tuple(args.every or INTERVALS),
            'without': args.without}


def run(bench, intervals, without):
    """Kill one at each interval; returns the figures.

    :param intervals: seconds between two audits of a compute
    :param without: one of :data:`WITHOUT`, or None
    """
    figures = {'limit': REACTION + (
                   0 if without == 'placement' else bench.down_time),
               'intervals': list(intervals), 'without': without}
    for interval in intervals:
        figures[f'every_{interval}_s'] = _kill_one(bench, interval, without)
    bench.note('the computes restart with their own interval')
    bench.computes.restart(bench.computes.names())
    # Nodes may be where the ring wants them while only a part is back.
    for name in bench.computes.names():
        bench.await_up(name)
    figures['quiet'] = bench.await_quiet()
    return figures


def failures(figures):
    """What is not as it must be, in sentences."""
    found = []
    for interval in figures['intervals']:
        some = figures[f'every_{interval}_s']
        when = f'with audits every {interval} s: '
        if some['usable_after'] is None or (
                some['usable_after'] > figures['limit']):
            found.append(f'{when}free nodes of a dead compute could be used '
                         f'after {some["usable_after"]} s, not within '
                         f'{figures["limit"]}')
        found += criteria.unmet(some, criteria.once(
            'most_moves', 'a node moved {} times'), when=when)
    return found + criteria.unmet(figures, criteria.QUIET)


def _kill_one(bench, interval, without):
    bench.note(f'the computes restart, with audits every {interval} s')
    bench.computes.restart(bench.computes.names(), [f'{OPTION}={interval}'])
    bench.recorder.wait_for(
        lambda seen: operations.usable(
            seen, seen.node_of.keys() - seen.used_nodes, ''),
        interval + PATIENCE, 'all nodes being usable')
    name, nodes = bench.busiest
    free = [n for n in nodes if n not in bench.recorder.view.used_nodes]
    with _away(bench, without):
        killed = bench.kill(name)
        down = bench.await_down(name)
    since = bench.recorder.now() if without else killed
    try:
        at = bench.recorder.wait_for(
            lambda seen: operations.usable(seen, free, name),
            AFTERWARDS if without else bench.down_time + interval + PATIENCE,
            f'free nodes of {name} being usable elsewhere')
        bench.note('free nodes are usable')
    except timeline.NeverHappened:
        at = None
    moves = bench.recorder.timeline.moves(killed)
    bench.start(name)
    return {'killed': name,
            'its_free_nodes': len(free),
            'down_after': round(down - killed, 1),
            'usable_after': None if at is None else round(at - since, 1),
            'left': sum(1 for node in free if not operations.usable(
                bench.recorder.view, [node], name)) if at is None else 0,
            'moves': len(moves),
            'moved_nodes': timeline.moved_nodes(moves),
            'most_moves': timeline.most_moves(moves)}


@contextlib.contextmanager
def _away(bench, what):
    """Have something away for a while, and some looks longer.

    :param what: one of :data:`WITHOUT`, or None
    """
    if what is None:
        yield
        return
    stack = stacks.Stack(bench.settings, progress.Progress())
    with bench.recorder.gaps():
        bench.note(f'kill {what}')
        stack.kill(WITHOUT[what])
        try:
            yield
            bench.recorder.watch(LOOKS)
        finally:
            # A lab that was up before is to be of use afterwards.
            stack.start(WITHOUT[what])
        bench.note(f'{what} answers')
