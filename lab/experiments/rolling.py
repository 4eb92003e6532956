# SPDX-License-Identifier: Apache-2.0

"""Three stock computes become ours one by one, under load.

Workers boot and delete servers without pause while each compute in turn is
stopped the polite way, gets our driver and is started again. Figures: as
those of churn, where "own compute killed" is here a compute of the server
that was being restarted while the server was built; error_on_stock, of the
other servers in ERROR those of which a compute that was chosen for them was
stock until the end (it gives up a build whose node another has, which ours
sends elsewhere); switch_seconds, how long each one was without a heartbeat of
its own; phases, for each compute the moves from its restart to the next one's
and how many servers were begun in that time.

Must be: error_others, not_deleted and leaked 0, none stuck but those whose
own compute was restarted, quiet, consistent. While stock and ours run side by
side stock still behaves as stock, so that its moves between live computes are
told and not judged. Both have the ring of stock, and nova is as patient as it
is by default, as the page on upgrades says.
"""

import dataclasses

from lab.bench import criteria
from lab.bench import wanted
from lab import timeline as timelines
from lab import workload

NEEDS = wanted.Wanted(computes=3, driver='stock', options=(
    'ironic_multihost.ring_partitions=32', 'DEFAULT.service_down_time=60'))
WORKERS = 4
# Audits with a mixture, after each switch.
MIXED = 2.5


def run(bench):
    """Switch one after the other under load; returns the figures."""
    outages = []
    choices = workload.Choices()
    bench.recorder.listen(choices.see)
    begin = bench.note(f'{WORKERS} workers begin')
    with workload.Workload(bench.settings, WORKERS, 'rolling',
                           bench.recorder.now) as load:
        bench.recorder.watch(bench.audit)
        for name in bench.computes.names():
            stopped = bench.note(f'switch {name} to ours')
            bench.computes.switch([name], 'ours')
            outages.append(workload.Outage(name, stopped,
                                           bench.await_up(name)))
            bench.recorder.watch(MIXED * bench.audit)
        bench.note('workers end')
    quiet = bench.for_driver('ours').await_quiet()
    lives = [dataclasses.replace(
        life, hosts=life.hosts | choices.of(life.server))
        for life in load.lives]
    return {**_tally(lives, outages),
            'switch_seconds': [round(o.until - o.since, 1) for o in outages],
            'phases': _phases(bench.recorder.timeline, outages, lives),
            'moves': len(bench.recorder.timeline.moves(begin)),
            'quiet': quiet}


def failures(figures):
    """What is not as it must be, in sentences."""
    stuck = figures['stuck'] - figures['stuck_own_compute_killed']
    return criteria.unmet(
        figures | {'stuck_others': stuck},
        criteria.none('error_others', '{} servers are in ERROR although '
                      'their compute was not restarted: see '
                      'error_others_faults'),
        criteria.none('stuck_others', '{} servers were neither ACTIVE nor '
                      'ERROR in time although their compute was not '
                      'restarted'),
        criteria.none('not_deleted', '{} servers could not be deleted'),
        criteria.LEAKED, criteria.QUIET)


def _tally(lives, outages):
    """The figures of the workload; errors of stock are counted apart."""
    switched = {outage.host.lower(): outage.since for outage in outages}
    stock = [life for life in lives
             if life.outcome == 'ERROR' and not workload.hit(life, outages)
             and any(life.settled <= switched.get(host, 0)
                     for host in life.hosts)]
    figures = workload.tally(
        [life for life in lives if life not in stock], outages)
    return {**figures, 'servers': len(lives),
            'error': figures['error'] + len(stock),
            'error_on_stock': len(stock)}


def _phases(timeline, outages, lives):
    """What happened from each restart to the next one."""
    ends = [outage.since for outage in outages[1:]] + [float('inf')]
    found = {}
    for outage, end in zip(outages, ends, strict=True):
        moves = timeline.moves(outage.since, end)
        found[outage.host] = {
            'moves': len(moves),
            'most_moves': timelines.most_moves(moves),
            'servers': sum(1 for life in lives
                           if outage.since <= life.asked < end)}
    return found
