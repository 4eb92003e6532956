# SPDX-License-Identifier: Apache-2.0

"""A compute dies in the middle of builds: which of them are carried out?

Builds are sent to one compute, a node for each, so that nova would schedule
none of them again and a lost one is seen as that. Machines take --seconds to
deploy. Four situations, one after the other:

deploying  Ironic deploys all of them; the compute is killed (SIGKILL) and
           started again
queued     the compute is dead, which nova does not know yet; they wait in its
           queue; it is started
waiting    it does half of them at a time (max_concurrent_builds); the others
           have left the queue and wait in its memory; it is killed and
           started again
fenced     the same, and it is not started again but forced down; it comes
           back when all is over

Figures of each: host (the compute); before (how many of the builds were
unclaimed, claimed, deploying or built right before the kill, or the start of
the one that was dead) and in_queue (messages in its queue then); active,
error, building and gone (what became of them), lost (of those not ACTIVE, how
many were what before) and faults (nova's messages with their number);
at_rest_after (seconds from the start or the fence until nothing went on with
any of them, None when that never came); hosts (where they are), left_on_dead
(how many of them are on the compute that is fenced) and not_on_one_machine
(ACTIVE ones for which Ironic does not hold the very machine that nova and
placement name, deployed, and no other one). Of fenced also after_return:
changed (what is not as it was before), touched (servers to whose machines
Ironic has written since), deeds (what the compute did or tried, by nova's
word).

Must be, of each: all ACTIVE, at rest, left_on_dead and not_on_one_machine 0;
after the return nothing changed and no machine touched; leaked 0, quiet,
consistent.
"""

import collections
import contextlib
import functools

from lab.bench import bench as benches
from lab.bench import criteria
from lab.bench import fates
from lab.bench import operations
from lab.bench import takeover
from lab.bench import wanted
from lab import errors
from lab import options
from lab import queues
from lab import timeline

BUILDS = 5
SECONDS = 30
# A start takes longer in the lab than nova's patience is in it otherwise.
DOWN_TIME = 60
# What may be asked of a machine has to wait until Ironic lets go of it.
RETRIES = 60
# Until builds that were asked for have begun.
BEGIN = 90.0
# Beyond the time in which they could be carried out one after the other: a
# start, or a takeover, on a busy machine.
PATIENCE = 120.0


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--builds', type=options.positive, default=BUILDS, metavar='N',
        help=f'so many at a time, 2 or more (default: {BUILDS})')
    parser.add_argument(
        '--seconds', type=options.positive, default=SECONDS, metavar='N',
        help='a machine takes about so long to deploy '
        f'(default: {SECONDS})')
    parser.add_argument(
        '--situation', choices=tuple(SITUATIONS), action='append',
        help='only this one; may be repeated (default: all)')


def needs(args):
    """The lab that the options ask for."""
    return wanted.Wanted(options=(
        # A deployment has two parts that take so long.
        f'ironic:fake.deploy_delay={-(-args.seconds // 2)}',
        f'ironic.api_max_retries={RETRIES + args.seconds}',
        f'DEFAULT.service_down_time={DOWN_TIME}',
        *wanted.at_once(args.builds)))


def choices(args):
    """What the options ask of :func:`run`."""
    if args.builds < 2:
        raise errors.LabError(
            'One build cannot wait for another one; take --builds 2 or more.')
    return {'builds': args.builds, 'seconds': args.seconds,
            'situations': tuple(args.situation or SITUATIONS)}


def run(bench, builds, seconds, situations):
    """Go through the situations; returns the figures.

    :param builds: how many in each
    :param seconds: that a machine takes to deploy
    :param situations: names, of :data:`SITUATIONS`
    """
    figures = {'builds': builds, 'deploy_seconds': seconds,
               'situations': list(situations)}
    patience = PATIENCE + builds * seconds
    for situation in situations:
        trial = Trial(bench, situation, builds, patience)
        figures[situation] = SITUATIONS[situation](trial)
    return figures | {'quiet': bench.await_quiet()}


def failures(figures):
    """What is not as it must be, in sentences."""
    found = []
    for situation in figures['situations']:
        when, some = f'{situation}: ', figures[situation]
        found += criteria.unmet(
            some,
            *fates.CARRIED_OUT,
            criteria.true('at_rest_after', 'the builds never came to rest'),
            criteria.none('left_on_dead', '{} servers are left on the '
                          'compute that is dead'),
            when=when)
        if 'after_return' in some:
            found += takeover.undisturbed(
                some['after_return'], f'{when}returned: ')
    return found + criteria.unmet(figures, criteria.LEAKED, criteria.QUIET)


def _roomiest(bench, builds):
    """The compute that is up with most nodes for builds.

    Machines of builds before this may still be on their way back.
    """
    def room(seen, name):
        return (len(operations.bootable(seen, name))
                if name.lower() in seen.up_hosts else 0)

    names = bench.computes.names()
    with contextlib.suppress(timeline.NeverHappened):
        bench.recorder.wait_for(
            lambda seen: any(room(seen, name) >= builds for name in names),
            benches.ARRIVE, 'room for the builds')
    return max(names, key=functools.partial(room, bench.recorder.view))


class Trial:
    """Builds on one compute, and what is done to that meanwhile.

    :param bench: :class:`lab.bench.bench.Bench`
    :param name: of the situation
    :param builds: how many
    :param patience: seconds that they may take
    """

    def __init__(self, bench, name, builds, patience):
        self._bench = bench
        self._name = name
        self._builds = builds
        self._patience = patience
        self._servers = None
        self._before = {}
        self._queued = 0
        self.host = _roomiest(bench, builds)

    @property
    def _uuids(self):
        return [server for server, _ in self._servers.made.values()]

    @contextlib.contextmanager
    def half_at_a_time(self):
        """Inside, the compute carries out half of the builds at a time.

        It is restarted at both ends, or started if it is dead by then.
        """
        bench, some = self._bench, self._builds // 2
        bench.note(f'{self.host} restarts, to build {some} at a time')
        bench.computes.restart([self.host], wanted.at_once(some))
        bench.await_up(self.host)
        try:
            yield
        finally:
            bench.note(f'{self.host} restarts, to build all at a time')
            bench.computes.restart([self.host])

    def ask(self):
        """Have the scheduler send builds to the compute."""
        self._bench.note(f'{self._name}: {self._builds} builds on '
                         f'{self.host}')
        self._servers = takeover.Servers(
            self._bench, self.host, operations.ask_on(
                self._bench, self.host,
                [f'build {n}' for n in range(1, self._builds + 1)],
                self._name))

    def wait_until(self, condition):
        """Wait until the builds are as the situation wants them.

        :param condition: function of an Observation and of their uuids
        """
        self._bench.recorder.wait_for(
            lambda seen: condition(seen, self._uuids), BEGIN,
            f'the situation "{self._name}"')

    def wait_until_queued(self):
        """Wait until all are in the queue of the compute."""
        self.wait_until(
            lambda seen, servers: fates.allocated(seen, servers)
            and self._in_queue() >= self._builds)

    def wait_until_taken(self):
        """Wait until half are deployed, and none is in the queue."""
        self.wait_until(
            lambda seen, servers: fates.half_begun(seen, servers)
            and not self._in_queue())
        # What the conductor was about to send comes, too.
        self._bench.recorder.watch(benches.SEEN)

    def remember(self):
        """Note how far each build has come."""
        seen = self._bench.recorder.view
        self._before = {
            server: fates.stage(seen, server) for server in self._uuids}
        self._queued = self._in_queue()

    def kill(self):
        """SIGKILL the compute."""
        self._bench.kill(self.host)

    def start(self):
        """Start it again; returns when that began."""
        return self._bench.start(self.host)[0]

    def fence(self):
        """Force the compute down, which is dead; returns when."""
        at = self._bench.note(f'fence {self.host}')
        self._bench.computes.fence(self.host)
        return at

    def unfence(self):
        """Take that back; the compute runs again."""
        self._bench.note(f'unfence {self.host}')
        self._bench.computes.unfence(self.host)
        self._bench.await_up(self.host)

    def ledger(self):
        """The Ledger of the builds and their machines."""
        return self._servers.ledger()

    def returned(self, before):
        """What the compute has done since it was started.

        :param before: the Ledger right before that
        """
        self._bench.recorder.watch(takeover.RETURNED)
        return self._servers.returned(before, self.ledger())

    def figures(self, since, dead=''):
        """Wait until the builds are at rest; what became of them.

        :param since: when their seconds begin
        :param dead: the compute, if it is fenced
        """
        bench, uuids = self._bench, self._uuids
        try:
            at = bench.recorder.wait_for(
                lambda seen: fates.at_rest(seen, uuids), self._patience,
                'rest')
            bench.note('the builds are at rest')
        except timeline.NeverHappened:
            at = None
            bench.note('the builds are not at rest')
        bench.recorder.watch(benches.SEEN)
        stages = collections.Counter(self._before.values())
        return {
            'host': self.host,
            'before': dict(stages),
            'in_queue': self._queued,
            'at_rest_after': takeover.between(since, at),
            **fates.tally(
                bench.recorder.view, self._before,
                {server['id']: server for server in bench.cloud.servers()},
                dead)}

    def clear(self):
        """Delete what was built."""
        self._bench.note(f'{self._name}: delete what was built')
        self._servers.delete()

    def _in_queue(self):
        return queues.waiting(self._bench.settings, self.host)


def _come_back(trial):
    figures = trial.figures(trial.start())
    trial.clear()
    return figures


def _stop_halfway(trial):
    trial.ask()
    trial.wait_until_taken()
    trial.remember()
    trial.kill()


def _deploying(trial):
    trial.ask()
    trial.wait_until(fates.begun)
    trial.remember()
    trial.kill()
    return _come_back(trial)


def _queued(trial):
    trial.kill()
    trial.ask()
    trial.wait_until_queued()
    trial.remember()
    return _come_back(trial)


def _waiting(trial):
    with trial.half_at_a_time():
        _stop_halfway(trial)
        return _come_back(trial)


def _fenced(trial):
    with trial.half_at_a_time():
        _stop_halfway(trial)
        figures = trial.figures(trial.fence(), trial.host)
        kept = trial.ledger()
    trial.unfence()
    figures['after_return'] = trial.returned(kept)
    trial.clear()
    return figures


SITUATIONS = {'deploying': _deploying, 'queued': _queued,
              'waiting': _waiting, 'fenced': _fenced}
