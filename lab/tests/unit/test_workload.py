# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab import workload
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.tests import views


def life(outcome='ACTIVE', asked=10.0, settled=15.0, hosts=('a',), **more):
    return workload.Life('x', asked, settled, outcome, frozenset(hosts),
                         **{'deleted': True, **more})


class ChoicesTestCase(base.BaseTestCase):

    def test_owner_of_the_node_when_it_was_chosen(self):
        choices = workload.Choices()
        choices.see(views.consistent())
        # The node moves later: that does not change who was asked.
        choices.see(views.changed(views.consistent(), 'records', 0,
                                  host='compute-3'))
        self.assertEqual({'compute-1'}, choices.of('server-0'))

    def test_each_compute_of_a_rescheduled_server(self):
        choices = workload.Choices()
        choices.see(views.consistent())
        choices.see(views.changed(
            views.consistent(), 'allocations', 0, provider='node-1'))
        self.assertEqual({'compute-1', 'compute-2'},
                         choices.of('server-0'))

    def test_server_without_allocation(self):
        choices = workload.Choices()
        choices.see(cloud_state.CloudState())
        self.assertEqual(frozenset(), choices.of('server-0'))


class TallyTestCase(base.BaseTestCase):

    def test_counts_outcomes(self):
        figures = workload.tally(
            [life(), life(), life('ERROR'), life('STUCK', deleted=False)],
            [])
        self.assertEqual((4, 2, 1, 1, 1), tuple(figures[name] for name in (
            'servers', 'active', 'error', 'stuck', 'not_deleted')))

    def test_error_on_a_compute_killed_meanwhile(self):
        figures = workload.tally(
            [life('ERROR', fault='lost')],
            [workload.Outage('A', 12.0, 30.0)])
        self.assertEqual((1, 0), (figures['error_own_compute_killed'],
                                  figures['error_others']))
        self.assertEqual({}, figures['error_others_faults'])

    def test_stuck_on_a_compute_killed_meanwhile(self):
        figures = workload.tally(
            [life('STUCK'), life('STUCK', hosts=('b',))],
            [workload.Outage('A', 12.0, 30.0)])
        self.assertEqual((2, 1), (figures['stuck'],
                                  figures['stuck_own_compute_killed']))

    def test_error_of_another_compute_or_time(self):
        for outage in (workload.Outage('b', 12.0, 30.0),
                       workload.Outage('a', 1.0, 9.0),
                       workload.Outage('a', 16.0, 30.0)):
            figures = workload.tally(
                [life('ERROR', fault='no valid host')], [outage])
            self.assertEqual((0, 1), (figures['error_own_compute_killed'],
                                      figures['error_others']))
            self.assertEqual({'no valid host': 1},
                             figures['error_others_faults'])

    def test_any_of_the_computes_of_a_rescheduled_server_counts(self):
        figures = workload.tally([life('ERROR', hosts=('a', 'b'))],
                                 [workload.Outage('b', 12.0, 13.0)])
        self.assertEqual(1, figures['error_own_compute_killed'])

    def test_nothing_happened(self):
        self.assertEqual(0, workload.tally([], [])['servers'])
