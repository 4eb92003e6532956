# SPDX-License-Identifier: Apache-2.0

"""What slow-stop sees and must come to."""

from oslotest import base

from lab.experiments import slow_stop
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.tests import views

BUILDS = {'error': 0, 'building': 0, 'gone': 0, 'not_on_one_machine': 0}
GOOD = {'usable_after': 45.0, 'limit': 45.0, 'running': True,
        'at_rest_after': 0.0, 'needless': 0, 'most_moves_per_change': 1,
        'unschedulable': 0, 'leaked': 0, 'quiet': True}


class UsableTestCase(base.BaseTestCase):

    def usable(self, seen, nodes):
        return slow_stop.usable_or_given(seen, nodes, 'Compute-2')

    def setUp(self):
        super().setUp()
        self.seen = views.offered()

    def test_only_what_is_elsewhere(self):
        self.assertTrue(self.usable(self.seen, ['node-2', 'node-3']))
        self.assertFalse(self.usable(self.seen, ['node-1', 'node-2']))

    def test_a_build_keeps_its_node_there(self):
        # In the queue: Ironic knows nothing of it yet.
        seen = views.with_more(self.seen, 'allocations',
                               cloud_state.Allocation('server-1', 'node-1'))
        self.assertTrue(self.usable(seen, ['node-1', 'node-2']))
        self.assertFalse(self.usable(seen, ['node-1', 'node-4']))


class FailuresTestCase(base.BaseTestCase):

    def failures(self, own=None, later=None, **changes):
        return slow_stop.failures({
            **GOOD, 'own': {**BUILDS, **(own or {})},
            'later': {**BUILDS, **(later or {})}, **changes})

    def test_good(self):
        self.assertEqual([], self.failures())

    def test_too_late_or_never(self):
        for after in 45.1, None:
            [sentence] = self.failures(usable_after=after)
            self.assertIn(f'used after {after} s', sentence)

    def test_each_bad_figure_has_its_sentence(self):
        for changes in ({'running': False}, {'at_rest_after': None},
                        {'needless': 1}, {'most_moves_per_change': 2},
                        {'unschedulable': 1}, {'leaked': 1},
                        {'quiet': False}):
            self.assertEqual(1, len(self.failures(**changes)), changes)

    def test_no_build_is_lost(self):
        for figure in BUILDS:
            for whose in 'own', 'later':
                [sentence] = self.failures(**{whose: {figure: 1}})
                self.assertTrue(sentence.startswith(f'{whose}: '), sentence)

    def test_the_stop_outlasts_the_limit_and_nova_waits_for_it(self):
        # nova 34 waits for 140 s at most.
        limit = slow_stop.DOWN_TIME + slow_stop.REACTION
        self.assertLess(limit + 20, slow_stop.SECONDS)
        self.assertLess(slow_stop.SECONDS, 140)
