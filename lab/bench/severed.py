# SPDX-License-Identifier: Apache-2.0

"""A compute that is cut off from nova in the middle of work, and comes back.

Servers are booted on it and one more is being built when the line is cut. What
becomes of them when it is taken for dead, and what it does itself then, are
the figures of the experiments split-brain and split-brain-watchdog.
"""

import dataclasses

from lab.bench import criteria
from lab.bench import operations
from lab.bench import takeover
from lab import ledger
from lab import timeline

# Longer than two requests, one after the other, wait for their answers.
CUT = 60.0
OPERATION = 45.0
BUILD = 'being built'
BUILD_BEGINS = 30.0
BEFORE = {'deleted before': operations.DELETE,
          'stopped before': operations.STOP,
          'rebooted before': operations.REBOOT}


def _chains(image):
    """Operations on each server that was taken over, in their order."""
    return {
        'rebooted': [operations.REBOOT],
        'stopped': [operations.STOP],
        'rebuilt': [operations.rebuild(image)],
        'deleted': [operations.DELETE]}


def play(bench, name, line, decider, figure):
    """Cut a compute off that has servers, have others take them, mend.

    :param line: :class:`lab.isolation.Isolation`, entered
    :param decider: decides that it is dead: ``begin`` is called with the time
        at which it was cut off, and returns when that is decided; ``wait`` are
        the seconds until others may take its servers over then; ``end`` takes
        the decision back
    :param figure: what the seconds from the decision until each server is on
        another compute are called
    :returns: (the Servers, the figures)
    """
    chains = _chains(next(iter(bench.cloud.sdk.image.images())).id)
    labels = [*BEFORE, *chains, 'untouched']
    bench.note(f'boot {len(labels)} servers on {name}')
    servers = takeover.Servers(bench, name, operations.boot_on(
        bench, name, labels, 'split'))
    operator = servers.operator(OPERATION)
    build = _begin_build(bench, name)
    cut = bench.note(f'cut {name} off')
    line.cut()
    for label, operation in BEFORE.items():
        operator.ask(servers[label], operation)
    rests = takeover.Rests(bench, {
        label: (servers[label], operation)
        for label, operation in BEFORE.items()})
    down = bench.await_down(name)
    dead = decider.begin(cut)
    taken = servers.await_taken_over(
        decider.wait + takeover.AUDITS * bench.audit)
    before = rests.seconds(dead, OPERATION)
    chains |= servers.start_again('stopped before')
    bench.note('operations')
    done = operator.chains(
        [(servers[label], chain) for label, chain in chains.items()])
    _await_build(bench, build)
    bench.recorder.watch(2)
    servers.made[BUILD] = build
    early = servers.ledger()
    bench.recorder.watch(max(2.0, cut + CUT - bench.recorder.now()))
    late = servers.ledger()
    bench.note(f'{name} is reached again')
    line.mend()
    decider.end()
    bench.await_up(name)
    bench.recorder.watch(takeover.RETURNED)
    after = servers.ledger()
    end = after.servers[build[0]]
    others = dataclasses.replace(late, servers={
        uuid: server for uuid, server in late.servers.items()
        if uuid != build[0]})
    return servers, {
        'cut_off': name,
        'down_after': takeover.between(cut, down),
        figure: takeover.between(dead, taken),
        'asked_before': before,
        'operations': operations.seconds(done),
        'not_done': operations.not_done(done),
        'build': ('stuck' if end.task_state else
                  'ACTIVE' if end.vm_state == 'active' else
                  end.vm_state.upper()),
        **servers.meanwhile(others),
        'while_cut_off': servers.returned(early, late),
        'after_return': servers.returned(late, after),
        'lost': ledger.lost(after)}


def failures(figures, figure):
    """What is not as it must be, in sentences.

    :param figure: as for :func:`play`
    """
    failed = criteria.unmet(
        figures,
        criteria.true(figure, 'its servers were not taken over in time'),
        *takeover.MEANWHILE,
        criteria.none('lost', 'servers without their machines: {}'),
        criteria.LEAKED)
    if figures['build'] not in ('ACTIVE', 'ERROR'):
        failed.append(f'the server that was being built is '
                      f'{figures["build"]}')
    return [*failed, *takeover.undone(figures),
            *takeover.undisturbed(figures['while_cut_off'], 'cut off: '),
            *takeover.undisturbed(figures['after_return'], 'returned: ')]


def _begin_build(bench, name):
    """Begin to build a server; returns it and its node, when Ironic works."""
    bench.note(f'build on {name}')
    node = operations.bootable(bench.recorder.view, name)[0]
    server = bench.cloud.create('split-build', host=name,
                                hypervisor_hostname=node)
    bench.recorder.wait_for(
        lambda seen: seen.node_of[node].provision_state == 'deploying',
        BUILD_BEGINS, 'Ironic beginning to deploy')
    return server, node


def _await_build(bench, build):
    """Wait until nothing goes on with a build, if that comes to pass."""
    try:
        bench.recorder.wait_for(
            lambda seen: takeover.at_rest(seen, build[0], gone=False),
            OPERATION, 'the build coming to its end')
    except timeline.NeverHappened:
        bench.say('the build does not end')
