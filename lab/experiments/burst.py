# SPDX-License-Identifier: Apache-2.0

"""As many servers as there are nodes are asked for at the same time.

Each is a request of its own, so they compete for the nodes. nova has the
settings of the documentation for clouds with virtual machines, and three fake
hosts for these are there, too.

Figures: servers, active, faults (nova's messages with their number, of the
servers that are in ERROR) and built_after (seconds until the last one was
ACTIVE or in ERROR).

Must be: all ACTIVE, consistent.
"""

import collections

from lab.bench import criteria
from lab.bench import wanted

VIRTUAL = 3
PATIENCE = 900
NEEDS = wanted.Wanted(nodes=100, options=(
    # With the lab's 8 s heartbeats come too late while all is busy.
    'DEFAULT.report_interval=10',
    'DEFAULT.service_down_time=60',
    'filter_scheduler.host_subset_size=1',
    'filter_scheduler.shuffle_best_same_weighed_hosts=true',
    'scheduler.max_attempts=10',
    # Its default: transactions keep servers from one node here.
    'placement:placement.allocation_conflict_retry_count=10',
    'placement:placement_database.connection_parameters='
    'init_command=SET+SESSION+TRANSACTION+ISOLATION+LEVEL+READ+COMMITTED'))


def run(bench):
    """Ask for the servers; returns the figures."""
    hosts = [f'virtual-{number}' for number in range(1, VIRTUAL + 1)]
    for host in hosts:
        bench.computes.add(host, 'virtual')
    count = len(bench.recorder.view.nodes)
    begin = bench.note(f'{count} servers are asked for')
    made = set(bench.cloud.boot(count, 'burst', timeout=PATIENCE))
    built = bench.note('each is ACTIVE or in ERROR')
    found = [server for server in bench.cloud.servers()
             if server['id'] in made]
    bench.cloud.delete(made, timeout=PATIENCE)
    for host in hosts:
        bench.computes.kill(host)
        bench.cloud.forget_service(host)
    return {'servers': count,
            'active': sum(one['status'] == 'ACTIVE' for one in found),
            'faults': dict(collections.Counter(
                one['fault']['message'] for one in found if 'fault' in one)),
            'built_after': round(built - begin, 1)}


def failures(figures):
    """Return the criteria that are not met, in sentences."""
    return criteria.unmet(figures, criteria.none(
        'faults', 'servers did not become ACTIVE: {}'))
