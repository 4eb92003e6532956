# SPDX-License-Identifier: Apache-2.0

"""A compute is disabled, and enabled again when all is at rest.

The compute with most nodes is taken: its free nodes are to leave, and to
come back. Figures of both phases: moves, moved_nodes, most_moves of one
node, most_moves_per_change (the same between two changes of members),
needless (moves from a live compute to one that the ring does not prefer),
unschedulable (nodes that moved to a compute while nova sent no builds to
it), left (free nodes of that compute at the end), settled_after seconds,
quiet and moves_after_quiet, in two audits after that.

Must be, in both phases: needless, unschedulable and moves_after_quiet 0,
most_moves_per_change at most 1, quiet. While it is disabled: left 0.
"""

from lab.bench import phases

PHASES = (phases.Phase('disabled', 'disable', empties=True),
          phases.Phase('enabled', 'enable'))


def run(bench):
    """Disable, watch, enable, watch; returns the figures."""
    return phases.run(bench, 'drained', PHASES)


def failures(figures):
    """What is not as it must be, in sentences."""
    return phases.failures(figures, PHASES)
