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

"""One more compute joins: what moves, and can it be used when it has?

Figures: up_after and mapped_after seconds, moves, moves between old
computes (needless), moves before the new compute was mapped to a cell (a
build sent to such a node fails), on_dead_hosts (the most nodes recorded at
one moment on a compute that was not up), and the split at the end.

The compute is stopped again at the end; it stays known to the lab.
"""

from lab import timeline as timelines


def run(bench):
    """Add a compute, watch, stop it; returns the figures."""
    old = {name.lower() for name in bench.computes.names()}
    number = 1 + max(int(name.rpartition('-')[2]) for name in old)
    name = f'compute-{number}'
    added = bench.note(f'add {name}')
    bench.computes.add(name)
    bench.await_up(name)
    quiet = bench.await_quiet()
    timeline = bench.recorder.timeline
    moves = timeline.moves(added)
    figures = {
        'added': name,
        'up_after': _after(timeline, added, lambda s: name in s.up),
        'mapped_after': _after(timeline, added,
                               lambda s: name in s.mapped),
        'moves': len(moves),
        'moved_nodes': timelines.moved_nodes(moves),
        'most_moves': timelines.most_moves(moves),
        'between_old': sum(1 for m in moves
                           if m.old in old and m.new in old),
        'before_mapped': sum(1 for m in moves if not m.mapped),
        'on_dead_hosts': timeline.on_dead_hosts(added),
        'quiet': quiet,
        'split': timeline.split()}
    bench.note(f'stop {name}')
    bench.computes.stop(name)
    bench.await_down(name)
    bench.await_arrival(name, bench.recorder.view.owned_by(name))
    return figures


def _after(timeline, added, condition):
    """Seconds until a condition held for a sample, None if it never did."""
    for sample in timeline.samples:
        if sample.t >= added and condition(sample):
            return round(sample.t - added, 1)
    return None
