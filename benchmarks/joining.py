# SPDX-License-Identifier: Apache-2.0

"""How a compute service that joins gets its share of the free nodes.

On real services, as in :mod:`.auditing`. One compute service has all nodes,
at rest, and another one starts. Then both audit at the same time, again and
again without a pause, with all that their driver does between two audits,
until no more nodes move: nova's own driver takes what its hash ring maps to it
when it starts, ours from its second audit on and at most so many in one audit.
In a cloud there is ``[DEFAULT]update_resources_interval`` from one audit to
the next; "audits" says how many it takes. So that there are several, ours may
pull a tenth of the nodes in one.

While a compute service audits builds claim nodes on it, one after another with
a pause in between, as in :mod:`.claiming`: free ones that are recorded on it
and that stay there by our ring.

Figures are nodes that moved; audits of the second one in which they did, the
first one at its start among them; seconds that these took; nodes that moved in
each of those seconds; seconds of what followed in the background; claims that
failed; milliseconds of the claims on each.
"""

from concurrent import futures
import dataclasses
import itertools

from benchmarks import claiming
from benchmarks import filling
from benchmarks import measured
from benchmarks import tracked

FIRST, SECOND = HOSTS = 'compute-1', 'compute-2'

#: Audits of which the last ones have moved nothing, and at most.
QUIET, MOST = 3, 40

#: Claims in an audit, at most.
CLAIMS = 50


def measure(settings, options, progress, nodes):
    """Return what is measured.

    :param nodes: how many the first compute service has.
    """
    filled = filling.Filling(settings, progress)
    rows = tracked.Tracked(settings, progress)
    preferring = filling.machines(nodes, HOSTS)
    machines = [dataclasses.replace(one, owner=FIRST) for one in preferring]
    staying = {one.uuid for one in preferring if one.owner == FIRST}
    told = (*options, 'ironic_multihost.pulls_per_audit='
            f'{max(1, nodes // 10)}')
    found = {}
    for driver in ('stock', 'ours'):
        filled.fill(machines, HOSTS)
        rows.complete()
        found[driver] = _measure(
            settings, told, progress, driver, rows, staying)
    return {'nodes': nodes, **found}


def _measure(settings, options, progress, driver, rows, staying):
    """Return the figures of a driver."""
    with (measured.Measured(settings, driver, options, FIRST) as first,
          futures.ThreadPoolExecutor(len(HOSTS)) as pool):
        with progress.step(f'{driver}: the first one audits'):
            first('start')
            first('work', [])

        def work(ask, host):
            return pool.submit(ask, 'work', _builds(rows, host, staying))

        with progress.step(f'{driver}: the second one joins'):
            with measured.Measured(
                    settings, driver, options, SECOND) as second:
                claims = work(first, FIRST)
                started = second('start')
                rounds = [{
                    FIRST: claims.result()['result'],
                    SECOND: {'seconds': started['wall'], 'after': 0,
                             'claims': [], 'refused': 0},
                    'moved': rows.free_of(SECOND)}]
                while not over([one['moved'] for one in rounds]):
                    asked = {host: work(ask, host) for ask, host
                             in ((first, FIRST), (second, SECOND))}
                    its = {host: answer.result()['result']
                           for host, answer in asked.items()}
                    rounds.append({**its, 'moved': rows.free_of(SECOND)})
    return figures(rounds)


def _builds(rows, host, staying):
    """Return builds for free nodes of a host, none if it has none."""
    free = rows.free(host)
    nodes = [node for node in free
             if host == SECOND or node in staying]
    some = list(itertools.islice(itertools.cycle(nodes), CLAIMS))
    return [[server, node, free[node]] for server, node
            in zip(rows.waiting(some), some, strict=True)] if some else []


def over(moved):
    """Whether no more nodes move.

    :param moved: how many were recorded on the second one after each audit.
    """
    last = moved[-QUIET - 1:]
    return len(moved) > MOST or (
        len(last) > QUIET and last[0] > 0 and len(set(last)) == 1)


def figures(rounds):
    """Return the figures.

    :param rounds: what was measured of each audit.
    """
    took = [one[SECOND] for before, one
            in zip([{'moved': 0}, *rounds], rounds, strict=False)
            if one['moved'] != before['moved']]
    moved, seconds, after = rounds[-1]['moved'], *(
        sum(one[part] for one in took) for part in ('seconds', 'after'))
    return {
        'moved': moved, 'audits': len(took), 'seconds': round(seconds, 1),
        'each second': round(moved / seconds, 1) if took else 0,
        'after': round(after, 1),
        'refused': sum(one[host]['refused'] for one in rounds
                       for host in HOSTS),
        **{host: claiming.summary([
            seconds for one in rounds for seconds in one[host]['claims']])
            for host in HOSTS}}


def table(found):
    """Return the figures as lines of text."""
    columns = {'moved': 'moved', 'audits': 'audits', 'seconds': 'seconds',
               'each second': 'nodes/s', 'after': 'after s',
               'refused': 'refused'}
    claims = ('claims', 'p50', 'p99', 'longest')
    return [f'{"":8}' + ''.join(f'{title:>10}' for title in columns.values())
            + ''.join(f'{name:>10}' for name in claims) * 2, *(
        f'{driver:8}' + ''.join(
            f'{its[name]:10.1f}' if isinstance(its[name], float)
            else f'{its[name]:10}' for name in columns)
        + ''.join(f'{its[host][name]:10}' for host in HOSTS
                  for name in claims)
        for driver, its in ((name, found[name]) for name in
                            ('stock', 'ours')))]
