# SPDX-License-Identifier: Apache-2.0

"""Computes go from one OpenStack to the next one by one, under load.

All but the computes is of the release of the lab (--to); they are started from
an older one (--from). Four workers boot and delete servers without pause, for
a while with nothing else, and then while each compute in turn, the one with
most nodes last, is told to end (SIGTERM), ends, and is started from the
release of the lab; until an audit after the last one. nova lets computes be of
the release before, and with 2026.1 also of 2025.1: both are SLURP releases,
and an operator may leave out the one between them.

nova 34's scheduler wants the trait OWNER_NOVA of each provider as soon as no
compute is older, which is when the last one starts and before it audits. A
node without it is none that builds can be sent to; whether a build finds no
other one is a matter of luck.

Figures: those of rolling-restart; from and to (releases); no_valid_host, how
many servers found no valid host since the first stop, no_valid_host_before,
how many before that, and before_seconds, how long that was; versions_before
and versions, that nova knows of the computes; not_updated, computes whose
version has not risen; unmarked_before, providers without OWNER_NOVA
when the first one is stopped; unmarked, the most of them in any one look since
the start of the last one.

Must be: error, no_valid_host, stuck, not_deleted, moves and leaked 0, none
not_updated, quiet, consistent; for 2026.2 and later unmarked 0.
"""

import dataclasses

from lab.bench import bench as benches
from lab.bench import criteria
from lab.bench import operations
from lab.bench import wanted
from lab import errors
from lab import install as installs
from lab import settings as places
from lab import view
from lab import workload

COLD = True
NEEDS = wanted.Wanted(options=(
    # A start takes longer in the lab than nova's patience is in it otherwise.
    'DEFAULT.service_down_time=60',
    # nova 33 always waits so long before it ends; the default is 160 s.
    'DEFAULT.manager_shutdown_timeout=20',
    'DEFAULT.graceful_shutdown_timeout=25'))
WORKERS = 4
# Seconds under load before the first one is stopped.
BEFORE = 60.0
# Audits after each restart.
BETWEEN = 2.5
# Until all computes have started, and nodes can be had.
START = 240.0
MARK = 'OWNER_NOVA'
NO_VALID_HOST = 'No valid host'
#: From which releases computes may come, for each release of the others.
#: nova refuses older ones (OLDEST_SUPPORTED_SERVICE_VERSION).
PAIRS = {'2025.2': ('2025.1',), '2026.1': ('2025.1', '2025.2'),
         '2026.2': ('2026.1',)}


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--from', choices=places.RELEASES, dest='older',
        help='release of the computes at the beginning (default: the one '
        'before that of the lab)')
    parser.add_argument(
        '--to', choices=places.RELEASES, dest='release',
        help='release to upgrade to, as --release')


def install(args, settings, progress):
    """Install the older release, too."""
    installs.Install(_older(settings, args.older), progress).ensure()


def choices(args):
    """What the options ask of :func:`run`."""
    return {'older': args.older}


def run(bench, older):
    """Take one after the other to the lab's release; returns the figures.

    :param older: the release that they come from, None for the one before
    """
    settings = bench.settings
    older = _older(settings, older)
    _start(bench, older)
    outages, stops = [], []
    choices, marks = workload.Choices(), Marks()
    bench.recorder.listen(choices.see)
    bench.recorder.listen(marks.see)
    bench.note(f'{WORKERS} workers begin')
    with workload.Workload(settings, WORKERS, 'update',
                           bench.recorder.now) as load:
        since = bench.recorder.now()
        bench.recorder.watch(BEFORE)
        marks.begin()
        bench.recorder.watch(benches.SEEN)
        versions, unmarked = _versions(settings), marks.most
        begin = bench.note(f'from {older.release} to {settings.release}')
        for name in order(bench.recorder.view, bench.computes.names()):
            told = bench.end(name)
            stops.append(bench.recorder.now() - told)
            marks.begin()
            _, up = bench.start(name)
            outages.append(workload.Outage(name, told, up))
            bench.recorder.watch(BETWEEN * bench.audit)
        bench.note('workers end')
    moved = bench.moved(begin)
    now = _versions(settings)
    lives = [dataclasses.replace(
        life, hosts=life.hosts | choices.of(life.server))
        for life in load.lives]
    return {**workload.tally(lives, outages),
            'from': older.release, 'to': settings.release,
            'no_valid_host': no_valid_host(lives, begin),
            'no_valid_host_before': (
                no_valid_host(lives) - no_valid_host(lives, begin)),
            'before_seconds': round(begin - since, 1),
            'versions_before': versions, 'versions': now,
            'not_updated': sorted(
                host for host, version in now.items()
                if version <= versions.get(host, 0)),
            'unmarked_before': unmarked, 'unmarked': marks.most,
            'stop_seconds': [round(seconds, 1) for seconds in stops],
            'away_seconds': [round(o.until - o.since, 1) for o in outages],
            **moved,
            'quiet': bench.await_quiet()}


def failures(figures):
    """What is not as it must be, in sentences."""
    wants_mark = figures['to'] >= '2026.2'
    return criteria.unmet(
        figures,
        criteria.none('error', '{} servers are in ERROR'),
        criteria.none('no_valid_host', '{} servers found no valid host'),
        criteria.none('stuck', '{} servers were neither ACTIVE nor ERROR in '
                      'time'),
        criteria.none('not_deleted', '{} servers could not be deleted'),
        criteria.none('moves', 'nodes moved {} times'),
        criteria.none('not_updated', 'these are no newer than before: {}'),
        *([criteria.none('unmarked', '{} nodes had no ' + MARK + ' while the '
                         'scheduler wanted it')] if wants_mark else ()),
        criteria.LEAKED, criteria.QUIET)


def no_valid_host(lives, since=float('-inf')):
    """How many servers found no valid host.

    :param lives: :class:`lab.workload.Life` objects
    :param since: only those that were over later than this
    """
    return sum(1 for life in lives
               if life.settled > since and NO_VALID_HOST in life.fault)


def order(seen, names):
    """Computes in the order in which they are updated.

    The nodes of the last one are those that may lack the trait.

    :param seen: an Observation
    """
    return sorted(names, key=lambda name: len(seen.owned_by(name)))


class Marks:
    """How many nodes lack the trait that nova 34's scheduler wants.

    :ivar most: the most that did in any one look since the last
        :meth:`begin`
    """

    def __init__(self):
        self.most = 0

    def begin(self):
        """Forget what has been seen."""
        self.most = 0

    def see(self, seen):
        """Learn from an Observation."""
        self.most = max(self.most, sum(
            1 for p in seen.providers if MARK not in p.traits))


def _older(settings, release):
    """The settings of the release that computes come from.

    :param release: None for the one before that of the lab
    :raises LabError: when nova does not allow for it
    """
    before = settings.before()
    if release is None:
        return before
    allowed = PAIRS[settings.release]
    if release not in allowed:
        raise errors.LabError(
            f'nova of {settings.release} refuses computes of {release}. Take '
            f'--from {" or ".join(allowed)}, or another --to.')
    return settings.of(release)


def _start(bench, older):
    """Start all computes from the older release, and map them."""
    from lab import computes

    names = bench.computes.names()
    bench.note(f'start {len(names)} computes of {older.release}')
    earlier = computes.Computes(older)
    earlier.spawn(names)
    earlier.wait(names)
    bench.computes.map_to_cell()
    bench.recorder.wait_for(
        lambda seen: operations.usable(seen, seen.node_of, ''), START,
        'each node being usable')
    bench.settle()


def _versions(settings):
    """{host: version of its service, as nova counts}."""
    [rows] = view.fetch(settings, 'nova_cell1', (
        'SELECT host, version FROM services WHERE deleted = 0'
        " AND `binary` = 'nova-compute' ORDER BY host",))
    return dict(rows)
