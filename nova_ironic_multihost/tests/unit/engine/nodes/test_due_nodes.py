# SPDX-License-Identifier: Apache-2.0

import dataclasses
import threading
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.rules import incremental
from nova_ironic_multihost.rules.model import InstanceState
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.engine import cloud


class ScheduledTestCase(cloud.AuditTestCase):
    """Host a has audited all its nodes once; b shares the nodes."""

    INTERVAL = 1000

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.auditor = self.auditors['a']
        self.mine = sorted(self.auditor.last.nodes)
        self.tracker = cloud.Tracker(*self.mine)
        self.schedule = due_nodes.DueNodes(
            'a', self.auditor, self.tracker, self.clock)
        self.options = {'audit_interval': self.INTERVAL,
                        'pull_delay_audits': 1}
        self.begin()
        self.come_to_each()

    def begin(self, starting=False):
        """Begin an audit of all nodes."""
        self.audit('a')
        self.follow()
        self.schedule.begin(starting)

    def follow(self):
        self.schedule.follow(
            audit_state.Settings('a', points=32, **self.options),
            self.auditor.last.view)

    def come_to(self, node, reported=True):
        """Audit a node as nova's tracker does, if it is due."""
        if not self.schedule.is_next(node):
            return False
        with self.schedule.auditing(node):
            if reported:
                self.tracker.tracked.add(node)
                self.schedule.touch(node)
        return True

    def asks_anew(self, node):
        """Whether the audit of a node bypasses nova's cache of placement."""
        audit = self.schedule.audit_of(node)
        return audit is not None and audit.uncached

    def may_reuse(self, node):
        """Whether the audit of a node may reuse the data of the last."""
        audit = self.schedule.audit_of(node)
        return audit is not None and audit.last is not None

    def come_to_each(self, **options):
        return {node for node in self.mine if self.come_to(node, **options)}


class ScheduleTestCase(ScheduledTestCase):

    def test_free_node_with_an_allocation_is_audited_until_it_has_none(self):
        held, served, *_ = self.mine
        self.cloud.ironic[served] = 'i'
        self.cloud.placed['i'] = InstanceState('a', node=served)
        self.begin()
        for node in held, served:
            self.schedule.touch(node)
            with self.schedule.auditing(node):
                self.schedule.note_allocated(node)
                self.schedule.touch(node)
        # By nova's next audit, and not again and again in the background.
        self.assertEqual(set(), self.come_to_each())
        self.begin()
        self.assertEqual({held}, self.come_to_each())
        self.begin()
        self.assertEqual(set(), self.come_to_each())

    def test_node_that_is_freed_before_the_next_audit_of_all(self):
        node = self.mine[0]
        self.schedule.touch(node)
        with self.schedule.auditing(node):
            self.schedule.note_allocated(node)
            self.schedule.touch(node)
        self.schedule.touch(node)
        self.assertTrue(self.come_to(node))
        self.begin()
        self.assertEqual(set(), self.come_to_each())

    def test_nova_comes_to_those_alone_that_are_due(self):
        self.assertEqual([], self.schedule.next_of(self.mine))
        self.schedule.touch(self.mine[1])
        self.assertEqual(self.mine[1:2], self.schedule.next_of(self.mine))

    def test_nova_comes_to_few_that_come_in_the_background(self):
        new, *others = self.mine
        for node in self.mine:
            self.schedule.touch(node)
        self.tracker.tracked = {*others}
        self.useFixture(fixtures.MockPatchObject(due_nodes, 'FIRST', 2))
        self.assertEqual([new, *others[:2]],
                         self.schedule.next_of(self.mine))
        self.assertEqual(set(self.mine), set(self.schedule.waiting()))

    def test_nova_comes_to_new_ones_alone_while_it_starts(self):
        first, *others = self.mine
        for node in self.mine:
            self.schedule.touch(node)
        # The records of all others are still to be made.
        self.tracker.tracked = {first}
        self.useFixture(fixtures.MockPatchObject(due_nodes, 'FIRST', 2))
        self.begin(starting=True)
        self.assertEqual(others[:2], self.schedule.next_of(self.mine))

    def test_all_before_anything_is_known(self):
        self.auditor.last = None
        self.assertTrue(self.schedule.is_due(self.mine[0]))
        self.assertEqual([], self.schedule.waiting())

    def test_node_that_has_changed(self):
        changed = self.mine[3]
        self.cloud.contents[changed] = 1
        self.begin()
        self.assertEqual([changed], self.schedule.waiting())
        self.assertEqual({changed}, self.come_to_each())
        self.assertEqual([], self.schedule.waiting())

    def test_node_that_changes_while_it_is_audited(self):
        node = self.mine[0]
        self.schedule.touch(node)
        with self.schedule.auditing(node):
            self.schedule.touch(node)
            self.cloud.contents[node] = 1
            self.begin()
        self.assertEqual([node], self.schedule.waiting())

    def test_build_on_a_node_while_it_is_audited(self):
        node = self.mine[0]
        self.schedule.touch(node)
        with self.schedule.auditing(node):
            build = threading.Thread(
                target=self.schedule.touch, args=(node,))
            build.start()
            build.join()
            self.schedule.touch(node)
        self.assertEqual({node}, self.come_to_each())
        self.assertEqual(set(), self.come_to_each())

    def test_node_whose_audit_fails(self):
        node = self.mine[0]
        self.schedule.touch(node)

        def fail():
            with self.schedule.auditing(node):
                self.schedule.touch(node)
                raise OSError('placement is away')

        self.assertRaises(OSError, fail)
        self.assertTrue(self.schedule.is_due(node))
        # The next audit of all nodes is soon enough.
        self.assertEqual([], self.schedule.waiting())
        self.begin()
        self.assertEqual([node], self.schedule.waiting())
        self.assertEqual({node}, self.come_to_each())

    def test_node_that_the_tracker_passes_over(self):
        node = self.mine[0]
        self.schedule.touch(node)
        self.come_to(node, reported=False)
        self.assertTrue(self.schedule.is_due(node))

    def test_placement_that_was_not_told_of_a_node(self):
        node = self.mine[0]
        with self.schedule.auditing(node):
            self.schedule.touch(node, told=False)
        self.assertTrue(self.schedule.is_due(node))

    def test_audit_that_goes_by_what_was_known_before(self):
        node, row = self.mine[0], self.auditor.last.nodes[self.mine[0]]
        for used, due in ((row, False), (None, False),
                          (row._replace(body=b'before'), True)):
            with self.schedule.auditing(node):
                self.schedule.note_used(node, used)
                self.schedule.touch(node)
            self.assertIs(due, self.schedule.is_due(node))
        self.assertEqual([node], self.schedule.waiting())

    def test_record_that_moves_and_no_more(self):
        node = self.mine[0]
        self.tracker.drop(node)
        with self.schedule.auditing(node):
            # The tracker does not have it yet.
            self.schedule.touch(node)
        self.tracker.tracked.add(node)
        self.assertTrue(self.schedule.is_due(node))

    def test_node_that_the_tracker_has_forgotten(self):
        self.tracker.drop(self.mine[0])
        self.assertEqual({self.mine[0]}, self.come_to_each())

    def test_why_it_is_mine_has_changed(self):
        node = self.mine[0]
        self.cloud.ironic[node] = 'i1'
        self.cloud.placed['i1'] = InstanceState('a', node=node)
        self.begin()
        self.assertEqual({node}, self.come_to_each())
        self.cloud.placed['i1'] = InstanceState('a', True, node=node)
        self.begin()
        self.assertIs(Reason.LEAKED, self.auditor.reason(node))
        self.assertEqual({node}, self.come_to_each())

    def test_others_come_and_go_and_this_one_is_disabled(self):
        for host, state, due in (
                ('b', {'up': False}, ()), ('a', {'disabled': True}, self.mine),
                ('a', {}, self.mine)):
            self.cloud.set(host, **state)
            self.audit('a')
            self.follow()
            self.assertEqual(set(due), self.come_to_each())

    def test_disabled_and_enabled_before_it_was_seen(self):
        """An audit in between has read that the service is disabled."""
        with self.schedule.auditing(self.mine[0]):
            self.schedule.switches += 2
            self.follow()
            self.schedule.touch(self.mine[0])
        self.assertEqual(set(self.mine), self.come_to_each())

    def test_disabled_and_enabled_has_placement_read(self):
        """A trait that the copy of nova lacks stays in placement otherwise."""
        self.schedule.switches += 2
        self.follow()
        for node, anew in (self.mine[0], True), (self.mine[0], False):
            with self.schedule.auditing(node):
                self.assertIs(anew, self.asks_anew(node))
                self.schedule.touch(node)

    def test_partition_and_aggregates(self):
        self.schedule.follow(audit_state.Settings(
            'a', peers.Partition(shard='s1'), **self.options),
            self.auditor.last.view)
        self.assertEqual(set(self.mine), self.come_to_each())
        self.follow()
        self.come_to_each()
        for hosts, due in (['b', 'c'], set()), (['a', 'b'], set(self.mine)):
            self.auditor.last = dataclasses.replace(
                self.auditor.last,
                host_aggregates=self.auditor.last.host_aggregates.after(
                    (peers.Aggregate.of('rack', hosts),)))
            self.follow()
            self.assertEqual(due, self.come_to_each())

    def test_each_in_the_interval_and_not_all_at_once(self):
        moments = sorted(
            (self.INTERVAL * incremental.moment(node), node)
            for node in self.mine)
        begun = self.clock.now
        for moment, node in moments:
            # Each was audited at the same time.
            self.clock.now = begun + moment
            self.assertEqual({node}, self.come_to_each())

    def test_what_placement_has_said_may_do_for_one_that_has_changed(self):
        first, second = self.mine[:2]
        self.assertFalse(self.may_reuse(first))
        with self.schedule.auditing(first):
            self.assertTrue(self.may_reuse(first))
            self.assertFalse(self.may_reuse(second))
            self.schedule.touch(first)
        self.assertFalse(self.may_reuse(first))

    def test_placement_is_asked_for_all_in_each_interval(self):
        node = self.mine[0]
        whole = self.INTERVAL * incremental.moment(node)
        self.clock.now += whole - 1
        self.assertEqual([True, True], [self.spares(node)] * 2)
        self.clock.now += 1
        self.assertTrue(self.schedule.is_due(node))
        with self.schedule.auditing(node):
            # nova may have asked for the generation a minute ago.
            self.assertTrue(self.asks_anew(node))
            self.schedule.touch(node)
        self.assertTrue(self.spares(node))
        self.assertFalse(self.schedule.is_due(node))

    def test_change_of_a_provider_by_others_is_a_doubt(self):
        """They may have taken the node."""
        self.schedule.note_provider_changes(set())
        self.assertFalse(self.auditor.in_doubt)
        self.schedule.note_provider_changes({self.mine[0]})
        self.assertTrue(self.auditor.in_doubt)

    def test_placement_is_asked_for_all_of_what_may_be_another(self):
        node = self.mine[0]
        # An audit that fails, a build that fails to tell, somebody else.
        for spoil in (
                lambda: self.come_to(node, reported=False),
                lambda: self.schedule.touch(node, told=False),
                lambda: self.schedule.note_provider_changes({node})):
            self.schedule.touch(node)
            spoil()
            self.assertFalse(self.spares(node))
            self.assertTrue(self.spares(node))
        self.cloud.set('b', up=False)
        self.begin()
        came = min(set(self.auditor.last.nodes) - set(self.mine))
        self.tracker.tracked.add(came)
        self.assertFalse(self.spares(came))
        # Who had it may have written of it since.
        self.begin()
        self.assertFalse(self.spares(came))

    def spares(self, node):
        """Audit a node, and say whether what placement has said may do."""
        with self.schedule.auditing(node):
            self.schedule.touch(node)
            return self.may_reuse(node)

    def test_node_that_came_from_another_is_looked_at_again(self):
        self.cloud.set('b', up=False)
        self.begin()
        came = set(self.auditor.last.nodes) - set(self.mine)
        self.mine = sorted(self.auditor.last.nodes)
        self.assertEqual(came, self.come_to_each())
        # Who had it before may have written of it until now.
        for _ in range(audit_state.RECENT):
            self.begin()
            self.assertEqual(came, self.come_to_each())
            self.assertEqual(set(), self.come_to_each())
        self.begin()
        self.assertEqual(set(), self.come_to_each())

    def test_node_that_came_and_that_nobody_has_changed_since(self):
        self.cloud.set('b', up=False)
        self.begin()
        came = set(self.auditor.last.nodes) - set(self.mine)
        self.mine = sorted(self.auditor.last.nodes)
        self.come_to_each()
        changed = min(came)
        self.tracker.spared = came - {changed}
        for _ in range(audit_state.RECENT):
            self.begin()
            self.tracker.asked.clear()
            self.schedule.skip_unchanged(self.mine)
            self.assertEqual(sorted(came), self.tracker.asked)
            self.assertEqual({changed}, self.come_to_each())
        self.begin()
        self.tracker.asked.clear()
        self.schedule.skip_unchanged(self.mine)
        self.assertEqual([], self.tracker.asked)

    def test_node_that_was_pulled_is_audited_again_if_it_has_changed(self):
        self.schedule.note_pulled(self.mine[:2])
        self.tracker.spared = {self.mine[0]}
        for nodes in self.mine[1:], self.mine[:1]:
            self.tracker.asked.clear()
            self.schedule.skip_unchanged(nodes)
            self.assertEqual(
                sorted({*nodes} & {*self.mine[:2]}), self.tracker.asked)
        self.assertEqual(self.mine[1:2], self.schedule.waiting())

    def test_node_that_came_and_was_not_audited_yet_is_not_asked_about(self):
        self.cloud.set('b', up=False)
        self.begin()
        came = set(self.auditor.last.nodes) - set(self.mine)
        self.tracker.tracked |= came
        self.tracker.spared = came
        self.begin()
        self.schedule.skip_unchanged(came)
        self.assertEqual([], self.tracker.asked)
        self.assertEqual(came, set(self.schedule.waiting()))

    def test_node_that_is_still_to_be_taken_is_left_to_who_takes_it(self):
        self.cloud.set('b', up=False)
        self.begin()
        came = set(self.auditor.last.nodes) - set(self.mine)
        self.assertEqual([], self.schedule.waiting())
        self.tracker.tracked |= came
        self.assertEqual(came, set(self.schedule.waiting()))

    def test_start_does_not_wait_for_all(self):
        for node in self.mine:
            self.schedule.touch(node)
        self.begin(starting=True)
        self.assertTrue(self.come_to(self.mine[0]))
        self.clock.now += due_nodes.START
        self.assertEqual(set(), self.come_to_each())
        # The background does, and nova the next time.
        self.assertEqual(set(self.mine[1:]), set(self.schedule.waiting()))
        self.begin()
        self.assertEqual(set(self.mine[1:]), self.come_to_each())

    def test_free_nodes_wait_less(self):
        used, free = self.mine[:2]
        self.cloud.ironic[used] = 'i1'
        self.cloud.placed['i1'] = InstanceState('a', node=used)
        self.begin()
        self.come_to_each()
        self.schedule.touch(free)
        self.schedule.touch(used)
        self.assertEqual([free, used], self.schedule.waiting())

    def test_what_it_is_of_which_is_not_known(self):
        node = self.mine[0]
        last = self.auditor.last
        self.auditor.last = dataclasses.replace(last, nodes={
            **last.nodes, node: last.nodes[node]._replace(body=None)})
        self.assertEqual([], self.schedule.waiting())
        self.assertTrue(self.come_to(node))
        self.schedule.begin(False)
        self.assertEqual([node], self.schedule.waiting())

    def test_records_that_builds_may_claim_at_once(self):
        kept, used, leaked, other = self.mine[:4]
        self.cloud.ironic.update({used: 'i1', leaked: 'i2'})
        self.cloud.placed['i1'] = InstanceState('a', node=used)
        self.cloud.placed['i2'] = InstanceState('a', True, node=leaked)
        self.cloud.owners[other] = 'A'
        self.audit('a')
        ready = {record.node for record in self.schedule.ready()}
        self.assertEqual({kept, used}, ready & {kept, used, leaked})
        self.auditor.last = None
        self.assertEqual([], self.schedule.ready())


class ChangesTestCase(cloud.AuditTestCase):
    """Host a asks for what has changed; b shares the nodes."""

    def setUp(self):
        super().setUp()
        self.settle('a', 'b')
        self.auditor = self.auditors['a']
        self.mine = sorted(self.auditor.last.nodes)
        self.theirs = sorted(set(cloud.NODES) - set(self.mine))
        self.tracker = cloud.Tracker(*self.mine)
        self.tracker.audit = self.come
        self.ending = False
        self.schedule = due_nodes.DueNodes(
            'a', self.auditor, self.tracker, self.clock)
        self.settings = audit_state.Settings('a', points=32)
        for node in self.mine:
            self.come(node)
        self.background_audit = due_nodes.BackgroundAudit(
            self.schedule, self.tracker, lambda: self.ending)

    def come(self, node):
        """Have nova's tracker come to a node."""
        self.schedule.follow(self.settings, self.auditor.last.view)
        with self.schedule.auditing(node):
            self.tracker.audited.append(node)
            self.tracker.tracked.add(node)
            self.schedule.touch(node)

    def once(self):
        """Ask once; return the nodes that are audited then."""
        self.tracker.audited.clear()
        self.schedule.read_ironic(self.settings)
        self.background_audit.once()
        return self.tracker.audited

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

    def test_what_is_new_or_has_changed_comes_first(self):
        *others, changed = self.mine
        for node in others:
            self.schedule.touch(node)
        self.cloud.contents[changed] = 1
        for number in range(8):
            self.cloud.ironic[f'new-{number}'] = None
        audited = self.once()
        count = len(audited) - len(others)
        self.assertGreater(count, 1)
        self.assertEqual(others, audited[count:])
        self.assertIn(changed, audited[:count])


class UpkeepTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.due = {}
        self.ending = False
        self.audited = []
        self.schedule = mock.Mock(
            waiting=lambda: list(self.due),
            is_due=lambda node: node in self.due)
        self.background_audit = due_nodes.BackgroundAudit(
            self.schedule, mock.Mock(audit=self.audit), lambda: self.ending)

    def audit(self, node):
        self.audited.append(node)
        self.due.pop(node, None)

    def once(self, *nodes):
        self.due.update(dict.fromkeys(nodes))
        self.background_audit.once()
        return self.audited

    def test_what_nobody_has_changed_is_not_due(self):
        self.schedule.skip_unchanged = lambda nodes: self.due.pop(*nodes)
        self.assertEqual([], self.once('a'))

    def test_few_are_asked_about_before_some_are_audited(self):
        """Placement may answer slowly, and other things be more urgent."""
        nodes = [f'node-{number}' for number in range(120)]
        asked = []

        def spare(some):
            asked.append(len(some))
            self.ending = len(asked) == 2

        self.schedule.skip_unchanged = spare
        self.assertEqual(nodes[:due_nodes.BACKGROUND_BATCH], self.once(*nodes))
        self.assertEqual([due_nodes.BACKGROUND_BATCH] * 2, asked)

    def test_what_has_changed_cannot_be_known(self):
        self.schedule.skip_unchanged.side_effect = OSError
        self.assertEqual(['a', 'b'], self.once('a', 'b'))

    def test_what_is_due_in_that_order(self):
        nodes = [f'node-{number}' for number in range(120)]
        self.assertEqual(nodes, self.once(*nodes))

    def test_what_nova_has_come_to_meanwhile(self):
        self.schedule.is_due = lambda node: node != 'b'
        with mock.patch.object(self.schedule, 'waiting', side_effect=[
                ['a', 'b', 'c'], []]):
            self.assertEqual(['a', 'c'], self.once())

    def test_what_stays_due_is_audited_once(self):
        self.audit = self.background_audit._tracker.audit = self.audited.append
        self.assertEqual(['a', 'b'], self.once('a', 'b'))

    def test_what_becomes_due_meanwhile(self):
        def audit(node):
            self.audited.append(node)
            self.due.pop(node)
            if node == 'a':
                self.due['c'] = None

        self.background_audit._tracker.audit = audit
        self.assertEqual(['a', 'c'], self.once('a'))

    def test_many_are_logged(self):
        many = [str(one) for one in range(due_nodes.BACKGROUND_MANY)]
        with self.assertLogs(due_nodes.__name__) as logs:
            self.once(*many)
            self.once('a')
        self.assertEqual([len(many)], [
            record.args[0] for record in logs.records])

    def test_nothing_by_who_ends(self):
        self.ending = True
        with self.assertNoLogs(due_nodes.__name__):
            self.assertEqual(
                [], self.once(*map(str, range(due_nodes.BACKGROUND_MANY))))


class DriftTestCase(ScheduledTestCase):

    INTERVAL = 1_000_000

    def setUp(self):
        super().setUp()
        self.cloud.generations = lambda: dict(self.listed)
        self.listed = dict.fromkeys(cloud.NODES, 1)
        self.provider_changes = due_nodes.ProviderChanges(
            'a', self.auditor, self.schedule.note_provider_changes,
            lambda nodes: self.audited, self.clock)
        self.audited = {}
        self.provider_changes.once()

    def look(self):
        self.clock.now += due_nodes.LISTING
        self.provider_changes.once()
        return self.come_to_each()

    def test_provider_that_has_changed_before_it_was_listed_first(self):
        node, other, *_ = self.mine
        self.audited = {node: 0, other: 1}
        another = due_nodes.ProviderChanges(
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
        self.clock.now += due_nodes.LISTING
        self.provider_changes.once()
        self.assertFalse(self.asks_anew(node))
        for reported in False, True:
            with self.schedule.auditing(node):
                self.assertTrue(self.asks_anew(node))
                self.assertFalse(self.asks_anew(other))
                self.schedule.touch(node, reported)
        with self.schedule.auditing(node):
            self.assertFalse(self.asks_anew(node))

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

    def test_hosts_ask_at_moments_of_their_own(self):
        moments = set()
        for host in 'abcde':
            one = due_nodes.ProviderChanges(
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
        self.clock.now += due_nodes.RETRY
        self.provider_changes.once()
        self.assertEqual({self.mine[0]}, self.come_to_each())

    def test_nodes_of_others(self):
        for node in set(cloud.NODES) - set(self.mine):
            self.listed[node] = 2
        self.assertEqual(set(), self.look())
        self.assertEqual([], self.schedule.waiting())
