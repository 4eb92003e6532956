# SPDX-License-Identifier: Apache-2.0

"""Servers come and go in a healthy cloud, and the computes have no complaint.

--servers servers are booted and deleted again, at most half as many at once as
there are nodes; then two audits more.

Figures: servers, active, error (those that were not ACTIVE), undeleted,
error_lines (how many lines of ERROR, and of tracebacks, the computes logged
meanwhile), errors (the messages of that level, each with its number), warnings
(the same of WARNING), leaked (machines that Ironic holds for servers that are
gone), quiet; moves, moved_nodes, most_moves of one node,
most_moves_per_change (the same between two changes of members), needless
(moves from a live compute to one that the ring does not prefer) and
unschedulable (nodes that moved to a compute while nova sent no builds to it).

Must be: error, undeleted, error_lines, moves and leaked 0, quiet, consistent.
"""

from lab.bench import criteria
from lab.bench import logs
from lab import options

SERVERS = 100
# Audits after the last server is gone.
AFTERWARDS = 2
# Seconds in which some servers are built, or are gone.
PATIENCE = 300


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--servers', type=options.positive, default=SERVERS, metavar='N',
        help=f'how many are booted and deleted (default: {SERVERS})')


def choices(args):
    """What the options ask of :func:`run`."""
    return {'servers': args.servers}


def run(bench, servers):
    """Boot and delete servers; returns the figures.

    :param servers: how many
    """
    written = logs.Logs(bench.computes)
    begin = bench.note(f'{servers} servers begin to come and go')
    outcomes = [
        _come_and_go(bench, count)
        for count in portions(servers, len(bench.recorder.view.nodes) // 2)]
    bench.note('the last one is gone')
    bench.recorder.watch(AFTERWARDS * bench.audit)
    quiet = bench.await_quiet()
    text = written.text()
    active = sum(active for active, _ in outcomes)
    return {'servers': servers, 'active': active, 'error': servers - active,
            'undeleted': sum(left for _, left in outcomes),
            'error_lines': logs.error_lines(text),
            'errors': logs.messages(text, 'ERROR'),
            'warnings': logs.messages(text, 'WARNING'),
            **bench.moved(begin), 'quiet': quiet}


def portions(number, at_once):
    """How many servers are there at once, again and again.

    :param number: of all
    :param at_once: the most of them
    """
    at_once = max(1, at_once)
    whole, rest = divmod(number, at_once)
    return [at_once] * whole + [rest] * bool(rest)


def failures(figures):
    """What is not as it must be, in sentences."""
    lines = figures['error_lines']
    return criteria.unmet(
        figures,
        criteria.none('error', '{} servers did not become ACTIVE'),
        criteria.none('undeleted', '{} servers could not be deleted'),
        criteria.none('moves', 'nodes moved {} times although nothing was '
                      'wrong'),
        criteria.Criterion(
            'errors', lambda _: not any(lines.values()),
            f'{lines["ERROR"]} lines of ERROR and {lines["Traceback"]} '
            'tracebacks in the logs of the computes: {}'),
        criteria.LEAKED, criteria.QUIET)


def _come_and_go(bench, count):
    """Boot some servers and delete them: (ACTIVE ones, those left)."""
    made = set(bench.cloud.boot(count, 'healthy', timeout=PATIENCE))
    active = sum(1 for server in bench.cloud.servers()
                 if server['id'] in made and server['status'] == 'ACTIVE')
    bench.cloud.delete(made, timeout=PATIENCE)
    return active, len(made & {s['id'] for s in bench.cloud.servers()})
