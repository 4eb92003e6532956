# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""The judgement of the experiment in which audits are rare."""

from oslotest import base

from lab.experiments import reaction
from nova_ironic_multihost.tests import views


class UsableTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = views.consistent()
        for index in range(len(self.seen.providers)):
            self.seen = views.changed(self.seen, 'providers', index,
                                      total=1, reserved=0)
        self.nodes = ['node-1', 'node-4']

    def usable(self, host='', **changes):
        seen = self.seen
        for field, (index, change) in changes.items():
            seen = views.changed(seen, field, index, **change)
        return reaction.usable(seen, self.nodes, host)

    def test_offered_by_a_live_compute(self):
        self.assertTrue(self.usable())
        self.assertTrue(self.usable('Compute-1'))

    def test_still_where_they_were(self):
        self.assertFalse(self.usable('Compute-2'))

    def test_compute_that_gets_no_builds(self):
        for change in ({'up': False}, {'disabled': True}, {'mapped': False}):
            self.assertFalse(self.usable(services=(1, change)), change)

    def test_placement_does_not_offer_it(self):
        for change in ({'reserved': 1}, {'total': 0}):
            self.assertFalse(self.usable(providers=(4, change)), change)


class FailuresTestCase(base.BaseTestCase):

    def failures(self, after, moves=1):
        good = {'usable_after': 14.0, 'most_moves': 1}
        return reaction.failures({
            'limit': 23.0, 'intervals': [10, 600], 'quiet': True,
            'every_10_s': good,
            'every_600_s': {'usable_after': after, 'most_moves': moves}})

    def test_within_the_limit(self):
        self.assertEqual([], self.failures(23.0))

    def test_too_late_or_never(self):
        for after in (23.1, None):
            sentence, = self.failures(after)
            self.assertIn('with audits every 600 s', sentence)

    def test_to_and_fro(self):
        sentence, = self.failures(20.0, moves=2)
        self.assertIn('a node moved 2 times', sentence)
