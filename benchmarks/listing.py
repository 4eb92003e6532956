# SPDX-License-Identifier: Apache-2.0

"""What it costs to know which nodes there are, nova's driver beside ours.

On a real Ironic API, MariaDB, RabbitMQ and nova-conductor. One compute
service of several audits as nova would, up to where its resource tracker
begins: the first time, again when nothing has changed, and when 200 and 2,000
nodes have. Besides it counts what a minute costs Ironic in which nothing
changes, the sweep included.

Figures are seconds of wall clock and of CPU of the compute service (client),
of Ironic's API and of MariaDB, megabytes of HTTP, and the growth of the memory
of the compute service at its peak.
"""

from benchmarks import filling
from benchmarks import measured

CHANGES = (200, 2000)


def stock(settings, options, progress):
    """Return {case: figures} of nova's own driver."""
    with measured.Measured(settings, 'stock', options) as ask:
        with progress.step('stock: first audit'):
            first = ask('audit')
        with progress.step('stock: second audit'):
            second = ask('audit')
    return {'first': first, 'steady': second, 'minute': second}


def ours(settings, options, progress, filled):
    """Return {case: figures} of our driver."""
    found = {}
    with measured.Measured(settings, 'ours', options) as ask:
        with progress.step('ours: first audit'):
            found['first'] = ask('audit')
        # What the first one had to decide without a view of all.
        ask('audit')
        with progress.step('ours: nothing has changed'):
            found['steady'] = ask('audit')
        # Ironic is asked again for what has changed of late.
        with progress.step('ours: a minute'):
            found['minute'] = ask('minute')
        for count in CHANGES:
            filled.touch(count, seed=count)
            with progress.step(f'ours: {count} nodes have changed'):
                found[f'changed {count}'] = ask('audit')
    return found


def measure(settings, options, progress, nodes, hosts):
    """Return what is measured in a cloud of a size.

    :param nodes: how many.
    :param hosts: how many compute services.
    """
    names = [f'compute-{number}' for number in range(1, hosts + 1)]
    filled = filling.Filling(settings, progress)
    filled.fill(filling.machines(nodes, names), names)
    found = {'stock': stock(settings, options, progress),
             'ours': ours(settings, options, progress, filled)}
    return {'nodes': nodes, 'hosts': hosts, **found,
            'ratios': ratios(found['stock'], found['ours'])}


def ratios(stock, ours):
    """Return {what: how many times more nova's own driver uses}."""
    def of(case, name):
        return round(stock[case][name] / max(ours[case][name], 1e-3), 1)

    return {'steady wall': of('steady', 'wall'),
            'steady client CPU': of('steady', 'cpu'),
            'first client CPU': of('first', 'cpu'),
            'first memory': of('first', 'peak'),
            'minute Ironic CPU': of('minute', 'ironic')}


def table(found):
    """Return the figures as lines of text."""
    lines = [f'{"":22}{"wall s":>9}{"client s":>10}{"Ironic s":>10}'
             f'{"MariaDB s":>11}{"MB":>8}{"peak MB":>9}{"requests":>10}']
    for driver in ('stock', 'ours'):
        for case, its in found[driver].items():
            lines.append(
                f'{driver + " " + case:22}{its["wall"]:9.2f}{its["cpu"]:10.3f}'
                f'{its["ironic"]:10.2f}{its["mariadb"]:11.2f}'
                f'{its["megabytes"]:8.1f}{its["peak"]:9.0f}'
                f'{its["requests"]:10}')
    lines += [f'{"stock / ours: " + name:36}{ratio:9.1f}'
              for name, ratio in found['ratios'].items()]
    return lines
