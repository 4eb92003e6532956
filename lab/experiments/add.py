# SPDX-License-Identifier: Apache-2.0

"""One more compute joins: what moves, and can it be used when it has?

Figures: up_after and mapped_after seconds, moves, moved_nodes, most_moves of
one node, most_moves_per_change (the same between two changes of members),
needless (moves from a live compute to one that the ring does not prefer),
unschedulable (nodes that moved to a compute while nova sent no builds to
it), between_old (moves between computes that were there before),
before_mapped (moves to the new compute before it was mapped to a cell: a
build sent to such a node fails), on_dead_hosts (the most nodes recorded at
one moment on a compute that was not up), split, quiet and
moves_after_quiet, in two audits after that.

Must be: needless, unschedulable, between_old, before_mapped and
moves_after_quiet 0, most_moves_per_change at most 1, quiet.

The compute is drained, stopped and removed at the end, which is not part of
the figures.
"""

from lab.bench import criteria


def run(bench):
    """Add a compute, watch, remove it; returns the figures."""
    old = {name.lower() for name in bench.computes.names()}
    number = 1 + max(int(name.rpartition('-')[2]) for name in old)
    name = f'compute-{number}'
    added = bench.note(f'add {name}')
    bench.computes.add(name)
    bench.await_up(name)
    rest = bench.settle()
    timeline = bench.recorder.timeline
    moves = timeline.moves(added)
    figures = {
        'added': name,
        'up_after': _after(timeline, added, lambda s: name in s.up),
        'mapped_after': _after(timeline, added,
                               lambda s: name in s.mapped),
        **bench.moved(added),
        'between_old': sum(1 for m in moves
                           if m.old in old and m.new in old),
        'before_mapped': sum(1 for m in moves if not m.mapped),
        'on_dead_hosts': timeline.on_dead_hosts(added),
        'split': timeline.split(),
        'quiet': rest.quiet,
        'moves_after_quiet': rest.late}
    bench.remove(name)
    bench.await_places()
    return figures


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures, *criteria.MOVES,
        criteria.none('between_old', '{} moves between computes that were '
                      'there before'),
        criteria.none('before_mapped', '{} nodes moved to the new compute '
                      'before it was mapped to a cell'))


def _after(timeline, added, condition):
    """Seconds until a condition held for a sample, None if it never did."""
    for sample in timeline.samples:
        if sample.t >= added and condition(sample):
            return round(sample.t - added, 1)
    return None
