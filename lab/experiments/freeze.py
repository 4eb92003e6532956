# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
"""

from lab.bench import criteria


def run(bench):
    """Freeze, continue, watch; returns the figures."""
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


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, *criteria.MOVES)
