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

"""What nova's own driver would use with more nodes than it was given.

With 10,000 nodes it takes an hour for what ours does in seconds. What it uses
grows with the number of nodes, as each of them is asked for and audited each
time, so that it can be measured with fewer.
"""


def grown(figures, by_node, factor):
    """Return figures of as many times the nodes.

    :param figures: {name: number}, measured.
    :param by_node: the part of them that grows with the nodes.
    :param factor: how many times as many there are.
    """
    return {name: value + by_node.get(name, 0) * (factor - 1)
            for name, value in figures.items()}


def note(found):
    """Return lines that say so, none if all was measured.

    :param found: what a benchmark has found, with how many ``nodes`` and
        ``stock nodes``.
    """
    if found['nodes'] == found['stock nodes']:
        return []
    return [f'stock: measured with {found["stock nodes"]} nodes; what grows '
            f'with them in proportion']
