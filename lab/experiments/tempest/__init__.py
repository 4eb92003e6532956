# SPDX-License-Identifier: Apache-2.0

"""The tests of Tempest's compute API, with this driver and with nova's own.

OpenStack clouds are tested with Tempest. It gets an environment of its own
beside the lab's (pip), and the lab a network, an image and a flavor more. Its
tests of the compute API (tempest.api.compute) and those of
ironic-tempest-plugin's API run with this driver. Those of the first kind run
again, and when half of them are over the compute with most servers is killed,
fenced as soon as nova calls it down, and stays dead until they end. Then all
computes get nova's own driver, all tests run once more, and the computes get
this driver back.

What the lab or nova's Ironic driver cannot do is turned off in tempest.conf,
and its tests are skipped: resize, migration, shelve, snapshots, volumes,
floating IPs, everything that logs in to a server. Some tests fail with both
drivers.

--tests runs a part: about 10 s for each test of a server and round, e.g.
--tests test_server_actions. The output of each test is in the logs
tempest-ours, tempest-killed and tempest-stock.

Figures: for each of ours, killed and stock how many tests passed, failed and
were skipped, and seconds; both, tests that fail with both drivers, and why;
only_ours, tests that fail with ours, or are not run or skipped although they
pass with stock's; only_stock, the reverse; dead, the compute that was killed;
recovered_after, seconds from that until nothing was left on it; in_flight,
classes of tests that were at work meanwhile (tests of a class share servers),
in_flight_failed, those of their tests that passed before and did not now;
lost, the same of all other tests; servers_left, that tests have not deleted.

Must be: none only_ours, none lost, some passed, quiet, consistent.
"""

import contextlib

from lab.bench import bench as benches
from lab.bench import criteria
from lab.bench import residents
from lab.bench import takeover
from lab.bench import wanted
from lab.experiments.tempest import results
from lab.experiments.tempest import suite as suites
from lab import options

NEEDS = wanted.Wanted(driver='ours', options=(
    # The ring of stock, so that no node moves when drivers change.
    'ironic_multihost.ring_partitions=32',
    # Heartbeats are late on a machine that is busy with tests.
    'DEFAULT.service_down_time=15',
    # What a fake machine can do beside what nova needs.
    *(f'ironic:DEFAULT.enabled_{kind}_interfaces=fake'
      for kind in ('bios', 'firmware', 'inspect', 'raid', 'vendor'))))
COMPUTE = r'^tempest\.api\.compute\.'
IRONIC = r'^ironic_tempest_plugin\.tests\.api\.'
WORKERS = 4


def add_options(parser):
    """Add the options of this experiment to the command line."""
    parser.add_argument(
        '--tests', metavar='REGEX',
        help='only tests with such names (default: all of both APIs)')
    parser.add_argument(
        '--workers', type=options.positive, default=WORKERS, metavar='N',
        help=f'run so many at a time (default: {WORKERS})')


def choices(args):
    """What the options ask of :func:`run`."""
    return {'tests': args.tests, 'workers': args.workers}


def install(args, settings, progress):
    """Install Tempest."""
    suites.install(settings, progress)


def run(bench, tests, workers):
    """Run the tests with both drivers; returns the figures.

    :param tests: regular expression for names of tests, None for all
    :param workers: how many run at a time
    """
    figures = {'workers': workers}
    with contextlib.ExitStack() as undo:
        suite = suites.Suite(bench, undo, workers)
        suite.prepare()

        def round_(label, names, meanwhile=lambda done: None):
            begin = bench.recorder.now()
            found = suite.run(label, names, meanwhile)
            figures[label] = {
                **results.tally(found),
                'seconds': round(bench.recorder.now() - begin),
                'servers_left': suite.clear()}
            return found

        ours = round_('ours', tests or COMPUTE)
        death = Death(bench, len(ours) / 2)
        killed = round_('killed', tests or COMPUTE, death)
        death.undo()
        ironic = {} if tests else round_('ours-ironic', IRONIC)
        _switch(bench, 'stock')
        stock = round_('stock', tests or COMPUTE)
        if not tests:
            stock |= round_('stock-ironic', IRONIC)
        _switch(bench, 'ours')
    return {**figures, **compared(ours | ironic, stock),
            'dead': death.name, 'recovered_after': death.seconds,
            **spared(ours, killed, death.begin, death.end),
            'quiet': bench.await_quiet()}


def failures(figures):
    """Return sentences about the criteria that are not met."""
    return criteria.unmet(
        figures,
        criteria.true('any_passed', 'no test passes with both drivers'),
        criteria.none('only_ours', 'not as with stock: {}'),
        criteria.true('dead', 'all tests were over before a compute was '
                      'killed; take more of them with --tests'),
        criteria.none('lost', 'not in flight when a compute was killed: {}'),
        criteria.QUIET)


def compared(ours, stock):
    """Figures of what both drivers, or one of them, fail with.

    :param ours: results, see :mod:`results`
    :param stock: results of these tests with nova's own driver
    """
    wrong = results.failed(ours)
    return {
        'any_passed': any(
            result.status == results.PASSED and name in stock
            and stock[name].status == results.PASSED
            for name, result in ours.items()),
        'both': {name: reason for name, reason
                 in results.failed(stock).items() if name in wrong},
        'only_ours': results.worse(ours, stock),
        'only_stock': results.worse(stock, ours)}


def spared(before, killed, begin, end):
    """Figures of what the death of a compute has spared, and has not.

    :param before: results, see :mod:`results`
    :param killed: results of these tests while a compute was killed
    :param begin: when it was, in seconds since the epoch
    :param end: when nothing was left on it
    """
    classes = results.in_flight(killed, begin, end)
    lost = results.worse(killed, before)
    return {
        'in_flight': sorted(classes),
        'in_flight_failed': {name: reason for name, reason in lost.items()
                             if results.class_of(name) in classes},
        'lost': {name: reason for name, reason in lost.items()
                 if results.class_of(name) not in classes}}


class Death:
    """Kills the compute with most servers in the middle of the tests.

    :param bench: :class:`lab.bench.bench.Bench`
    :param after: it is killed when so many are over
    :ivar name: of the compute, None before
    :ivar begin: when it was killed, in seconds since the epoch
    :ivar end: when nothing was left on it
    """

    def __init__(self, bench, after):
        self._bench = bench
        self._after = after
        self.name = None
        self.begin = self.end = 0.0

    def __call__(self, done):
        """Learn how many tests are over."""
        if self.name or done < self._after:
            return
        bench = self._bench
        self.name = residents.busiest(bench)
        self.begin = bench.clock()
        bench.kill(self.name)
        bench.await_down(self.name)
        bench.note(f'fence {self.name}')
        bench.computes.fence(self.name)
        bench.recorder.wait_for(
            self._nothing_left, benches.ARRIVE,
            f'nothing being left on {self.name}')
        self.end = bench.clock()
        bench.note(f'nothing is left on {self.name}')

    def _nothing_left(self, seen):
        # It deletes the record of a node that Ironic has no more itself.
        nodes = {node.uuid for node in seen.nodes}
        return not (nodes.intersection(seen.owned_by(self.name))
                    or residents.placed(seen, self.name))

    @property
    def seconds(self):
        """How long it took until nothing was left on it."""
        return round(self.end - self.begin, 1)

    def undo(self):
        """Bring the compute back."""
        if self.name:
            takeover.bring_back(self._bench, self.name)
            self._bench.settle()


def _switch(bench, driver):
    """Give all computes another driver."""
    bench.note(f'all computes get the driver {driver}')
    bench.computes.switch(bench.computes.names(), driver)
    bench.for_driver(driver).await_places()
