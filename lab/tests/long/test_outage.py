# SPDX-License-Identifier: Apache-2.0

"""What all computes need is away for a while, under load.

The experiment judges itself; see ``tools/lab run outage --help``.
"""

from lab.tests.stack import command

NODES = 30
SECONDS = 60


class OutageTestCase(command.LabTestCase):

    maxDiff = None

    def away(self, what, how, seconds=SECONDS, *more):
        figures = self.experiment(
            'outage', '--what', what, '--how', how, '--seconds',
            str(seconds), *more, shape=('--nodes', str(NODES)))
        self.assertEqual((what, how, seconds), tuple(
            figures[name] for name in ('what', 'how', 'seconds')))
        self.assertGreater(figures['active'], 0)
        return figures

    def test_conductor_is_killed(self):
        self.away('conductor', 'kill')

    def test_rabbitmq_stands_still(self):
        self.away('rabbit', 'freeze')

    def test_database_stands_still(self):
        self.away('database', 'freeze')

    def test_database_fails_over(self):
        self.away('database', 'failover', 30)

    def test_keystone_is_killed(self):
        self.away('keystone', 'kill')

    def test_memcached_is_killed(self):
        self.away('memcached', 'kill')

    def test_rabbitmq_is_killed(self):
        self.away('rabbit', 'kill')

    def test_placement_is_killed(self):
        self.away('placement', 'kill')

    def test_ironic_is_killed(self):
        self.assertEqual(0, self.away('ironic', 'kill')['error'])

    def test_ironic_stands_still(self):
        self.assertEqual(0, self.away('ironic', 'freeze')['error'])

    def test_a_compute_is_taken_over_meanwhile(self):
        for what in 'conductor', 'database', 'ironic':
            with self.subTest(what):
                self.away(what, 'freeze', SECONDS, '--fence')

    def test_a_quarter_of_an_hour(self):
        for what in 'conductor', 'ironic', 'rabbit':
            with self.subTest(what):
                self.away(what, 'kill', 900)
