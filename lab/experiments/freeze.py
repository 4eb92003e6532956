# SPDX-License-Identifier: Apache-2.0

"""A compute stands still (SIGSTOP) until it has lost its nodes, and goes on.

It never knew that it was away, and wakes with an old view of the others.
Figures: frozen_for (seconds, until its free nodes were on other computes);
from the moment it froze: moves, moved_nodes, most_moves of one node,
most_moves_per_change (the same between two changes of members), needless
(moves from a live compute to one that the ring does not prefer),
unschedulable (nodes that moved to a compute while nova sent no builds to
it); from the moment it went on: up_after, moves_back, on_dead_hosts; then
quiet and moves_after_quiet, in two audits after that.

Must be: needless, unschedulable and moves_after_quiet 0,
most_moves_per_change at most 1, quiet.

With --rounds N it stands still N times, for --for seconds in each --every
seconds, and is not waited for. Figures: moves_in_rounds, the moves in each
round; moves_at_rest, those after the second round; most_moves of one node in
all rounds; then quiet, when it stands still no more.

Must be: moves_at_rest 0, most_moves at most 2 (away and back), quiet.
"""

from lab.bench import criteria
from lab import options

# Away, and back.
TO_AND_FRO = 2


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--rounds', type=options.positive, metavar='NUMBER',
        help='stand still again and again (default: once, until its nodes '
             'are on other computes)')
    parser.add_argument(
        '--for', dest='seconds', type=options.positive, default=12,
        metavar='SECONDS', help='with --rounds: for so long (default: 12)')
    parser.add_argument(
        '--every', type=options.positive, default=45, metavar='SECONDS',
        help='with --rounds: from one time to the next (default: 45)')


def choices(args):
    """What the options ask of :func:`run`."""
    return {'rounds': args.rounds, 'seconds': args.seconds,
            'every': args.every}


def run(bench, rounds, seconds, every):
    """Freeze, continue, watch; returns the figures.

    :param rounds: how often, None for once, until it has lost its nodes
    :param seconds: how long each time
    :param every: seconds from one time to the next
    """
    if rounds:
        return _run_rounds(bench, rounds, seconds, every)
    name, nodes = bench.busiest
    free = bench.recorder.view.free_of(name)
    frozen = bench.note(f'freeze {name}')
    bench.computes.pause(name)
    try:
        bench.await_down(name)
        bench.await_arrival(name, free)
    finally:
        bench.computes.resume(name)
    resumed = bench.note(f'continue {name}')
    up = bench.await_up(name)
    rest = bench.settle()
    timeline = bench.recorder.timeline
    return {'frozen': name,
            'its_nodes': len(nodes),
            'frozen_for': round(resumed - frozen, 1),
            'up_after': round(up - resumed, 1),
            **bench.moved(frozen),
            'moves_back': len(timeline.moves(resumed)),
            'on_dead_hosts': timeline.on_dead_hosts(resumed),
            'quiet': rest.quiet,
            'moves_after_quiet': rest.late}


def _run_rounds(bench, rounds, seconds, every):
    name, nodes = bench.busiest
    begin, ends = bench.note(f'freeze {name} for {seconds} s in each {every} '
                             f's, {rounds} times'), []
    for _ in range(rounds):
        bench.computes.pause(name)
        try:
            bench.recorder.watch(seconds)
        finally:
            bench.computes.resume(name)
        bench.recorder.watch(every - seconds)
        ends.append(bench.recorder.now())
    bench.note(f'{name} stands still no more')
    timeline = bench.recorder.timeline
    moves = [len(timeline.moves(since, until)) for since, until
             in zip([begin, *ends], ends, strict=False)]
    return {'frozen': name,
            'its_nodes': len(nodes),
            'moves_in_rounds': moves,
            'moves_at_rest': sum(moves[TO_AND_FRO:]),
            'most_moves': bench.moved(begin, ends[-1])['most_moves'],
            'quiet': bench.await_quiet()}


def failures(figures):
    """What is not as it must be, in sentences."""
    if 'moves_in_rounds' not in figures:
        return criteria.unmet(figures, *criteria.MOVES)
    return criteria.unmet(
        figures,
        criteria.none('moves_at_rest', '{} moves after the second round'),
        criteria.Criterion(
            'most_moves', lambda moves: moves <= TO_AND_FRO,
            'a node moved {} times'),
        criteria.QUIET)
