# SPDX-License-Identifier: Apache-2.0

from hypothesis import given
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules import builds
from nova_ironic_multihost.rules.builds import SentBuild

BUILD = SentBuild('i1', 'n1')
ALWAYS = float('-inf')


class ArrivalsTestCase(base.BaseTestCase):

    def observe(self, *moments, mine=ALWAYS):
        """Return what is known of a build after it was seen absent."""
        missing = {}
        for now in moments:
            missing = builds.missing_since(
                missing, [BUILD], {'n1': mine}, now)
        return missing

    def test_one_that_may_still_come(self):
        for moments in (0,), (0, 15), (0, 29):
            self.assertEqual(frozenset(), builds.lost(
                self.observe(*moments), moments[-1]))

    def test_one_that_will_not_come(self):
        self.assertEqual({BUILD}, builds.lost(self.observe(0, 30), 30))

    def test_one_that_was_not_absent_all_the_time(self):
        missing = builds.missing_since(
            self.observe(0), [], {'n1': ALWAYS}, 15)
        missing = builds.missing_since(
            missing, [BUILD], {'n1': ALWAYS}, 30)
        self.assertEqual(frozenset(), builds.lost(missing, 30))

    def test_one_that_another_host_may_have(self):
        missing = self.observe(129, 1928, mine=100)
        self.assertEqual(frozenset(), builds.lost(missing, 1928))
        self.assertEqual({BUILD}, builds.lost(missing, 1929))

    def test_one_for_a_node_that_was_mine_long_before(self):
        self.assertEqual({BUILD}, builds.lost(
            self.observe(130, 160, mine=100), 160))

    def test_node_that_left_and_came_back(self):
        missing = self.observe(0)
        missing = builds.missing_since(missing, [BUILD], {'n1': 15}, 30)
        self.assertEqual(frozenset(), builds.lost(missing, 30))

    @given(strategies.lists(strategies.tuples(
        strategies.integers(1, 60), strategies.booleans()), min_size=1))
    def test_none_is_lost_sooner_than_it_may_be(self, looks):
        now, since, missing = 0, None, {}
        for seconds, absent in looks:
            now += seconds
            since = (now if since is None else since) if absent else None
            missing = builds.missing_since(
                missing, [BUILD] if absent else [], {'n1': ALWAYS}, now)
            self.assertEqual(
                since is not None and now - since >= builds.LOST_AFTER,
                BUILD in builds.lost(missing, now))
