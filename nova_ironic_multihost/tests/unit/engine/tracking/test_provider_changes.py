# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.tracking import provider_changes
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine.tracking import test_due_nodes


class DriftTestCase(test_due_nodes.ScheduledTestCase):

    INTERVAL = 1_000_000

    def setUp(self):
        super().setUp()
        self.cloud.generations = lambda: dict(self.listed)
        self.listed = dict.fromkeys(cloud.NODES, 1)
        self.provider_changes = provider_changes.ProviderChanges(
            'a', self.auditor, self.schedule.note_provider_changes,
            lambda nodes: self.audited, self.clock)
        self.audited = {}
        self.provider_changes.once()

    def look(self):
        self.clock.now += provider_changes.LISTING
        self.provider_changes.once()
        return self.come_to_each()

    def test_provider_that_has_changed_before_it_was_listed_first(self):
        node, other, *_ = self.mine
        self.audited = {node: 0, other: 1}
        another = provider_changes.ProviderChanges(
            'a', self.auditor, self.schedule.note_provider_changes,
            lambda nodes: self.audited, self.clock)
        another.once()
        self.assertEqual({node}, self.come_to_each())

    def test_provider_that_has_changed(self):
        self.listed[self.mine[0]] = 2
        del self.listed[self.mine[1]]
        both = {self.mine[0], self.mine[1]}
        self.assertEqual(both, self.look())
        # That audit has changed it, too; it is looked at once more.
        self.listed[self.mine[0]] = 3
        self.listed[self.mine[1]] = 1
        self.assertEqual(both, self.look())
        self.assertEqual(set(), self.look())

    def test_placement_is_asked_anew_for_it_until_an_audit_succeeds(self):
        """nova remembers for five minutes what it has been told."""
        node, other = self.mine[:2]
        self.listed[node] = 2
        self.clock.now += provider_changes.LISTING
        self.provider_changes.once()
        self.assertFalse(self.schedule.asks_anew(node))
        for reported in False, True:
            with self.schedule.auditing(node):
                self.assertTrue(self.schedule.asks_anew(node))
                self.assertFalse(self.schedule.asks_anew(other))
                self.schedule.touch(node, reported)
        with self.schedule.auditing(node):
            self.assertFalse(self.schedule.asks_anew(node))

    def test_node_that_came_since_may_have_changed_since(self):
        self.cloud.set('b', up=False)
        for _ in range(audit_state.RECENT + 2):
            self.begin()
            self.mine = sorted(self.auditor.last.nodes)
            self.come_to_each()
        self.assertEqual([], self.schedule.waiting())
        came = set(self.mine) - self.preferred('a', 'a', 'b')
        self.assertEqual(came, self.look())
        self.assertEqual(set(), self.look())

    def test_what_this_host_has_changed_itself(self):
        ours, both, unknown = self.mine[:3]
        self.listed.update({ours: 3, both: 3, unknown: 3})
        self.provider_changes.expect(ours, 1, 2)
        self.provider_changes.expect(ours, 2, 3)
        # Somebody else has changed it before, or after.
        self.provider_changes.expect(both, 1, 2)
        self.provider_changes.expect(unknown, 2, 3)
        self.assertEqual({both, unknown}, self.look())
        self.assertEqual(set(), self.look())

    def test_nothing_is_expected_before_the_first_answer(self):
        provider_changes.ProviderChanges(
            'a', self.auditor, self.fail, self.fail, self.clock
        ).expect(self.mine[0], 1, 2)

    def test_hosts_ask_at_moments_of_their_own(self):
        moments = set()
        for host in 'abcde':
            one = provider_changes.ProviderChanges(
                host, self.auditor, self.fail, lambda nodes: {}, self.clock)
            one.once()
            moments.add(one._next)
        self.assertEqual(5, len(moments))

    def test_now_and_then(self):
        self.listed[self.mine[0]] = 2
        self.provider_changes.once()
        self.assertEqual(set(), self.come_to_each())

    def test_placement_does_not_answer(self):
        listed, self.listed = self.listed, None
        self.assertRaises(TypeError, self.look)
        self.listed = {**listed, self.mine[0]: 2}
        # It may be that it has too much to do.
        self.provider_changes.once()
        self.assertEqual(set(), self.come_to_each())
        self.clock.now += provider_changes.RETRY
        self.provider_changes.once()
        self.assertEqual({self.mine[0]}, self.come_to_each())

    def test_nodes_of_others(self):
        for node in set(cloud.NODES) - set(self.mine):
            self.listed[node] = 2
        self.assertEqual(set(), self.look())
        self.assertEqual([], self.schedule.waiting())
