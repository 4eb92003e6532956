# SPDX-License-Identifier: Apache-2.0

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
