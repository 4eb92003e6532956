# SPDX-License-Identifier: Apache-2.0

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

from lab.bench import severed
from lab.bench import wanted
from lab import isolation

# A build and a tear-down take twice that, so that there is a middle to be in,
# and nova waits for them longer than it does in the lab otherwise. A request
# to the conductor that gets no answer is over sooner than by default, so that
# the cut need not last for minutes.
NEEDS = wanted.Wanted(options=(
    'ironic:fake.deploy_delay=5', 'ironic.api_max_retries=30',
    'DEFAULT.rpc_response_timeout=20'))
TAKEN = 'fenced_to_last_taken_over'


@dataclasses.dataclass(frozen=True)
class Fence:
    """Somebody says that the compute is dead, and later that it is not."""

    bench: object
    name: str
    #: Seconds from then until its servers may be taken over.
    wait = 0.0

    def begin(self, cut):
        """Decide that it is dead; returns when that is known.

        :param cut: when it was cut off
        """
        at = self.bench.note(f'fence {self.name}')
        self.bench.computes.fence(self.name)
        return at

    def end(self):
        """Take that back, when it has been alive for an audit."""
        self.bench.recorder.watch(1.5 * self.bench.audit)
        self.bench.note(f'unfence {self.name}')
        self.bench.computes.unfence(self.name)


def run(bench):
    """Boot, cut off, fence, operate, mend; returns the figures."""
    name, _ = bench.busiest
    bench.note(f'{name} gets a relay')
    with isolation.Isolation(bench.settings, bench.computes, name) as line:
        bench.await_up(name)
        bench.settle()
        servers, figures = severed.play(
            bench, name, line, Fence(bench, name), TAKEN)
        bench.note(f'{name} gets rid of the relay')
    bench.await_up(name)
    servers.delete()
    return figures


def failures(figures):
    """What is not as it must be, in sentences."""
    return severed.failures(figures, TAKEN)
