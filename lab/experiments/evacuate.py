# SPDX-License-Identifier: Apache-2.0

"""Servers of a dead compute are evacuated, as by an operator or by masakari.

Three servers are booted on the compute with most nodes. It is killed, and
when nova has noticed, two of them are evacuated. Then the compute is forced
down, and the third is evacuated as soon as nova takes that. With this
project's driver each stays on its machine and is taken over.

Figures: answers (nova's to each evacuation), fenced_to_last_taken_over
(seconds until all are on a live compute, with the records of their nodes;
None when that did not come to pass), status (of each at the end), moved
(which of them are on another machine), surplus (machines that are allocated
to them and that they are not on) and migrations (how many of each status).

Must be: all taken over, ACTIVE, none moved, no surplus, leaked 0, consistent.
"""

import collections

from lab.bench import criteria
from lab.bench import operations
from lab.bench import takeover

BEFORE = ('evacuated before', 'evacuated before, too')
AFTER = 'evacuated after'
#: Seconds in which an evacuation is refused whose message was lost: it is
#: looked for once a minute, and refused when it was seen twice.
REFUSED = 130.0
EVACUATE = operations.Operation('evacuate', {'evacuate': {}}, 'ACTIVE')


def run(bench):
    """Boot, kill, evacuate, fence, evacuate; returns the figures."""
    name, _ = bench.busiest
    labels = [*BEFORE, AFTER]
    bench.note(f'boot {len(labels)} servers on {name}')
    servers = takeover.Servers(bench, name, operations.boot_on(
        bench, name, labels, 'evacuated'))
    operator = servers.operator()

    bench.kill(name)
    bench.await_down(name)
    bench.note('evacuate two of them')
    answers = {label: operator.ask(servers[label], EVACUATE) or 'accepted'
               for label in BEFORE}
    fenced = bench.note(f'fence {name}')
    bench.computes.fence(name)
    answers[AFTER] = operator.ask(servers[AFTER], EVACUATE) or 'accepted'
    taken = servers.await_taken_over(takeover.AUDITS * bench.audit + REFUSED)
    bench.recorder.watch(2)

    kept = servers.ledger()
    seen = bench.recorder.view
    found = {label: seen.instance_of.get(server)
             for label, (server, _) in servers.made.items()}
    statuses = collections.Counter(
        migration['status'] for server, _ in servers.made.values()
        for migration in bench.cloud.nova(
            'GET', f'/os-migrations?instance_uuid={server}')['migrations'])
    figures = {
        'killed': name,
        'answers': answers,
        'fenced_to_last_taken_over': takeover.between(fenced, taken),
        'status': {label: instance.vm_state if instance else 'gone'
                   for label, instance in found.items()},
        'moved': [label for label, (_, node) in servers.made.items()
                  if found[label] and found[label].node != node],
        'surplus': sum(
            1 for allocation in seen.allocations
            for server, node in servers.made.values()
            if allocation.consumer == server and allocation.provider != node),
        'migrations': dict(statuses),
        **servers.meanwhile(kept)}
    takeover.bring_back(bench, name)
    bench.recorder.watch(takeover.RETURNED)
    servers.delete()
    return figures


def failures(figures):
    """What is not as it must be, in sentences."""
    return [
        *criteria.unmet(
            figures,
            criteria.true('fenced_to_last_taken_over',
                          'its servers were not taken over in time'),
            criteria.none('moved', 'on another machine: {}'),
            criteria.none('surplus', '{} machines are allocated to servers '
                          'that are on others'),
            *takeover.MEANWHILE, criteria.LEAKED),
        *(f'{label}: {status}' for label, status in figures['status'].items()
          if status != 'active')]
