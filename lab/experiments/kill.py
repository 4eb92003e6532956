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

"""One compute is killed (SIGKILL): when can its free nodes be used again?

The compute with most nodes is taken. Figures: down_after and
free_nodes_on_live_hosts_after (seconds after the kill), moves, and
most_moves, how often the node that moved most did so (once is right). The
compute is started again afterwards; that is not part of the figures.
"""

from lab import timeline as timelines


def run(bench):
    """Kill, watch, start again; returns the figures."""
    name, nodes = bench.busiest
    free = [n for n in nodes if n not in bench.recorder.view.used_nodes]
    killed = bench.kill(name)
    down = bench.await_down(name)
    bench.await_arrival(name, free)
    quiet = bench.await_quiet()
    timeline = bench.recorder.timeline
    until = bench.recorder.now()
    moves = timeline.moves(killed, until)
    bench.start(name)
    bench.await_quiet()
    return {'killed': name,
            'its_nodes': len(nodes),
            'its_free_nodes': len(free),
            'down_after': round(down - killed, 1),
            'free_nodes_on_live_hosts_after': timeline.arrived(
                free, name.lower(), killed),
            'moves': len(moves),
            'moved_nodes': timelines.moved_nodes(moves),
            'most_moves': timelines.most_moves(moves),
            'quiet': quiet}
