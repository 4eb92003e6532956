# SPDX-License-Identifier: Apache-2.0

"""All computes are restarted the polite way, one after the other, under load.

Four workers boot and delete servers without pause while each compute in turn
is told to end (SIGTERM), ends, and is started again, in less time than nova
needs to call it down. Nobody is to notice. Figures: those of churn, where
"own compute killed" is here a compute of the server that was being restarted
while the server was built; stop_seconds and away_seconds of each compute
(from the signal to the end of its process, and until nova calls it up again).

Must be: error, stuck, not_deleted, moves and leaked 0, quiet, consistent.
"""

import dataclasses

from lab.bench import criteria
from lab.bench import wanted
from lab import workload

# A start takes longer in the lab than nova's patience is in it otherwise.
NEEDS = wanted.Wanted(options=('DEFAULT.service_down_time=60',))
WORKERS = 4
# Audits after each restart.
BETWEEN = 2.5


def run(bench):
    """Restart one after the other under load; returns the figures."""
    outages, stops = [], []
    choices = workload.Choices()
    bench.recorder.listen(choices.see)
    begin = bench.note(f'{WORKERS} workers begin')
    with workload.Workload(bench.settings, WORKERS, 'polite',
                           bench.recorder.now) as load:
        bench.recorder.watch(bench.audit)
        for name in bench.computes.names():
            told = bench.end(name)
            stops.append(bench.recorder.now() - told)
            _, up = bench.start(name)
            outages.append(workload.Outage(name, told, up))
            bench.recorder.watch(BETWEEN * bench.audit)
        bench.note('workers end')
    quiet = bench.await_quiet()
    return {**workload.tally(
                [dataclasses.replace(
                    life, hosts=life.hosts | choices.of(life.server))
                 for life in load.lives], outages),
            'stop_seconds': [round(seconds, 1) for seconds in stops],
            'away_seconds': [round(o.until - o.since, 1) for o in outages],
            **bench.moved(begin),
            'quiet': quiet}


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.none('error', '{} servers are in ERROR'),
        criteria.none('stuck', '{} servers were neither ACTIVE nor ERROR in '
                      'time'),
        criteria.none('not_deleted', '{} servers could not be deleted'),
        criteria.none('moves', 'nodes moved {} times'),
        criteria.LEAKED, criteria.QUIET)
