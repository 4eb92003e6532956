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

"""Computes are killed and restarted at random under load.

Four workers boot and delete servers without pause, while a compute picked
by chance is killed and started again, --cycles times. Figures: servers,
active, error (split: a compute of the server was killed while it was being
built, or not, with nova's messages for those), moves, most_moves of one
node, leaked (machines that Ironic holds for servers that are gone) and
whether all is consistent at the end.
"""

import dataclasses

from lab import timeline as timelines
from lab import workload

WORKERS = 4
# Long enough that nova notices and the free nodes find new owners, short
# enough that some casts still wait in the queue.
DEAD = (4.0, 20.0)
ALIVE = (5.0, 15.0)


def run(bench):
    """Kill and restart under load; returns the figures."""
    chance = bench.chance
    names = bench.computes.names()
    outages = []
    choices = workload.Choices()
    bench.recorder.listen(choices.see)
    begin = bench.note(f'{WORKERS} workers begin')
    with workload.Workload(bench.settings, WORKERS, 'churn',
                           bench.recorder.now) as load:
        bench.recorder.watch(10)
        for _ in range(bench.cycles):
            name = chance.choice(names)
            killed = bench.kill(name)
            bench.recorder.watch(chance.uniform(*DEAD))
            # Not marked: a picture with all the starts could not be read.
            bench.say(f'start {name}')
            bench.computes.start(name)
            outages.append(workload.Outage(name, killed,
                                           bench.await_up(name)))
            bench.recorder.watch(chance.uniform(*ALIVE))
        bench.note('workers end')
    quiet = bench.await_quiet()
    moves = bench.recorder.timeline.moves(begin)
    return {'cycles': bench.cycles,
            'seed': bench.seed,
            **workload.tally(
                [dataclasses.replace(
                    life, hosts=life.hosts | choices.of(life.server))
                 for life in load.lives], outages),
            'moves': len(moves),
            'most_moves': timelines.most_moves(moves),
            'quiet': quiet}
