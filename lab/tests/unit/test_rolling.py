# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab.experiments import rolling
from lab import workload


def figures(**changes):
    return {'error_others': 0, 'error_own_compute_killed': 3, 'stuck': 1,
            'stuck_own_compute_killed': 1, 'not_deleted': 0, 'leaked': 0,
            'quiet': True, **changes}


class FailuresTestCase(base.BaseTestCase):

    def test_servers_of_a_compute_that_is_restarted_may_fail(self):
        self.assertEqual([], rolling.failures(figures()))

    def test_whatever_else_may_not(self):
        for figure in ('error_others', 'not_deleted', 'leaked'):
            [sentence] = rolling.failures(figures(**{figure: 2}))
            self.assertTrue(sentence.startswith('2 '), sentence)
        [sentence] = rolling.failures(figures(stuck=3))
        self.assertTrue(sentence.startswith('2 '), sentence)


class TallyTestCase(base.BaseTestCase):

    def test_errors_of_stock_are_counted_apart(self):
        outages = [workload.Outage('Compute-1', 10.0, 20.0),
                   workload.Outage('compute-2', 50.0, 60.0)]

        def life(server, asked, settled, *hosts, outcome='ERROR'):
            return workload.Life(
                server, asked, settled, outcome, frozenset(hosts))

        found = rolling._tally([
            life('active', 1.0, 2.0, 'compute-1', outcome='ACTIVE'),
            life('restarted', 5.0, 15.0, 'compute-1'),
            life('stock', 30.0, 40.0, 'compute-1', 'compute-2'),
            life('ours', 30.0, 40.0, 'compute-1'),
            life('nowhere', 30.0, 40.0)], outages)
        self.assertEqual(
            {'servers': 5, 'active': 1, 'error': 4, 'error_on_stock': 1,
             'error_own_compute_killed': 1, 'error_others': 2},
            {name: found[name] for name in (
                'servers', 'active', 'error', 'error_on_stock',
                'error_own_compute_killed', 'error_others')})
