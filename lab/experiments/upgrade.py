# SPDX-License-Identifier: Apache-2.0

"""From one stock compute to three of ours, and back, with servers.

One compute with nova's own driver gets servers; it is switched to ours; two
more computes are added and free nodes spread over all three; the two are
disabled, their free nodes leave, they are stopped and deleted; the one that
is left is switched back. In between every server is rebooted, stopped,
started and rebuilt, servers are booted and deleted.

Figures: for each phase its moves, most_moves of one node, how many free
nodes each compute has at its end, servers_working (of how many) and whether
all is consistent; then records and providers of nodes that were lost or
made anew at any moment, and spread: whether the free nodes went where the
ring of the three wants them. Verdict: spread, nothing was lost or made anew,
every server worked in every phase, and each phase ended consistent.
"""

import concurrent.futures
import itertools
import time

from lab.bench import wanted
from lab import steadfast
from lab import timeline as timelines
from lab import view
from nova_ironic_multihost.client import findings as consistency

NEEDS = wanted.Wanted(computes=1, driver='stock')
SERVERS = 3
_AT_ONCE = 6
# From 2.93 on a rebuild with nova's own driver fails for every baremetal
# server (nova's bug 2127017).
REBUILD = {'stock': '2.92', 'ours': '2.96'}
OPERATION_TIMEOUT = 120.0
BUILD_TIMEOUT = 120.0
# No more is taken for an API that is busy.
ANSWER_TIMEOUT = 20.0
DRAIN = 120.0
SETTLE = 90.0


class Losses:
    """Records and providers that were once there and are not, or not those.

    Give :meth:`see` one Observation after the other; the first one tells
    what must stay.

    :param say: function of a sentence, called for each loss when it is seen
    """

    def __init__(self, say=lambda sentence: None):
        self._say = say
        self._ids = {}
        self._found = {}

    def see(self, seen):
        """Compare an Observation with the first one."""
        present = {
            'records': {record.node: record.row for record in seen.records},
            'providers': {p.uuid: p.id for p in seen.providers}}
        self._ids = self._ids or present
        for kind, ids in self._ids.items():
            for node, id_ in ids.items():
                now = present[kind].get(node)
                if now != id_:
                    how = 'lost' if now is None else 'made_anew'
                    nodes = self._found.setdefault(f'{kind}_{how}', set())
                    if node not in nodes:
                        self._say(f'{kind} of {node}: {how}')
                    nodes.add(node)

    def figures(self):
        """{'records_lost': number, ...}: how many nodes, each counted once.

        A record that was made anew counts as lost too when a view was taken
        in between.
        """
        return {f'{kind}_{how}': len(self._found.get(f'{kind}_{how}', ()))
                for kind in ('records', 'providers')
                for how in ('lost', 'made_anew')}


def failures(figures):
    """What the figures should not be, in sentences."""
    failed = [f'{figures[figure]} {figure.replace("_", " ")}'
              for figure in Losses().figures() if figures[figure]]
    if not figures['spread']:
        failed.append('the free nodes did not spread over three computes')
    for name, phase in figures['phases'].items():
        failed += [f'{name}: {sentence}' for sentence in phase['broken']]
        if not phase['consistent']:
            failed.append(f'{name}: not consistent at its end')
    return failed


def run(bench):
    """Upgrade, spread, drain, go back; returns the figures."""
    losses = Losses(bench.say)
    bench.recorder.listen(losses.see)
    journey = _Journey(bench)
    [first] = bench.computes.names()
    others = _next_names(first)

    journey.boot(SERVERS)
    journey.end_phase('stock', 'stock')

    bench.note(f'switch {first} to ours')
    bench.computes.switch([first], 'ours')
    journey.end_phase('one of ours', 'ours')

    for name in others:
        bench.note(f'add {name}')
        bench.computes.add(name, 'ours')
    spread = bench.for_driver('ours').await_places() is not None
    # Of few nodes the ring may want none there.
    visitors = [journey.boot(1, name) for name in others
                if bench.recorder.view.owned_by(name)]
    journey.end_phase('three of ours', 'ours')

    for name in others:
        bench.note(f'disable {name}')
        bench.computes.disable(name)
    journey.delete([server for visitor in visitors for server in visitor])
    bench.recorder.wait_for(
        lambda seen: not any(seen.owned_by(name) for name in others),
        DRAIN, f'{" and ".join(others)} being rid of all nodes')
    for name in others:
        bench.note(f'stop {name}, delete its service')
        bench.computes.stop(name)
        bench.computes.forget(name)
    journey.end_phase('drained to one', 'ours')

    bench.note(f'switch {first} back to stock')
    bench.computes.switch([first], 'stock')
    journey.boot(1)
    journey.end_phase('stock again', 'stock')
    journey.delete(journey.servers)

    return {'phases': journey.phases, 'spread': spread, **losses.figures()}


def _next_names(name):
    stem, dash, number = name.rpartition('-')
    return [f'{stem}{dash}{int(number) + more}' for more in (1, 2)]


class _Journey:
    """The servers on their way, and what is written down about it."""

    def __init__(self, bench):
        self._bench = bench
        self._since = bench.recorder.now()
        self._broken = []
        self._numbers = itertools.count(1)
        self.phases = {}
        self.servers = []

    def boot(self, count, host=None):
        """Boot servers, on one host if named; returns their ids."""
        cloud = self._bench.cloud
        more = {'availability_zone': f'nova:{host}'} if host else {}
        self._bench.note(f'boot {count} server{"s" * (count > 1)}'
                         + (f' on {host}' if host else ''))
        made = [cloud.create(f'upgrade-{next(self._numbers)}', **more)
                for _ in range(count)]
        for server in made:
            problem = _until(cloud, server, 'ACTIVE', BUILD_TIMEOUT)
            if problem:
                self._broken.append(f'boot of {server}: {problem}')
            else:
                self.servers.append(server)
        return made

    def delete(self, servers):
        """Delete servers and wait until they are gone."""
        self._bench.cloud.delete(servers)
        self.servers = [s for s in self.servers if s not in servers]

    def end_phase(self, name, driver):
        """See whether all servers work and all is consistent."""
        bench = self._bench
        bench.note(f'try {len(self.servers)} servers')
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            broken = [problem for problem in pool.map(
                lambda server: _try(bench.cloud, server, REBUILD[driver]),
                self.servers) if problem]
        _, found = consistency.wait(lambda: view.read(bench.settings), SETTLE)
        for finding in found:
            bench.say(f'{finding.kind}: {finding.sentence}')
        moves = bench.recorder.timeline.moves(self._since)
        seen = bench.recorder.view
        self.phases[name] = {
            'moves': len(moves),
            'most_moves': timelines.most_moves(moves),
            'free': {host: len(seen.free_of(host))
                     for host in sorted(seen.up_hosts)},
            'servers': len(self.servers),
            'servers_working': len(self.servers) - len(broken),
            'broken': self._broken + broken,
            'consistent': not found}
        self._broken = []
        self._since = bench.note(f'end of phase "{name}"')


def _try(cloud, server, microversion):
    """Do with a server what can be done; what failed, in words, or ''."""
    from keystoneauth1 import exceptions

    image = _ask(cloud, f'/servers/{server}')['server']['image']['id']
    for name, body, status in (
            ('reboot', {'reboot': {'type': 'HARD'}}, 'ACTIVE'),
            ('stop', {'os-stop': None}, 'SHUTOFF'),
            ('start', {'os-start': None}, 'ACTIVE'),
            ('rebuild', {'rebuild': {'imageRef': image}}, 'ACTIVE')):
        try:
            cloud.nova('POST', f'/servers/{server}/action', body,
                       microversion)
        except exceptions.HttpError as error:
            return f'{name} of {server} was refused: {error}'
        problem = _until(cloud, server, status, OPERATION_TIMEOUT)
        if problem:
            return f'{name} of {server}: {problem}'
    return ''


def _ask(cloud, path):
    """Ask nova, once more if it does not answer."""
    from keystoneauth1 import exceptions

    return steadfast.Insistence(
        (exceptions.ClientException,), ANSWER_TIMEOUT)(
            cloud.nova, 'GET', path)


def _until(cloud, server, status, timeout):
    """Wait until a server has a status and nothing to do; '' or what else."""
    deadline = time.monotonic() + timeout
    while True:
        now = _ask(cloud, f'/servers/{server}')['server']
        task = now['OS-EXT-STS:task_state']
        if now['status'] == 'ERROR':
            return now.get('fault', {}).get('message', 'ERROR')
        if not task and now['status'] == status:
            [last, *_] = _ask(
                cloud, f'/servers/{server}/os-instance-actions'
            )['instanceActions']
            return last['message'] or ''
        if time.monotonic() > deadline:
            return (f'{now["status"]}, {task or "nothing"} going on, '
                    f'{timeout:.0f} s later')
        time.sleep(0.5)
