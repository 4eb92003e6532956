# SPDX-License-Identifier: Apache-2.0

"""All computes start at the same moment on an empty database.

None of them has a record yet by which the others would see it, and each would
take every node. Figures, from the start: owned_after (seconds until each node
has a record on a live, mapped compute), created (records; each node needs
one), moves, moved_nodes, most_moves of one node, needless (moves from a live
compute to one that the ring does not prefer), died (computes whose process
ended at the start), quiet, moves_after_quiet, in two audits after that, split,
and what the computes logged, each message with its number: errors, and
warnings, both without those that are usual at such a start.

Must be: most_moves at most 1, nothing died, quiet, moves_after_quiet 0, no
errors and no warnings.
"""

from lab.bench import criteria
from lab.bench import logs

COLD = True
PATIENCE = 240.0
# What nova warns of at the first start of any compute, with any driver: of
# each record that it is about to create, and of how oslo.service runs. This
# driver warns, too, until the lab has mapped the hosts to their cell.
USUAL = ('No compute node record', 'no_fork=True', 'is not mapped to a cell')
# Two computes that do not see each other yet tell placement of one node in the
# same moment. nova logs an error, and repeats it: "retrying" on
# ResourceTracker._update_to_placement, nova/compute/resource_tracker.py.
REPEATED = '"code": "placement.concurrent_update"'


def run(bench):
    """Start all, map them, watch; returns the figures."""
    names = bench.computes.names()
    written = logs.Logs(bench.computes)
    started = bench.note(f'start {len(names)} computes')
    bench.computes.spawn(names)
    bench.recorder.wait_for(
        lambda seen: seen.up_hosts >= {n.lower() for n in _alive(bench)},
        PATIENCE, 'the computes coming up')
    # As an operator does once they are there, and "lab up" too.
    bench.computes.map_to_cell()
    bench.note('mapped to the cell')
    owned = bench.recorder.wait_for(
        _owned, PATIENCE, 'each node having a live owner')
    rest = bench.settle()
    timeline = bench.recorder.timeline
    text = ''.join(line for line in written.text().splitlines(keepends=True)
                   if REPEATED not in line)
    return {'owned_after': round(owned - started, 1),
            'created': timeline.created(started),
            **bench.moved(started),
            'died': sorted(set(names) - _alive(bench)),
            'quiet': rest.quiet,
            'moves_after_quiet': rest.late,
            'split': timeline.split(),
            'errors': logs.messages(text, 'ERROR'),
            'warnings': {
                message: number for message, number
                in logs.messages(text, 'WARNING').items()
                if not any(usual in message for usual in USUAL)}}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.once('most_moves', 'a node moved {} times'),
        criteria.none('died', 'nova-compute ended at its start: {}'),
        criteria.none('errors', 'the computes logged errors: {}'),
        criteria.none('warnings', 'the computes logged warnings: {}'),
        criteria.QUIET)


def _alive(bench):
    return {name for name in bench.computes.names()
            if bench.computes.process_state(name) != 'stopped'}


def _owned(seen):
    services = [seen.service_of.get(seen.owner_of.get(node.uuid))
                for node in seen.nodes]
    return all(s and s.up and s.mapped for s in services)
