# SPDX-License-Identifier: Apache-2.0

"""How soon the servers of a fenced compute service can be managed again.

On real services, as in :mod:`.auditing`. Three compute services share nodes
that are at rest, and the third one, whose nodes all have servers, is fenced:
it is silent, disabled and forced down. The two others are processes of their
own and do all that our driver does every few seconds, with nova's default of
10 s: the fence comes when they have just looked, so that they see it as late
as they may. nova's own driver takes no servers over, however long one waits,
and is not run.

Timed is how long it takes from the fence until the last server can be managed
on another: it is there, with nothing in its task state, and so is the record
of its node. That nova's tracker there knows the node is looked up afterwards.

Figures are seconds until the first and the last of them, milliseconds for each
server and survivor, requests of both to conductor, placement and Ironic, and
how many servers and nodes are left.
"""

import time

from benchmarks import failing
from benchmarks import filling
from benchmarks import measured
from benchmarks import tracked

#: nova's default; looks come as often.
OPTIONS = ('DEFAULT.report_interval=10',)

#: Seconds between two looks into nova's database.
POLL = 0.2

#: Seconds for which to wait at least, and for each server.
PATIENCE, EACH = 120, 1

#: Nodes to choose from for each one that is wanted: more than one of them is
#: the dead one's and has a server.
ENOUGH = 8

#: The most nodes that each of the others has: they are not concerned.
OTHERS = 100


def measure(settings, options, progress, nodes):
    """Return what is measured.

    :param nodes: how many the one that dies has, each with a server.
    """
    hosts = [*failing.SURVIVORS, failing.DEAD]
    filled = filling.Filling(settings, progress)
    rows = tracked.Tracked(settings, progress)
    filled.fill(machines(nodes, hosts), hosts)
    rows.complete()
    return {'nodes': nodes, 'stock': None, 'ours': _measure(
        settings, (*options, *OPTIONS), progress, filled, rows)}


def machines(nodes, hosts):
    """Return the nodes of the cloud; of the last host's each has a server.

    :param nodes: how many the last host has; the others have as many, if
        that is not more than :data:`OTHERS`.
    """
    *others, last = hosts
    many = filling.machines(ENOUGH * nodes + 60, hosts)
    return [
        *(one for host in others for one in [
            its for its in many
            if its.owner == host][:min(nodes, OTHERS)]),
        *[its for its in many if its.owner == last and its.instance][:nodes]]


def _measure(settings, options, progress, filled, rows):
    """Return the figures of our driver."""
    over = settings.run / 'bench-over'
    over.unlink(missing_ok=True)
    with measured.Together([
            measured.Measured(settings, 'ours', options, host)
            for host in failing.SURVIVORS]) as both:
        with progress.step('the first audits'):
            both('start')
        with progress.step('nothing has changed'):
            both('update')
            both('keep_up')
            both('react')
        theirs = rows.used_of(failing.DEAD)
        with progress.step(f'{len(theirs)} servers move'):
            acting = both.begin('serve', str(over))
            try:
                filled.fence(failing.DEAD)
                waits = watch(rows, theirs, time.monotonic)
            finally:
                over.touch()
            its = [one.result() for one in acting]
    return figures(its, settings, theirs, waits)


def watch(rows, nodes, clock, pause=time.sleep):
    """Return for each server that can be managed after how many seconds.

    :param rows: :class:`.tracked.Tracked`.
    :param nodes: uuids of the nodes with the servers.
    :param clock: monotonic clock, in seconds.
    """
    begun, waits = clock(), []
    while len(waits) < len(nodes) and (
            clock() < begun + PATIENCE + EACH * len(nodes)):
        pause(POLL)
        manageable = rows.manageable(nodes, failing.SURVIVORS)
        waits += [clock() - begun] * (manageable - len(waits))
    return waits


def figures(its, settings, nodes, waits):
    """Return the figures.

    :param its: what each of :class:`.measured.Measured` returned.
    :param nodes: uuids of the nodes with the servers.
    :param waits: what :func:`watch` returned.
    """
    def requests(service):
        return sum(one['asked'].get(service, 0) for one in its)

    known = {node for one in its for node in one['result']}
    last = waits[-1] if waits else 0
    return {
        'servers': len(nodes), 'left': len(nodes) - len(waits),
        'unknown': len({*nodes} - known),
        'first': waits[0] if waits else 0, 'last': last,
        'each': last * 1000 * len(its) / max(len(waits), 1),
        'conductor': requests('conductor'),
        **{name: requests(str(settings.port(name)))
           for name in ('placement', 'ironic')},
        **{f'{name} CPU': its[0][name] for name in ('conductor', 'mariadb')},
        'cpu': sum(one['cpu'] for one in its)}


def table(found):
    """Return the figures as lines of text."""
    columns = {'servers': 'servers', 'left': 'left', 'unknown': 'unknown',
               'first': 'first s', 'last': 'last s', 'each': 'ms/server',
               'conductor': 'conductor', 'placement': 'placement',
               'ironic': 'Ironic'}
    its = found['ours']
    stock = {**dict.fromkeys(columns, '-'), 'servers': its['servers'],
             'left': its['servers'], 'first': 'never', 'last': 'never'}
    return [f'{"":8}' + ''.join(f'{title:>11}' for title in columns.values()),
            *(f'{driver:8}' + ''.join(
                f'{value:11.1f}' if isinstance(value, float)
                else f'{value:>11}' for value in (
                    figures[name] for name in columns))
              for driver, figures in (('stock', stock), ('ours', its)))]
