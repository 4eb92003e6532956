# SPDX-License-Identifier: Apache-2.0

"""A part of the cloud is away while servers come and go.

Three workers boot, hard-reboot and delete servers without pause, others stay
all the time. After an audit --what is killed (SIGKILL, all its processes) or
frozen (SIGSTOP), after --seconds it is started again or continued; the load
goes on for two audits more, and then all has time to settle: at most
60 s, as what an outage has ended goes on within 30 s after it. A worker
asks again when a request fails or has no answer in 30 s. The database can
fail over, too: all connections are cut, nobody may write for so long, and all
are cut once more. With --fence a compute is killed and forced down, and the
rest goes away as soon as the first of its nodes or servers has another one: in
the middle of failover and takeover.

Figures: what, how, seconds, fenced (the compute, or none); answers_after and
up_after (seconds from its return until it answers, and until nova calls all
computes up; none when that never came); servers, active, error (some after
they were ACTIVE), error_faults (nova's messages with their number), late
(neither built nor rebooted in time), refused (requests that were asked again);
rest_after (seconds from the workers' end until nothing was in the middle of
anything, none when that never came); stuck (servers of a compute that are
still building or in a task state then; stuck_deletes of them are being
deleted), unplaced (the same of servers that no compute has: nova has lost the
request before one took it, or was asked for something after it had given the
build up), not_deleted (nova took the request to delete them and they are
there), residents_lost (those of the servers that stay that are not ACTIVE),
taken_over (how often a server that was built got another compute, if not that
which is fenced), left_on_dead (nodes and servers of that one); moves,
moved_nodes, most_moves of one node, most_moves_per_change (the same between
two changes of members), needless (moves from a live compute to one that the
ring does not prefer), unschedulable (nodes that moved to a compute while nova
sent no builds to it); same_processes (no compute has died or was started
again; other_processes says which), record_or_provider_lost (nodes without one
of them at the end), error_lines (what the computes logged from the beginning
of the outage until nova called all up), leaked (machines that Ironic holds for
servers that are gone) and quiet.

Must be: stuck, not_deleted, residents_lost, taken_over, left_on_dead, moves
(with --fence needless), record_or_provider_lost and leaked 0, same_processes,
all computes up again, quiet, consistent. Builds that fail are told and not
judged.
"""

import collections
import time

from lab.bench import bench as benches
from lab.bench import criteria
from lab.bench import logs
from lab.bench import residents as remaining
from lab.bench import takeover
from lab import errors
from lab import options
from lab import progress
from lab import stack as stacks
from lab import steadfast
from lab import timeline

#: What may be away, and the service that it is in the lab.
PARTS = {
    'rabbit': 'rabbitmq',
    'database': 'mariadb',
    'conductor': 'nova-conductor',
    'ironic': 'ironic',
    'placement': 'placement',
    'keystone': 'keystone',
    'memcached': 'memcached',
}
#: How it goes, and how it comes back: methods of :class:`lab.stack.Stack`.
WAYS = {'kill': ('kill', 'start'), 'freeze': ('pause', 'resume'),
        'failover': ('demote', 'promote')}
# What can fail over.
WITH_REPLICAS = ('database',)
WORKERS = 3
RESIDENTS = 3
# Audits with the load, after the outage.
AFTERWARDS = 2
# Messages that nobody answers are given up after 60 s, and asked again.
COME_BACK = 180.0
# What the outage has ended goes on within 30 s, and takes some more.
REST = 60.0


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--what', choices=tuple(PARTS), default='conductor',
        help='what is away (default: conductor)')
    parser.add_argument(
        '--how', choices=tuple(WAYS), default='kill',
        help='whether it is killed or frozen, or fails over, which only the '
        'database does (default: kill)')
    parser.add_argument(
        '--seconds', type=options.positive, default=60, metavar='N',
        help='how long it is away (default: 60)')
    parser.add_argument(
        '--fence', action='store_true',
        help='kill and fence a compute right before')


def choices(args):
    """What the options ask of :func:`run`."""
    if args.how == 'failover' and args.what not in WITH_REPLICAS:
        raise errors.LabError(
            f'{args.what} cannot fail over, only these can: '
            f'{", ".join(WITH_REPLICAS)}. Use --how kill or freeze.')
    return {'what': args.what, 'how': args.how, 'seconds': args.seconds,
            'fence': args.fence}


def run(bench, what, how, seconds, fence):
    """Take it away under load and bring it back; returns the figures.

    :param what: one of :data:`PARTS`
    :param how: one of :data:`WAYS`
    :param seconds: how long it is away
    :param fence: whether a compute is killed and fenced right before
    """
    adoptions = remaining.Adoptions()
    bench.recorder.listen(adoptions.see)
    residents = bench.cloud.boot(RESIDENTS, 'resident')
    dead = remaining.busiest(bench) if fence else None
    processes = _processes(bench, dead)
    begin = bench.note(f'{WORKERS} workers begin')
    with steadfast.Workload(bench.settings, WORKERS, 'outage',
                            bench.recorder.now, seconds) as load:
        bench.recorder.watch(bench.audit)
        if fence:
            adoptions.excuse(dead)
            _lose(bench, dead)
        absence = _absence(bench, what, how, seconds, dead)
        bench.recorder.watch(AFTERWARDS * bench.audit)
        bench.note('workers end')
    ended = bench.recorder.now()
    rested = _await_rest(bench)
    quiet = bench.await_quiet()
    return {
        'what': what, 'how': how, 'seconds': seconds, 'fenced': dead,
        **absence,
        **tally(load.lives),
        'rest_after': None if rested is None else round(rested - ended, 1),
        **_left(bench, load.lives, residents),
        'taken_over': adoptions.count,
        'left_on_dead': left_on(bench.recorder.view, dead),
        **bench.moved(begin),
        **compared(processes, _processes(bench, dead)),
        'record_or_provider_lost': lost(bench.recorder.view),
        'quiet': quiet}


def tally(lives):
    """Figures of the workload: what became of the servers."""
    outcomes = collections.Counter(life.outcome for life in lives)
    return {
        'servers': len(lives),
        'active': outcomes['ACTIVE'],
        'error': outcomes['ERROR'],
        # The same message for several servers is one message.
        'error_faults': dict(collections.Counter(
            logs.without_uuids(life.fault) or 'ERROR without a message'
            for life in lives if life.outcome == 'ERROR')),
        'late': outcomes['STUCK'],
        'refused': sum(life.refused for life in lives)}


def unfinished(servers):
    """Figures of servers that are in the middle of something.

    :param servers: what nova says of each
    """
    busy = [server for server in servers if server['status'] == 'BUILD'
            or server['OS-EXT-STS:task_state']]
    stuck = [s for s in busy if s['OS-EXT-SRV-ATTR:host']]
    return {
        'stuck': len(stuck),
        'stuck_deletes': sum(
            1 for s in stuck
            if s['OS-EXT-STS:task_state'] in ('deleting', 'soft-deleting')),
        'unplaced': len(busy) - len(stuck)}


def at_rest(seen):
    """Whether no compute is, or should be, at work on anything."""
    return not seen.leaked() and not any(
        # The last of them is half deleted.
        i.host and (i.task_state or i.vm_state in ('building', 'deleted'))
        for i in seen.instances if not i.deleted)


def compared(before, after):
    """Figures of the computes' processes.

    :param before: {name: pid}
    :param after: the same later, None for one that does not run
    """
    others = [f'{name} {"died" if after[name] is None else "was restarted"}'
              for name, pid in before.items() if after[name] != pid]
    return {'same_processes': not others, 'other_processes': others}


def lost(seen):
    """How many nodes have no record, or no provider."""
    return sum(1 for node in seen.nodes if node.uuid not in seen.owner_of
               or node.uuid not in seen.provider_of)


def left_on(seen, dead):
    """How many nodes and servers a dead compute still has.

    :param dead: its name, None if there is none
    """
    if dead is None:
        return 0
    return len(seen.owned_by(dead)) + remaining.placed(seen, dead)


def failures(figures):
    """What is not as it must be, in sentences."""
    return criteria.unmet(
        figures,
        criteria.true('answers_after', 'what was away never came back'),
        criteria.true('up_after', 'nova does not call all computes up again'),
        criteria.none('stuck', '{} servers are stuck in the middle of '
                      'something'),
        criteria.none('not_deleted', '{} servers could not be deleted'),
        criteria.none('residents_lost', 'servers that nobody touched: {}'),
        criteria.none('taken_over', '{} times a server got another compute'),
        criteria.none('left_on_dead', '{} nodes and servers are left on the '
                      'compute that is dead'),
        criteria.none('moves', 'nodes moved {} times although all computes '
                      'were hit alike')
        if figures['fenced'] is None else
        criteria.none('needless', '{} moves from live computes'),
        criteria.true('same_processes', 'computes have died or were started '
                      'again: see other_processes'),
        criteria.none('record_or_provider_lost', '{} nodes have no record or '
                      'no provider'),
        criteria.LEAKED, criteria.QUIET)


def _lose(bench, name):
    """Kill and fence a compute; others have begun to replace it then."""
    before = left_on(bench.recorder.view, name)
    bench.kill(name)
    bench.note(f'fence {name}')
    bench.computes.fence(name)
    bench.recorder.wait_for(
        lambda seen: left_on(seen, name) < before, benches.ARRIVE,
        f'the first node or server of {name} getting another compute')


def _absence(bench, what, how, seconds, dead):
    """Take something away and bring it back; returns figures of that."""
    name = PARTS[what]
    leave, come_back = WAYS[how]
    stack = stacks.Stack(bench.settings, progress.Progress())
    written = logs.Logs(bench.computes)
    with bench.recorder.gaps():
        bench.note(f'{how} {what}')
        getattr(stack, leave)(name)
        try:
            bench.recorder.watch(seconds)
        finally:
            # A lab that was up before is to be of use afterwards.
            back = bench.note(f'{what} comes back')
            getattr(stack, come_back)(name)
        answers = _await_answer(bench, stack, name)
        up = _await_up(bench, dead)
    return {'answers_after': takeover.between(back, answers),
            'up_after': takeover.between(back, up),
            'error_lines': logs.error_lines(written.text())}


def _await_answer(bench, stack, name):
    """Wait until a service answers; the time, None when it does not."""
    deadline = time.monotonic() + COME_BACK
    while not stack.answers(name):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.3)
    return bench.say(f'{name} answers')


def _await_up(bench, dead):
    """Wait until nova calls all computes up; None when it does not."""
    hosts = {name.lower() for name in bench.computes.names() if name != dead}
    # What was seen last may be from before the outage.
    since = time.time()
    try:
        bench.recorder.wait_for(
            lambda seen: seen.at >= since and hosts <= seen.up_hosts,
            COME_BACK, 'all computes coming up')
    except timeline.NeverHappened as error:
        bench.say(str(error))
        return None
    return bench.say('all computes are up')


def _await_rest(bench):
    """Wait until nothing is in the middle of anything; None if it never is."""
    bench.recorder.watch(benches.SEEN)
    try:
        return bench.recorder.wait_for(at_rest, REST, 'rest')
    except timeline.NeverHappened:
        bench.say('not all servers are at rest')
        return None


def _processes(bench, dead):
    return {name: bench.computes.pid(name) for name in bench.computes.names()
            if name != dead}


def _left(bench, lives, residents):
    """Figures of the servers that are left; deletes them all."""
    found = {server['id']: server for server in bench.cloud.servers()}
    undeleted = {life.server for life in lives if not life.left} & set(found)
    try:
        bench.cloud.delete(found)
    except errors.LabError as error:
        bench.say(str(error))
        undeleted |= {server['id'] for server in bench.cloud.servers()}
    return {**unfinished(found.values()),
            'not_deleted': len(undeleted),
            'residents_lost': remaining.lost(residents, found)}
