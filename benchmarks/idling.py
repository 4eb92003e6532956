# SPDX-License-Identifier: Apache-2.0

"""What a compute service asks while nothing happens, and how much comes back.

One of several, in the cloud of :mod:`.listing`, for so many minutes that each
audit comes to read what only every tenth one reads. All that its timers and
nova's audit do is done, up to where nova's tracker begins: of nodes of which
nothing has changed that does nothing. It asks through relays that count
(:mod:`lab.questions`).
"""

from benchmarks import computing
from benchmarks import filling
from benchmarks import measured
from benchmarks import tracked
from lab import questions

#: Of nova's audit, with its default interval, which is a minute.
MINUTES = 10


def measure(settings, options, progress, nodes, hosts):
    """Return what is measured in a cloud of a size.

    :param nodes: how many.
    :param hosts: how many compute services.
    """
    names = [f'compute-{number}' for number in range(1, hosts + 1)]
    filled = filling.Filling(settings, progress)
    machines = filling.machines(nodes, names)
    filled.fill(machines, names)
    tracked.Tracked(settings, progress).complete()
    with (questions.Counting(settings) as counting,
          measured.Measured(settings, 'ours', (
              *options, *counting.options, f'DEFAULT.report_interval='
              f'{computing.PERIOD}')) as ask):
        with progress.step('until it only waits'):
            ask('idle', MINUTES)
        counting.tally.begin()
        with progress.step(f'{MINUTES} minutes'):
            its = ask('idle', MINUTES)
    return {'nodes': nodes, 'hosts': hosts, 'minutes': MINUTES, 'own': sum(
        machine.owner == names[0] for machine in machines),
        'cpu': its['cpu'], 'asked': {
            service: {what: list(one) for what, one in asked.items()}
            for service, asked in counting.tally.found().items()}}


def table(found):
    """Return the figures as lines of text."""
    minutes, own = found['minutes'], found['own']
    lines = [f'{own} of {found["nodes"]} nodes are its own; in a minute:',
             f'{"":72}{"questions":>10}{"bytes":>12}{"a node":>9}']
    for service, asked in found['asked'].items():
        lines += [f'{service + ": " + what:72}{count / minutes:10.1f}'
                  f'{size / minutes:12.0f}{size / minutes / own:9.2f}'
                  for what, (count, size) in asked.items()]
    return lines
