# SPDX-License-Identifier: Apache-2.0

"""What nova's other periodic tasks cost, one after the other.

On real services, as in :mod:`.auditing`. One compute service has all nodes, at
rest; each periodic task of nova's ComputeManager is run once, as its timer
would, but for the audit. What it has begun in other threads is waited for.

Figures are seconds of wall clock, CPU of the compute service, and requests to
nova's conductor, Ironic and placement.
"""

from benchmarks import auditing

#: A task that takes less with both drivers, in seconds, has no line of its
#: own.
LITTLE = 0.05


def measure(settings, options, progress, nodes):
    """Return what is measured.

    :param nodes: how many, all of one compute service.
    """
    found = {}
    for driver, ask, _ in auditing.each_driver(
            settings, options, progress, nodes):
        found[driver] = {}
        for name in ask('tasks')['result']:
            with progress.step(f'{driver}: {name}'):
                found[driver][name] = figures(ask('task', name), settings)
    return {'nodes': nodes, **found}


def figures(its, settings):
    """Return the figures of a task.

    :param its: what :class:`.measured.Measured` returned.
    """
    return {'wall': its['wall'], 'cpu': its['cpu'],
            'conductor': its['asked'].get('conductor', 0),
            **{name: its['asked'].get(str(settings.port(name)), 0)
               for name in ('ironic', 'placement')}}


def table(found):
    """Return the figures as lines of text."""
    both = found['stock'], found['ours']
    names = [name for name in both[0]
             if max(its[name]['wall'] for its in both) >= LITTLE]
    columns = {'wall': ('wall s', '.2f'), 'cpu': ('client s', '.2f'),
               'conductor': ('conductor', ''), 'ironic': ('Ironic', ''),
               'placement': ('placement', '')}
    lines = [f'{"":42}' + ''.join(
        f'{title:>11}' for title, _ in columns.values())]
    lines += [f'{driver + " " + name:42}' + ''.join(
        f'{found[driver][name][column]:11{kind}}'
        for column, (_, kind) in columns.items())
        for name in names for driver in ('stock', 'ours')]
    return [*lines, f'{len(both[0]) - len(names)} others take less than '
                    f'{LITTLE} s with both drivers.']
