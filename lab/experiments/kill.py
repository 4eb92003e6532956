# SPDX-License-Identifier: Apache-2.0

"""One compute is killed (SIGKILL): when can its free nodes be used again?

The compute with most nodes is taken. Figures: down_after and
free_nodes_on_live_hosts_after (seconds after the kill), moves, moved_nodes
(how many different ones), most_moves of one node, needless (moves from a
live compute to one that the ring does not prefer), unschedulable (nodes that
moved to a compute while nova sent no builds to it) and quiet. The compute is
started again afterwards; that is not part of the figures.

Must be: most_moves at most 1 for each change of members, needless and
unschedulable 0, quiet.
"""

from lab.bench import criteria


def run(bench):
    """Kill, watch, start again; returns the figures."""
    name, nodes = bench.busiest
    free = [n for n in nodes if n not in bench.recorder.view.used_nodes]
    killed = bench.kill(name)
    down = bench.await_down(name)
    bench.await_arrival(name, free)
    quiet = bench.await_quiet()
    arrived = bench.recorder.timeline.arrived(free, name.lower(), killed)
    moved = bench.moved(killed)
    bench.start(name)
    bench.await_places()
    return {'killed': name,
            'its_nodes': len(nodes),
            'its_free_nodes': len(free),
            'down_after': round(down - killed, 1),
            'free_nodes_on_live_hosts_after': arrived,
            **moved,
            'quiet': quiet}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, *criteria.MOVES)
