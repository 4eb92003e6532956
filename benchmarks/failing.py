# SPDX-License-Identifier: Apache-2.0

"""How soon the free nodes of a dead compute service can be built on again.

On real services, as in :mod:`.auditing`. Three compute services share nodes
that are at rest, and the third one dies: nova takes it for dead from a moment
on. At that moment each of the two others does what its driver does about it:
ours looks, nova's own audits, at which it comes to all its nodes. Each in a
process of its own, both at the same time.

Timed is how long it takes from then until the last free node of the dead one
is recorded on another: builds are sent to it from then on. Ours audits those
nodes in the background afterwards, which is timed besides.

Figures are seconds, milliseconds for each node and survivor, and requests of
both to conductor and placement.
"""

import time

from benchmarks import filling
from benchmarks import measured
from benchmarks import polling
from benchmarks import proportion
from benchmarks import tracked

SURVIVORS = ('compute-1', 'compute-2')
DEAD = 'compute-3'

#: Seconds between two looks into nova's database.
POLL = 0.1


def measure(settings, options, progress, nodes, stock):
    """Return what is measured.

    :param nodes: how many the one that dies has; the others have as many.
    :param stock: how many with nova's own driver, at most as many.
    """
    hosts = [*SURVIVORS, DEAD]
    filled = filling.Filling(settings, progress)
    rows = tracked.Tracked(settings, progress)
    found = {}
    for driver, its in (('stock', stock), ('ours', nodes)):
        filled.fill(_machines(its, hosts), hosts)
        rows.complete()
        found[driver] = _measure(
            settings, options, progress, driver, filled, rows)
    found['stock'] = proportion.grown(
        found['stock'], {**found['stock'], 'each': 0}, nodes / stock)
    return {'nodes': nodes, 'stock nodes': stock, **found}


def _machines(nodes, hosts):
    """Return as many nodes of each host."""
    many = filling.machines(4 * nodes, hosts)
    return [one for host in hosts for one in [
        its for its in many if its.owner == host][:nodes]]


def _measure(settings, options, progress, driver, filled, rows):
    """Return the figures of a driver."""
    with measured.Together([
            measured.Measured(
                settings, driver, (*options, *filling.HEARTBEATS), host)
            for host in SURVIVORS]) as both:
        with progress.step(f'{driver}: the first audits'):
            both('start')
        with progress.step(f'{driver}: nothing has changed'):
            both('update')
            both('keep_up')
            both('react')
        free = rows.free_of(DEAD)
        filled.kill(DEAD)
        both('notice')
        filled.outlive()
        both('later', polling.LONG)
        with progress.step(f'{driver}: {free} free nodes move'):
            begun = time.monotonic()
            acting = both.begin('react')
            while rows.free_of(DEAD) and not all(
                    one.done() for one in acting):
                time.sleep(POLL)
            moved = time.monotonic() - begun
            its = [one.result() for one in acting]
            left = rows.free_of(DEAD)
        with progress.step(f'{driver}: what is left to audit'):
            begun = time.monotonic()
            both('keep_up')
            audited = time.monotonic() - begun
    return figures(its, settings, free, left, moved, audited)


def figures(its, settings, free, left, moved, audited):
    """Return the figures.

    :param its: what each of :class:`.measured.Measured` returned.
    :param free: the free nodes of the dead one.
    :param left: those of them that nobody has taken.
    :param moved: seconds.
    :param audited: seconds.
    """
    placement = str(settings.port('placement'))
    return {
        'free': free, 'left': left, 'moved': moved,
        'each': moved * 1000 * len(SURVIVORS) / max(free, 1),
        'audited': audited,
        'conductor': sum(one['asked'].get('conductor', 0) for one in its),
        'placement': sum(one['asked'].get(placement, 0) for one in its)}


def table(found):
    """Return the figures as lines of text."""
    columns = ('free', 'left', 'moved', 'each', 'audited', 'conductor',
               'placement')
    titles = {'moved': 'moved s', 'each': 'ms/node', 'audited': 'audited s'}
    return [f'{"":8}' + ''.join(
        f'{titles.get(name, name):>11}' for name in columns), *(
        f'{driver:8}' + ''.join(
            f'{value:11.1f}' if isinstance(value, float) else f'{value:11}'
            for value in (found[driver][name] for name in columns))
        for driver in ('stock', 'ours')), *proportion.note(found)]
