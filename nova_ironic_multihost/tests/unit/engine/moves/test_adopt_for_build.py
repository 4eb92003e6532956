# SPDX-License-Identifier: Apache-2.0

"""A node is taken from a dead host for a build that is here now."""

from nova_ironic_multihost.engine.moves import adopt_for_build
from nova_ironic_multihost.tests.unit.engine import post

WAITING = post.WAITING


class AdoptionTestCase(post.PostTestCase):
    """A build has come to b whose node a has, and a is dead."""

    def setUp(self):
        super().setUp()
        self.node = min(self.preferred('b', 'b', 'c'))
        self.acquired = []
        self.adoption = adopt_for_build.BuildAdopter(
            self.auditors['b'], self.trackers['b'],
            lambda audit, mine: self.acquired.append(mine))

    def adopt(self, build='build', node=None):
        self.told = self.adoption.adopt(
            self.settings('b'), build, node or self.node)
        return self.trackers['b'].has(node or self.node)

    def allocate(self, *builds):
        self.cloud.allocations[self.node] = frozenset(builds)
        self.cloud.placed |= dict.fromkeys(builds, WAITING)

    def test_node_is_taken_for_the_build_that_has_come(self):
        self.allocate('build')
        self.fence()
        self.assertFalse(self.trackers['b'].has(self.node))
        self.assertTrue(self.adopt())
        self.assertEqual([[self.node]], self.acquired)
        self.assertTrue(self.told)
        self.assertTrue(self.auditors['b'].is_mine(self.node))

    def test_no_other_node_is_touched(self):
        self.allocate('build')
        self.fence()
        audited = [*self.trackers['b'].audited]
        self.adopt()
        self.assertEqual([*audited, self.node],
                         self.trackers['b'].audited)

    def test_node_still_waits_for_any_other_build(self):
        for builds in (['other'], ['build', 'other']):
            self.allocate(*builds)
            self.fence()
            self.assertFalse(self.adopt())

    def test_node_that_is_anothers_is_left_to_it(self):
        node = min(self.preferred('c', 'b', 'c'))
        self.cloud.allocations[node] = frozenset({'build'})
        self.cloud.placed['build'] = WAITING
        self.fence()
        self.assertFalse(self.adopt(node=node))

    def test_nothing_is_asked_about_a_node_that_is_mine(self):
        self.trackers['b'].tracked.add(self.node)
        self.cloud.asked.clear()
        self.assertTrue(self.adopt())
        self.assertFalse(self.told)
        self.assertEqual([], self.cloud.asked)

    def test_live_owner_keeps_its_node(self):
        self.allocate('build')
        self.assertFalse(self.adopt())
        self.assertFalse(self.told)
        self.assertEqual([], self.acquired)

    def test_no_error_of_this_is_one_of_the_build(self):
        self.allocate('build')
        self.fence()
        self.cloud.broken = True
        self.assertFalse(self.adopt())
        # It may have been taken before that.
        self.assertTrue(self.told)
        self.cloud.broken = False
        self.assertTrue(self.adopt())

    def test_nova_may_name_no_node(self):
        self.assertFalse(
            self.adoption.adopt(self.settings('b'), 'build', None))
        self.assertFalse(self.adopt(node='unknown'))
