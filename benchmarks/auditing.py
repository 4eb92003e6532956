# SPDX-License-Identifier: Apache-2.0

"""What an audit costs with all that nova's tracker does, ours beside nova's.

On real services: placement, nova-conductor behind RabbitMQ, MariaDB and
Ironic. One compute service has all nodes; they are at rest, see
:mod:`.tracked`. Measured is ``ComputeManager.update_available_resource``:

first
    in a new process, as nova does it before it listens for builds. What ours
    leaves for later is audited then, without a pause.
steady
    a minute later, nothing has changed: the median of several by their wall
    clock.
refresh
    when nova has to read all of placement's associations again, as
    ``[compute]resource_provider_association_refresh`` (300 s) has passed.
changed N
    when so many nodes have changed in Ironic, so that nova's records of them
    are to be written.

No time passes: the clocks of placement's client and of our driver are put
ahead.

Figures are seconds of wall clock, of that for each node milliseconds, seconds
of CPU of the compute service (client) and of the services, requests to
conductor and placement and those of them that write to placement, and how many
nodes the tracker was given.
"""

from benchmarks import filling
from benchmarks import measured
from benchmarks import proportion
from benchmarks import tracked

HOST = 'compute-1'

#: Seconds from one audit to the next, and how many of them are steady.
PAUSE = 60
STEADY = 3

#: Seconds after which the associations are read again.
REFRESH = 301


def measure(settings, options, progress, nodes, stock):
    """Return what is measured.

    :param nodes: how many, all of one compute service.
    :param stock: how many nova's own driver has, at most as many.
    """
    filled = filling.Filling(settings, progress)
    rows = tracked.Tracked(settings, progress)
    found = {}
    for driver, its in (('stock', stock), ('ours', nodes)):
        filled.fill(filling.machines(its, [HOST]), [HOST])
        rows.complete()
        found[driver] = _measure(settings, options, progress, driver, rows,
                                 min(changes(nodes), stock))
    found['stock'] = grown(found['stock'], nodes / stock)
    return {'nodes': nodes, 'stock nodes': stock, **found,
            'ratios': ratios(found['stock'], found['ours'])}


def each_driver(settings, options, progress, nodes):
    """Yield each driver, what asks its compute service, and the rows.

    All nodes of a cloud at rest are that one's, and have been audited.

    :param nodes: how many.
    """
    filled = filling.Filling(settings, progress)
    rows = tracked.Tracked(settings, progress)
    machines = filling.machines(nodes, [HOST])
    for driver in ('stock', 'ours'):
        filled.fill(machines, [HOST])
        rows.complete()
        with measured.Measured(settings, driver, options, HOST) as ask:
            with progress.step(f'{driver}: the first audits'):
                ask('start')
                ask('keep_up')
            yield driver, ask, rows


def grown(cases, factor):
    """Return the figures of as many times the nodes; as many change.

    :param cases: {case: figures}.
    """
    return {case: proportion.grown(
        its, cases['steady' if case.startswith('changed') else case], factor)
        for case, its in cases.items()}


def changes(nodes):
    """Return how many nodes are changed."""
    return min(200, max(1, nodes // 10))


def _measure(settings, options, progress, driver, rows, count):
    """Return {case: figures} of a driver."""
    found = {}
    with measured.Measured(settings, driver, options, HOST) as ask:

        def audit(case, command='update'):
            with progress.step(f'{driver}: {case}'):
                return figures(ask(command), settings)

        found['first'] = audit('the first audit', 'start')
        with progress.step(f'{driver}: what is left to audit'):
            found['first']['background'] = ask('keep_up')['wall']
        steady = []
        for number in range(1, STEADY + 1):
            ask('later', PAUSE)
            steady.append(audit(f'nothing has changed, {number}'))
        found['steady'] = median(steady)
        ask('later', REFRESH)
        found['refresh'] = audit('the associations are old')
        rows.change(count, seed=1)
        ask('later', PAUSE)
        found[f'changed {count}'] = {
            **audit(f'{count} nodes have changed'),
            'recorded': rows.recorded(seed=1)}
    return found


def median(some):
    """Return the figures of the audit that took neither long nor short."""
    return sorted(some, key=lambda its: its['wall'])[len(some) // 2]


def figures(its, settings):
    """Return the figures of an audit.

    :param its: what :class:`.measured.Measured` returned.
    """
    placement = str(settings.port('placement'))
    return {
        'wall': its['wall'], 'cpu': its['cpu'],
        'placement CPU': its['placement'], 'conductor CPU': its['conductor'],
        'mariadb CPU': its['mariadb'], 'ironic CPU': its['ironic'],
        'conductor': its['asked'].get('conductor', 0),
        'placement': its['asked'].get(placement, 0),
        'writes': its['told'].get(placement, 0), 'peak': its['peak'],
        'audited': its['result']}


def ratios(stock, ours):
    """Return {what: how many times more nova's own driver uses}."""
    return {f'{case} {what}': round(
        stock[case][name] / max(ours[case][name], least), 1)
        for case in stock for what, name, least in (
            ('wall', 'wall', 1e-3), ('client CPU', 'cpu', 1e-3),
            ('placement requests', 'placement', 1),
            ('conductor requests', 'conductor', 1))}


#: Title, width and format of each column, by figure.
COLUMNS = {
    'wall': ('wall s', 9, '.2f'), 'each': ('ms/node', 9, '.1f'),
    'cpu': ('client s', 10, '.2f'),
    'placement CPU': ('placement s', 13, '.2f'),
    'conductor CPU': ('conductor s', 13, '.2f'),
    'mariadb CPU': ('MariaDB s', 11, '.2f'),
    'conductor': ('to conductor', 14, ''),
    'placement': ('to placement', 14, ''), 'writes': ('writes', 8, ''),
    'audited': ('audited', 9, '')}


def table(found):
    """Return the figures as lines of text."""
    lines = [f'{"":20}' + ''.join(f'{title:>{width}}' for title, width, _
                                  in COLUMNS.values())]
    for driver in ('stock', 'ours'):
        for case, its in found[driver].items():
            its = {**its, 'each': its['wall'] / found['nodes'] * 1000}
            lines.append(f'{driver + " " + case:20}' + ''.join(
                f'{its[name]:{width}{kind}}'
                for name, (_, width, kind) in COLUMNS.items()))
            if its.get('background', 0) > 1:
                lines.append(f'  and {its["background"]:.1f} s in the '
                             'background')
            if 'recorded' in its:
                lines.append(f'  of them nova recorded {its["recorded"]}')
    return [*lines, *proportion.note(found), *(
        f'{"stock / ours: " + name:46}{ratio:9.1f}'
        for name, ratio in found['ratios'].items())]
