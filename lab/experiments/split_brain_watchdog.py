# SPDX-License-Identifier: Apache-2.0

"""A compute loses nova but not the machines, and a watchdog ends it.

As split-brain, with nobody who fences. The compute with most nodes runs under
a supervisor that watches it as systemd does: nova-compute shows signs of life
while nova says that it is up, and is killed otherwise, and started again. Cut
off from nova in the middle of work it still reaches Ironic. The others see it
down, and take its servers over when they have for takeover_after seconds, the
shortest with which nova-compute starts. A minute after the cut, or later, it
finds nova again.

Figures: down_after (seconds from the cut), killed_after (the same, None when
it was not killed), killed_to_first_taken_over (seconds from the kill until
the first of its servers was on another compute), cut_to_last_taken_over, kills
(how often until it found nova again); the others are those of split-brain.

Must be: killed, once, and before anything was taken over; all else as for
split-brain.
"""

import dataclasses
import time

from lab.bench import criteria
from lab.bench import severed
from lab.bench import takeover
from lab.bench import wanted
from lab import isolation
from lab import supervisor

#: Seconds without a sign of life. A busy machine is late by some.
WATCHDOG = 8
ANSWER = 15
#: The least, see the documentation, with a service_down_time of 10 s.
TAKEOVER_AFTER = 60

TAKEN = 'cut_to_last_taken_over'

NEEDS = wanted.Wanted(options=(
    'ironic:fake.deploy_delay=5', 'ironic.api_max_retries=30',
    f'DEFAULT.rpc_response_timeout={ANSWER}',
    'ironic_multihost.instance_takeover=down',
    f'ironic_multihost.takeover_after={TAKEOVER_AFTER}'))


@dataclasses.dataclass
class Patience:
    """Nobody decides: the others wait, and note when they take something.

    :ivar bench: :class:`lab.bench.bench.Bench`
    :ivar name: of the compute
    :ivar cut: when it was cut off
    :ivar taken: when the first server was seen on another compute
    """

    bench: object
    name: str
    wait: float = TAKEOVER_AFTER
    cut: float | None = None
    taken: float | None = None

    def begin(self, cut):
        """Watch its servers; returns when it was cut off."""
        self.cut = cut
        seen = self.bench.recorder.view
        its = {uuid for uuid, instance in seen.instance_of.items()
               if instance.host_key == self.name.lower()
               and not instance.deleted}

        def see(seen):
            if self.taken is None and any(
                    (instance := seen.instance_of.get(uuid)) is not None
                    and not instance.deleted
                    and instance.host_key != self.name.lower()
                    for uuid in its):
                self.taken = self.bench.recorder.now()

        self.bench.recorder.listen(see)
        return cut

    def end(self):
        """There is nothing to take back."""


def run(bench):
    """Boot, cut off, wait, operate, mend; returns the figures."""
    name, _ = bench.busiest
    log = bench.computes.log(name)
    before = len(supervisor.kills(log))
    bench.note(f'{name} gets a relay and a watchdog')
    with isolation.Isolation(
            bench.settings, bench.computes, name, WATCHDOG) as line:
        bench.await_up(name)
        bench.settle()
        patience = Patience(bench, name)
        servers, figures = severed.play(
            bench, name, line, patience, TAKEN)
        kills = supervisor.kills(log)[before:]
        bench.note(f'{name} gets rid of both')
    bench.await_up(name)
    servers.delete()
    # Of the clock that the recorder has.
    killed = (None if not kills
              else kills[0] - (time.time() - bench.recorder.now()))
    return {
        **figures, 'kills': len(kills),
        'killed_after': takeover.between(patience.cut, killed),
        'killed_to_first_taken_over': takeover.between(
            killed, patience.taken)}


def failures(figures):
    """What is not as it must be, in sentences."""
    failed = criteria.unmet(
        figures,
        criteria.true('killed_after', 'it was not killed'),
        criteria.once('kills', 'it was killed {} times'))
    late = figures['killed_to_first_taken_over']
    if late is not None and late <= 0:
        failed.append('its servers were taken over before it was dead')
    return [*failed, *severed.failures(figures, TAKEN)]
