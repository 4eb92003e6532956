# SPDX-License-Identifier: Apache-2.0

"""How soon a change in Ironic is seen, while many are made.

Compute services poll a real Ironic as they do between two audits, and audit
nothing else meanwhile, so that the figures are those of any
``update_resources_interval``. Nodes are changed, created and deleted through
Ironic's API. The owner of a node has seen a change when nova's tracker has
told placement of it, each other compute service when it knows that a node has
come or gone. A change that somebody never sees is lost. Besides: seconds of an
audit with all that nova's tracker does, by one of them, of its nodes.
"""

import contextlib
import itertools
import time

from benchmarks import delays
from benchmarks import disturbing
from benchmarks import filling
from benchmarks import measured
from benchmarks import watching
from lab import cloud
from nova_ironic_multihost.rules import ring

#: Seconds within which each change is to be seen.
BOUND = 15

#: Seconds for which polls go on in the end, beside two pauses.
SETTLING = 6


def measure(settings, options, progress, hosts, count, rate, seed, pause):
    """Return what is measured with the nodes that are enrolled.

    :param hosts: how many compute services.
    :param count: of changes.
    :param rate: changes in a second.
    :param pause: seconds between two polls of a compute service.
    """
    names = [f'compute-{number}' for number in range(1, hosts + 1)]
    preferences = ring.Ring(names, 1024)
    ironic = cloud.Cloud(settings).ironic
    uuids = [node.uuid for node in ironic.node.list(limit=0)]
    filling.Filling(settings, progress).record(
        [filling.Machine(uuid, preferences.host_for(uuid), None)
         for uuid in uuids], names)
    with contextlib.ExitStack() as stack:
        asks = {}
        for name in names:
            with progress.step(f'{name} audits'):
                asks[name] = stack.enter_context(measured.Measured(
                    settings, 'ours', options, name))
                asks[name]('update')
        with progress.step('compute-1 audits again'):
            audit = asks['compute-1']('update')
        for ask in asks.values():
            ask('watch', pause)
        fields = fields_of(asks['compute-1']('known')['result'])
        with progress.step(f'{count} changes'):
            changes = disturbing.disturb(
                ironic, listed(ironic, fields), fields, count, rate, seed,
                progress)
        with progress.step('wait for what is left'):
            time.sleep(SETTLING + 2 * pause)
        seen = {name: ask('watched')['result'] for name, ask in asks.items()}
    return {'nodes': len(uuids), 'hosts': hosts, 'pause': pause,
            'audit': {
                'nodes': preferences.shares(uuids)['compute-1'],
                **{name: round(audit[name], 2) for name in ('wall', 'cpu')}},
            **judge(
                changes, seen, preferences.host_for, listed(ironic, fields))}


def fields_of(known):
    """Return what there is to know of a node.

    :param known: {uuid: content}.
    """
    return sorted(next(its for its in known.values() if its))


def listed(ironic, fields):
    """Return {uuid: content} of what Ironic has."""
    return {node.uuid: disturbing.normal(node.to_dict(), fields)
            for node in ironic.node.list(limit=0, fields=fields)}


def judge(changes, seen, owner, listed):
    """Return the figures.

    :param changes: {uuid: changes of that node}.
    :param seen: {host: what it has seen}, see :mod:`.watching`.
    :param owner: says which host owns a node.
    :param listed: {uuid: content}, what Ironic has in the end.
    """
    kinds = {kind: [] for kind in disturbing.KINDS}
    others = []
    for node, its in changes.items():
        for host, found in seen.items():
            if host == owner(node):
                for change, delay in zip(its, _of_owner(node, its, found),
                                         strict=True):
                    kinds[change.kind].append(delay)
            else:
                others += _of_other(node, its, found)
    every = [delay for some in kinds.values() for delay in some]
    return {'kinds': {kind: delays.summary(some)
                      for kind, some in kinds.items()},
            'owner': delays.summary(every), 'others': delays.summary(others),
            'between polls': delays.summary(
                [pause for found in seen.values()
                 for pause in pauses(found[watching.STATES])]),
            'differences': sum(
                differences(listed, found[watching.STATES][-1][1],
                            lambda node, host=host: owner(node) == host)
                for host, found in seen.items())}


def pauses(states):
    """Return the seconds from each poll to the next one.

    :param states: see :mod:`.watching`; the first and the last are no polls.
    """
    times = [at for at, _ in states[1:-1]]
    return [after - before for before, after in itertools.pairwise(times)]


def _of_owner(node, changes, found):
    """Return the delays until placement was told."""
    states = found[watching.STATES]
    first = [delays.Known(at, its[node]) for at, its in states[:1]
             if node in its]
    gone = [delays.Known(at, None) for at, its in states
            if node in its and its[node] is None]
    told = [delays.Known(at, content) for at, one, content
            in found[watching.REPORTS] if one == node]
    history = sorted([*first, *gone, *told], key=lambda known: known.at)
    return delays.delays(changes, history, [at for at, _ in states])


def _of_other(node, changes, found):
    """Return the delays until it was known that the node came or went."""
    states = found[watching.STATES]
    return delays.delays(
        [delays.Change(change.kind, node, change.at, _there(change.content))
         for change in changes if change.kind in ('create', 'delete')],
        [delays.Known(at, _there(its[node])) for at, its in states
         if node in its], [at for at, _ in states])


def _there(content):
    """Return what somebody knows who knows only that a node is there."""
    return None if content is None else True


def differences(listed, known, mine):
    """Return the number of nodes of which something wrong is known.

    :param listed: {uuid: content}, what Ironic has.
    :param known: {uuid: content}, what a compute service knows.
    :param mine: says whether it is to know all of a node.
    """
    return sum(
        (node in listed) != (node in known)
        or mine(node) and listed[node] != known[node]
        for node in listed.keys() | known.keys())


def failures(found):
    """Return what is wrong, in words."""
    wrong = []
    for who in ('owner', 'others'):
        its = found[who]
        if its['lost']:
            wrong.append(f'{who}: {its["lost"]} changes were never seen')
        if its['longest'] and its['longest'] > BOUND:
            wrong.append(f'{who}: a change was seen after '
                         f'{its["longest"]:.1f} s')
    if found['differences']:
        wrong.append(f'{found["differences"]} nodes are known wrongly')
    return wrong


def table(found):
    """Return the figures as lines of text."""
    rows = {**found['kinds'], 'all, by the owner': found['owner'],
            'came or went, by the others': found['others'],
            'from one poll to the next': found['between polls']}
    columns = ('changes', 'median', '95 %', 'longest', 'lost')
    lines = [f'{"":28}' + ''.join(f'{name:>9}' for name in columns)]
    lines += [f'{what:28}' + ''.join(
        f'{"-" if its[name] is None else its[name]:>9}' for name in columns)
        for what, its in rows.items()]
    return [*lines, f'{"differences in the end":28}'
            f'{found["differences"]:9}',
            'an audit of {nodes} nodes with the tracker: {wall} s, of them '
            '{cpu} s of CPU'.format(**found['audit'])]
