# SPDX-License-Identifier: Apache-2.0

"""What it takes to disable a compute service, and to enable it again.

One compute service has all nodes of a cloud at rest, see :mod:`.tracked`, and
its first audit is over. It is switched as nova-api does it: nova's database
has the service disabled, and the compute service is called by the method that
the request waits for (ComputeManager.set_host_enabled). Ours answers and
audits its nodes in the background, without the seconds until it begins. It is
read from placement's database when the last node carries the trait
COMPUTE_STATUS_DISABLED, or none does. Meanwhile builds claim nodes, one after
another with a pause in between, as in :mod:`.claiming`.

That is done a few times. Figures of disabling and of enabling: seconds until
the request is answered and until the last node is right, the median of each;
nodes in a second, by the latter; nodes that were never right; requests to
conductor and placement for each time, those of the claims among them; audits
of nodes; milliseconds of all claims.
"""

from concurrent import futures
import statistics
import time

from benchmarks import auditing
from benchmarks import claiming

#: How often it is disabled and enabled.
TIMES = 3

#: Seconds between two looks into placement's database, and until it is given
#: up after the compute service takes it for done.
POLL = 0.05
PATIENCE = 15

CASES = {'disable': False, 'enable': True}


def measure(settings, options, progress, nodes):
    """Return what is measured.

    :param nodes: how many, all of one compute service.
    """
    found = {}
    for driver, ask, rows in auditing.each_driver(
            settings, options, progress, nodes):
        turns = {case: [] for case in CASES}
        for number in range(1, TIMES + 1):
            for case, enabled in CASES.items():
                with progress.step(f'{driver}: {case}, {number}'):
                    turns[case].append(
                        _switch(ask, rows, enabled, nodes, settings))
        found[driver] = {case: figures(its, nodes)
                         for case, its in turns.items()}
    return {'nodes': nodes, **found}


def _switch(ask, rows, enabled, nodes, settings):
    """Return what is measured of one time."""
    builds = claiming.builds(rows, nodes)
    with futures.ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        answer = pool.submit(ask, 'switch', enabled, builds)
        ended = None
        while (left := rows.marked() if enabled else nodes - rows.marked()):
            if answer.done():
                ended = ended or time.monotonic()
                if time.monotonic() > ended + PATIENCE:
                    break
            time.sleep(POLL)
        done = time.monotonic() - begun
        its = answer.result()
    return {**its['result'], 'done': done, 'left': left,
            'conductor': its['asked'].get('conductor', 0),
            'placement': its['asked'].get(
                str(settings.port('placement')), 0)}


def figures(turns, nodes):
    """Return the figures of disabling, or of enabling.

    :param turns: what was measured each time.
    """
    def median(name):
        return statistics.median(its[name] for its in turns)

    return {
        'request': median('request'), 'done': median('done'),
        'each second': round(nodes / median('done')),
        'left': max(its['left'] for its in turns),
        'conductor': median('conductor'), 'placement': median('placement'),
        'audited': median('audited'),
        'refused': sum(its['refused'] for its in turns),
        **claiming.summary([
            seconds for its in turns for seconds in its['claims']])}


def table(found):
    """Return the figures as lines of text."""
    columns = {'request': 'request s', 'done': 'done s',
               'each second': 'nodes/s', 'left': 'left',
               'conductor': 'conductor', 'placement': 'placement',
               'audited': 'audits', 'claims': 'claims', 'refused': 'refused',
               'p50': 'p50 ms', 'p99': 'p99 ms'}
    return [f'{"":16}' + ''.join(f'{title:>10}' for title in columns.values()),
            *(f'{driver + " " + case:16}' + ''.join(
                f'{found[driver][case][name]:10.2f}'
                if name in ('request', 'done')
                else f'{found[driver][case][name]:10}' for name in columns)
              for driver in ('stock', 'ours') for case in CASES)]
