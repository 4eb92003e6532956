# SPDX-License-Identifier: Apache-2.0

"""How long a build waits for its claim, at rest and while nodes are audited.

Measured is ``ResourceTracker.instance_claim`` alone: from the call, which
waits for nova's lock, to the claim, of which the server's row and the node's
record are written by then. In one compute service that has all nodes; the
cloud is at rest, see :mod:`.tracked`, and the first audit is over. Each claim
is for another server, on a free node, those in turn, and is aborted when it
has been timed. Servers are put into nova's database as nova-conductor would;
placement has no allocation for them, which a claim does not read.

at rest
    nothing else is done meanwhile.
auditing
    another thread of the process audits. Before each of these audits all
    nodes change in Ironic, or a driver that knows what has changed would have
    nothing to audit. Claims that begin before the end of an audit count; there
    are as many audits as it takes.

Figures are milliseconds; the CPU that both threads share is that of one
interpreter, as in a nova-compute.
"""

import itertools

from benchmarks import auditing
from benchmarks import delays

#: Claims in each case.
CLAIMS = 100


def measure(settings, options, progress, nodes, claims=CLAIMS):
    """Return what is measured.

    :param nodes: how many, all of one compute service.
    :param claims: how many in each case.
    """
    found = {}
    for driver, ask, rows in auditing.each_driver(
            settings, options, progress, nodes):
        with progress.step(f'{driver}: {claims} claims at rest'):
            rest = ask('claim', builds(rows, claims))['result']
        with progress.step(f'{driver}: {claims} claims while auditing'):
            found[driver] = {
                'rest': summary(rest),
                'auditing': _auditing(ask, rows, nodes, claims)}
    return {'nodes': nodes, **found}


def _auditing(ask, rows, nodes, claims):
    """Return the figures of claims in audits."""
    times, audits = [], 0
    while len(times) < claims:
        audits += 1
        rows.change(nodes, seed=audits)
        times += ask('claim', builds(rows, claims - len(times)),
                     True)['result']
    return {**summary(times), 'audits': audits}


def builds(rows, count):
    """Put servers that are to be built into nova.

    :param rows: :class:`.tracked.Tracked`.
    :returns: [uuid of the server, node, resource class] of each.
    """
    free = rows.free()
    nodes = list(itertools.islice(itertools.cycle(free), count))
    return [[server, node, free[node]] for server, node
            in zip(rows.waiting(nodes), nodes, strict=True)]


def summary(times):
    """Return figures of claims, in milliseconds.

    :param times: seconds.
    """
    ordered = sorted(times) or [0.0]
    return {'claims': len(times), **{name: round(seconds * 1000, 1)
            for name, seconds in (('p50', delays.share(ordered, 0.5)),
                                  ('p99', delays.share(ordered, 0.99)),
                                  ('longest', ordered[-1]))}}


def table(found):
    """Return the figures as lines of text."""
    columns = ('claims', 'p50', 'p99', 'longest', 'audits')
    return [f'{"ms":16}' + ''.join(f'{name:>10}' for name in columns), *(
        f'{driver + " " + case:16}' + ''.join(
            f'{found[driver][case].get(name, 0):10}' for name in columns)
        for driver in ('stock', 'ours') for case in ('rest', 'auditing'))]
