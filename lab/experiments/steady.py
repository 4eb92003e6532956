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

"""Nothing happens for a minute: does any node change its owner?

Figures: moves and split, the number of nodes that each live compute owns.
Must be: no moves.
"""

from lab.bench import criteria

SECONDS = 60.0


def run(bench):
    """Watch; returns the figures."""
    since = bench.note('begin')
    bench.recorder.watch(SECONDS)
    timeline = bench.recorder.timeline
    return {'watched': SECONDS,
            'moves': len(timeline.moves(since)),
            'split': timeline.split()}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(figures, criteria.none(
        'moves', '{} moves although nothing happened'))
