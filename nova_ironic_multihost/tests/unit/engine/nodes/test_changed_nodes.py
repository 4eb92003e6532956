# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.nodes import changed_nodes
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine.nodes import test_due_nodes


class ChangesTestCase(cloud.AuditTestCase):
    """Host a looks for what has changed; b shares the nodes."""

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.auditor = self.auditors['a']
        self.mine = sorted(self.auditor.last.nodes)
        self.theirs = sorted(set(cloud.NODES) - set(self.mine))
        self.tracker = cloud.Tracker(*self.mine)
        self.ending = False
        self.schedule = due_nodes.DueNodes(
            'a', self.auditor, self.tracker, self.clock)
        for node in self.mine:
            self.come(node)
        self.changes = changed_nodes.IronicChanges(
            self.auditor, self.tracker, self.schedule.is_due,
            lambda: self.ending)

    def come(self, node):
        """Have nova's tracker come to a node in an audit of all."""
        self.schedule.follow(
            audit_state.Settings('a', points=32), self.auditor.last.view)
        with self.schedule.auditing(node):
            self.schedule.touch(node)

    def once(self):
        """Look once; return the nodes that were audited."""
        self.tracker.audited.clear()
        self.more = self.changes.once(audit_state.Settings('a', points=32))
        return self.tracker.audited

    def occupy(self, nodes):
        """Have builds of another host change some nodes."""
        for node in nodes:
            self.cloud.ironic[node] = f'on {node}'
            self.cloud.placed[f'on {node}'] = InstanceState('b', node=node)

    def test_nothing_has_changed(self):
        self.assertEqual([], self.once())

    def test_nothing_before_the_first_audit(self):
        self.auditor.last = None
        self.assertEqual([], self.once())

    def test_node_of_mine_is_audited_once(self):
        node = self.mine[0]
        self.cloud.contents[node] = 1
        self.assertEqual([node], self.once())
        self.assertTrue(
            self.auditor.last.nodes[node].body.endswith(b' 1'))
        self.assertEqual([], self.once())

    def test_node_of_another_is_not(self):
        self.cloud.contents[self.theirs[0]] = 1
        before = self.auditor.last.reasons
        self.assertEqual([], self.once())
        self.assertEqual(before, self.auditor.last.reasons)

    def test_new_node_is_created_by_whom_the_ring_prefers(self):
        for number in range(8):
            self.cloud.ironic[f'new-{number}'] = None
        audited = self.once()
        self.assertNotIn(len(audited), (0, 8))
        preferences = self.auditor.preferences
        self.assertEqual(
            {f'new-{number}' for number in range(8)
             if preferences.prefers('a', f'new-{number}')}, set(audited))
        self.assertEqual(
            {Reason.CREATED}, {self.auditor.reason(node) for node in audited})
        self.assertEqual({None}, {
            self.auditor.last.owners[node] for node in audited})

    def test_instance_of_mine_that_came(self):
        node = self.mine[0]
        self.cloud.ironic[node] = 'i1'
        self.cloud.placed['i1'] = InstanceState('a', node=node)
        self.assertEqual([node], self.once())
        self.assertIs(Reason.INSTANCE_HERE, self.auditor.reason(node))
        self.assertEqual('a', self.auditor.last.owners[node])
        self.assertEqual(set(self.mine), {
            record.node for record in self.auditor.last.records})

    def test_what_concerns_another_is_left_to_the_audits(self):
        node = self.mine[0]
        self.cloud.ironic[node] = 'i1'
        self.cloud.placed['i1'] = InstanceState('b', node=node)
        self.assertEqual([], self.once())
        self.audit('a')
        self.assertIs(Reason.INSTANCE_ELSEWHERE, self.auditor.reason(node))

    def test_audit_of_all_nodes_has_come_to_it(self):
        first, second = self.mine[:2]
        self.cloud.contents = {first: 1, second: 1}
        self.audit('a')
        self.come(first)
        # It takes minutes until nova's tracker comes to the last one.
        self.assertEqual([second], self.once())
        self.assertEqual([], self.once())

    def test_tracker_has_come_to_it_before_it_changed(self):
        node = self.mine[0]
        self.come(node)
        self.cloud.contents[node] = 1
        self.assertEqual([node], self.once())

    def test_tracker_has_come_to_it_in_an_audit_before(self):
        first, second = self.mine[:2]
        self.come(first)
        self.cloud.contents[first] = 1
        self.audit('a')
        self.come(second)
        self.assertEqual([first], self.once())

    def test_what_waits_is_left_to_the_audit_that_has_come_to_it(self):
        first, second = self.mine[:2]
        self.cloud.contents = {first: 1, second: 1}
        with mock.patch.object(changed_nodes, 'TOGETHER', 1):
            self.assertEqual([first], self.once())
            self.assertTrue(self.more)
            self.audit('a')
            self.come(second)
            self.assertEqual([], self.once())
            self.assertFalse(self.more)

    def test_node_of_another_does_not_wait_after_an_audit(self):
        self.occupy(self.theirs)
        with mock.patch.object(changed_nodes, 'TOGETHER', 1):
            self.once()
            self.assertTrue(self.more)
            self.audit('a')
            self.once()
            self.assertFalse(self.more)

    def test_what_is_mine_is_first(self):
        self.occupy(self.theirs)
        self.cloud.contents[self.mine[-1]] = 1
        with mock.patch.object(changed_nodes, 'TOGETHER', 1):
            self.assertEqual([self.mine[-1]], self.once())

    def test_what_cannot_be_known_holds_up_no_other(self):
        first, second = self.mine[:2]
        self.cloud.contents = {first: 1, second: 1}
        audit = self.auditor.audit_changed

        def fail(settings, nodes, then):
            if first in nodes:
                raise OSError('no answer')
            audit(settings, nodes, then)

        with (
            mock.patch.object(changed_nodes, 'TOGETHER', 1),
            mock.patch.object(self.auditor, 'audit_changed', fail),
        ):
            self.assertRaises(OSError, self.once)
            self.assertEqual([second], self.once())
            self.assertRaises(OSError, self.once)
        self.assertEqual([first], self.once())

    def test_many_are_audited_some_at_a_time(self):
        self.cloud.contents = dict.fromkeys(self.mine, 1)
        with mock.patch.object(changed_nodes, 'TOGETHER', 2):
            audited = []
            for _ in range(len(self.mine)):
                audited += self.once()
                self.assertLessEqual(len(self.tracker.audited), 2)
                self.assertIs(len(audited) < len(self.mine), self.more)
        self.assertEqual(self.mine, audited)

    def test_what_waits_goes_on_after_a_failure(self):
        self.cloud.contents[self.mine[0]] = 1
        records, self.cloud.records = self.cloud.records, None
        self.assertRaises(TypeError, self.once)
        self.cloud.records = records
        self.assertEqual(self.mine[:1], self.once())

    def test_nothing_is_audited_by_who_ends(self):
        self.cloud.contents[self.mine[0]] = 1
        self.ending = True
        self.assertEqual([], self.once())

    def test_next_audit_decides_anew(self):
        node = self.mine[0]
        self.cloud.contents[node] = 1
        self.once()
        self.cloud.owners[node] = 'b'
        self.assertIsNot(Reason.KEPT, self.audit('a').reasons[node])


class DriftTestCase(test_due_nodes.ScheduledTestCase):

    INTERVAL = 1_000_000

    def setUp(self):
        super().setUp()
        self.cloud.generations = lambda: dict(self.listed)
        self.listed = dict.fromkeys(cloud.NODES, 1)
        self.provider_changes = changed_nodes.ProviderChanges(
            'a', self.auditor, self.schedule.note_provider_changes,
            lambda nodes: self.audited, self.clock)
        self.audited = {}
        self.provider_changes.once()

    def look(self):
        self.clock.now += changed_nodes.LISTING
        self.provider_changes.once()
        return self.come_to_each()

    def test_provider_that_has_changed_before_it_was_listed_first(self):
        node, other, *_ = self.mine
        self.audited = {node: 0, other: 1}
        another = changed_nodes.ProviderChanges(
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
        self.clock.now += changed_nodes.LISTING
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
        changed_nodes.ProviderChanges(
            'a', self.auditor, self.fail, self.fail, self.clock
        ).expect(self.mine[0], 1, 2)

    def test_hosts_ask_at_moments_of_their_own(self):
        moments = set()
        for host in 'abcde':
            one = changed_nodes.ProviderChanges(
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
        self.clock.now += changed_nodes.RETRY
        self.provider_changes.once()
        self.assertEqual({self.mine[0]}, self.come_to_each())

    def test_nodes_of_others(self):
        for node in set(cloud.NODES) - set(self.mine):
            self.listed[node] = 2
        self.assertEqual(set(), self.look())
        self.assertEqual([], self.schedule.waiting())
