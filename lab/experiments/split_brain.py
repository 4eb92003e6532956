# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""A compute loses nova but not the machines, is fenced, and finds nova again.

The compute with most nodes reaches the message bus through a relay. Servers
are booted on it, and one more is being built when the relay lets nothing
through any more: the compute still reaches Ironic, placement and keystone,
and goes on with what it was doing. Before nova notices users ask it for a
reboot, a stop and a delete, which wait on the wire. nova calls it down, it is
forced down (without being killed, which is the mistake), others take its
servers over, and users go on with them there. After a minute, in which its
own requests have timed out, the relay lets all through again that has waited,
in both directions; at last the compute is no longer forced down.

Figures: down_after (seconds), fenced_to_last_taken_over (seconds until each
server that was built is on a live compute, and the record of its node too),
asked_before (seconds from the fence until what was asked for before was done
or given up), build (what became of the one in progress), operations (seconds
of each, None when not done), not_done (why), error (besides the build),
stuck; while_cut_off (what the compute did to machines after the others had
done theirs) and after_return: changed (what is not as it was), touched
(servers to whose machines Ironic has written), deeds (what the compute did or
tried, by nova's word); lost (servers whose machine is not held for them any
more).

Must be: all seconds known, error, stuck and lost 0, the build ACTIVE or
ERROR; nothing changed and no machine touched by the compute that was cut
off; leaked 0, consistent.
"""

import dataclasses

from lab.bench import criteria
from lab.bench import operations
from lab.bench import takeover
from lab.bench import wanted
from lab import isolation
from lab import ledger
from lab import timeline

# A build and a tear-down take twice that, so that there is a middle to be in,
# and nova waits for them longer than it does in the lab otherwise. A request
# to the conductor that gets no answer is over sooner than by default, so that
# the cut need not last for minutes.
NEEDS = wanted.Wanted(options=(
    'ironic:fake.deploy_delay=5', 'ironic.api_max_retries=30',
    'DEFAULT.rpc_response_timeout=20'))
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


def run(bench):
    """Boot, cut off, fence, operate, mend; returns the figures."""
    name, _ = bench.busiest
    bench.note(f'{name} gets a relay')
    with isolation.Isolation(bench.settings, bench.computes, name) as line:
        bench.await_up(name)
        bench.settle()
        servers, figures = _split(bench, name, line)
        bench.note(f'{name} gets rid of the relay')
    bench.await_up(name)
    servers.delete()
    return figures


def _split(bench, name, line):
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
    fenced = bench.note(f'fence {name}')
    bench.computes.fence(name)
    taken = servers.await_taken_over(takeover.AUDITS * bench.audit)
    before = rests.seconds(fenced, OPERATION)
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
    # Alive, and still forced down, for an audit.
    bench.recorder.watch(1.5 * bench.audit)
    bench.note(f'unfence {name}')
    bench.computes.unfence(name)
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
        'fenced_to_last_taken_over': takeover.between(fenced, taken),
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


def failures(figures):
    """What is not as it must be, in sentences."""
    failed = criteria.unmet(
        figures,
        criteria.true('fenced_to_last_taken_over',
                      'its servers were not taken over in time'),
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
