# SPDX-License-Identifier: Apache-2.0

"""A killed compute comes back: what moves, what is unusable meanwhile?

Figures, all from the moment it is started: up_after seconds, moves,
moved_nodes (how many different ones), most_moves of one node,
most_moves_per_change (the same between two changes of members), needless
(moves from a live compute to one that the ring does not prefer),
unschedulable (nodes that moved to a compute while nova sent no builds to
it: down, disabled, not mapped), on_dead_hosts (the most nodes that were
recorded at one moment on a compute that was not up), quiet and split.

Must be: needless and unschedulable 0, most_moves_per_change at most 1,
quiet.
"""

from lab.bench import criteria


def run(bench):
    """Kill, wait until its nodes have new owners, start; figures."""
    name, nodes = bench.busiest
    free = [n for n in nodes if n not in bench.recorder.view.used_nodes]
    bench.kill(name)
    bench.await_down(name)
    bench.await_arrival(name, free)
    bench.await_places()
    started, up = bench.start(name)
    quiet = bench.await_quiet()
    timeline = bench.recorder.timeline
    return {'restarted': name,
            'its_nodes': len(nodes),
            'up_after': round(up - started, 1),
            **bench.moved(started),
            'on_dead_hosts': timeline.on_dead_hosts(started),
            'quiet': quiet,
            'split': timeline.split()}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, *criteria.MOVES)
