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

"""A compute stands still for 30 s (SIGSTOP) and goes on.

It never knew that it was away, and wakes with an old view of the others.
Figures: moves, moved_nodes, most_moves of one node, from the moment it
froze; up_after and moves_back from the moment it went on.
"""

from lab import timeline as timelines

SECONDS = 30.0


def run(bench):
    """Freeze, continue, watch; returns the figures."""
    name, nodes = bench.busiest
    frozen = bench.note(f'freeze {name}')
    bench.computes.pause(name)
    try:
        bench.recorder.watch(SECONDS)
    finally:
        bench.computes.resume(name)
    resumed = bench.note(f'continue {name}')
    up = bench.await_up(name)
    quiet = bench.await_quiet()
    timeline = bench.recorder.timeline
    moves = timeline.moves(frozen)
    return {'frozen': name,
            'its_nodes': len(nodes),
            'for': SECONDS,
            'up_after': round(up - resumed, 1),
            'moves': len(moves),
            'moves_back': len(timeline.moves(resumed)),
            'moved_nodes': timelines.moved_nodes(moves),
            'most_moves': timelines.most_moves(moves),
            'on_dead_hosts': timeline.on_dead_hosts(resumed),
            'quiet': quiet}
