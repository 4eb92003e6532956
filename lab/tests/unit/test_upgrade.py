# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from lab.experiments import upgrade
from nova_ironic_multihost.tests import views


def figures(**changes):
    return {
        'phases': {'one of ours': {'broken': [], 'consistent': True}},
        'spread': True, 'records_lost': 0, 'records_made_anew': 0,
        'providers_lost': 0, 'providers_made_anew': 0, **changes}


class LossesTestCase(base.BaseTestCase):

    def found_in(self, *more):
        self.said = []
        losses = upgrade.Losses(self.said.append)
        for seen in (views.consistent(), *more):
            losses.see(seen)
        return losses.figures()

    def test_a_move_is_no_loss(self):
        self.assertEqual(
            {'records_lost': 0, 'records_made_anew': 0,
             'providers_lost': 0, 'providers_made_anew': 0},
            self.found_in(views.changed(
                views.consistent(), 'records', 1, host='compute-3')))

    def test_lost_for_a_moment(self):
        found = self.found_in(
            views.without(views.consistent(), 'records', 1),
            views.without(views.consistent(), 'records', 1),
            views.without(views.consistent(), 'providers', 2),
            views.consistent())
        self.assertEqual((1, 1), (found['records_lost'],
                                  found['providers_lost']))
        self.assertEqual(
            [f'records of {views.consistent().records[1].node}: lost',
             f'providers of {views.consistent().providers[2].uuid}: lost'],
            self.said)

    def test_made_anew_between_two_looks(self):
        changed = views.changed(views.consistent(), 'records', 1, row=77)
        changed = views.changed(changed, 'providers', 1, id=78)
        found = self.found_in(changed, changed)
        self.assertEqual(
            (1, 1, 0), (found['records_made_anew'],
                        found['providers_made_anew'], found['records_lost']))


class FailuresTestCase(base.BaseTestCase):

    def test_as_it_must_be(self):
        self.assertEqual([], upgrade.failures(figures()))

    def test_a_server_that_does_not_work(self):
        [sentence] = upgrade.failures(figures(phases={
            'one of ours': {'broken': ['stop of x: ERROR'],
                            'consistent': True}}))
        self.assertEqual('one of ours: stop of x: ERROR', sentence)

    def test_a_phase_that_ends_inconsistent(self):
        [sentence] = upgrade.failures(figures(phases={
            'one of ours': {'broken': [], 'consistent': False}}))
        self.assertIn('not consistent', sentence)

    def test_something_lost(self):
        self.assertEqual(['2 providers made anew'],
                         upgrade.failures(figures(providers_made_anew=2)))

    def test_nodes_that_do_not_spread(self):
        [sentence] = upgrade.failures(figures(spread=False))
        self.assertIn('did not spread', sentence)
