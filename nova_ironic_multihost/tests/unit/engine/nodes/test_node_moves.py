# SPDX-License-Identifier: Apache-2.0

"""Idle nodes of live hosts, a few at a time."""

from unittest import mock

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import recheck
from nova_ironic_multihost.engine.nodes import due_nodes
from nova_ironic_multihost.engine.nodes import node_moves
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.engine import cloud
from nova_ironic_multihost.tests.unit.engine import post


class PullsTestCase(cloud.AuditTestCase):
    """All nodes are b's, and a is to pull those that prefer it."""

    ending = False

    def setUp(self):
        super().setUp()
        self.cloud.owners = dict.fromkeys(cloud.NODES, 'b')
        self.auditors['a'] = self.auditor = self.new_auditor()
        self.tracker = cloud.Tracker()
        self.schedule = due_nodes.DueNodes(
            'a', self.auditor, self.tracker, self.clock)
        self.used = set()
        self.recorder = mock.Mock()
        self.pulls = node_moves.Rebalancer(
            self.auditor, self.tracker, self.schedule, recheck.Recheck(
                self.auditor, self.tracker, lambda: self.ending),
            lambda node: node not in self.used, self.recorder)
        self.assertEqual((), self.pulls.records)
        self.pulls.once('')
        for _ in range(2):
            self.decide()
        self.nodes = [node for node, reason
                      in self.auditor.last.reasons.items()
                      if reason is Reason.PULLED]
        self.assertGreater(len(self.nodes), 3)

    def decide(self):
        self.settings = audit_state.Settings(
            'a', points=32, audit_interval=1000, **self.options)
        self.auditor.audit(self.settings)
        self.schedule.follow(self.settings, self.auditor.last.view)
        self.schedule.begin(False)

    def pull(self, label=''):
        self.tracker.pulled.clear()
        self.cloud.asked.clear()
        with mock.patch.object(node_moves, 'AT_ONCE', 2):
            self.pulls.once(label)
        return sorted(node for some in self.tracker.pulled for node in some)

    def test_those_that_were_to_be_pulled(self):
        self.assertEqual(sorted(self.nodes), self.pull())
        self.assertTrue(all(len(some) <= 2 for some in self.tracker.pulled))
        self.assertEqual(sorted(self.nodes), sorted(
            record.node for record in self.pulls.records))
        # Their records are read before and after they are reserved.
        self.assertEqual(2 * len(self.nodes), len(self.asked('record')))

    def test_each_portion_is_a_sign_of_the_audit(self):
        self.pull()
        self.assertEqual([mock.call.sign(Work.AUDIT)] * len(
            self.tracker.pulled), self.recorder.mock_calls)

    def test_audits_are_left_to_the_background_once(self):
        self.pull()
        self.assertFalse(any(map(self.schedule.is_next, self.nodes)))
        self.assertLessEqual(set(self.nodes), set(self.schedule.waiting()))
        self.schedule.begin(False)
        self.assertTrue(all(map(self.schedule.is_next, self.nodes)))

    def test_what_is_tracked_stays_when_nova_compares(self):
        self.pull()
        for node in self.nodes:
            self.cloud.owners[node] = 'a'
        # The next audit reads them.
        self.decide()
        self.assertEqual([], self.pull())
        self.assertEqual((), self.pulls.records)
        self.assertLessEqual(set(self.nodes), {
            record.node for record in self.auditor.last.records})

    def test_what_is_left_to_novas_tracker(self):
        used, tracked, *others = self.nodes
        self.used = {used}
        self.tracker.tracked.add(tracked)
        self.assertEqual(sorted(others), self.pull())
        self.assertTrue(self.schedule.is_next(used))

    def test_node_that_has_got_another_owner(self):
        self.cloud.set('c')
        self.decide()
        nodes = sorted(node for node, reason
                       in self.auditor.last.reasons.items()
                       if reason is Reason.PULLED)
        self.cloud.owners[nodes[0]] = 'c'
        self.cloud.owners[nodes[1]] = 'a'
        del self.cloud.owners[nodes[2]]
        self.assertEqual(nodes[3:], self.pull())

    def test_what_one_that_was_told_to_end_has(self):
        """Long ago; it is up and no member, and has marked no node."""
        self.cloud.set('b', stop_marker='bye')
        for seconds in 0, 0, 1000:
            self.clock.now += seconds
            self.auditor.heartbeats.note_down(
                self.settings, self.auditor.last.view)
            self.decide()
        self.assertEqual({'a'}, self.auditor.last.view.members)
        self.assertEqual(
            sorted(node for node, reason
                   in self.auditor.last.reasons.items()
                   if reason is Reason.PULLED), self.pull())

    def test_nothing_of_whom_is_no_member(self):
        """Its nodes are marked in placement."""
        self.cloud.set('b', disabled=True)
        self.decide()
        self.assertIn(Reason.PULLED, self.auditor.last.reasons.values())
        self.assertEqual([], self.pull())

    def test_nodes_that_would_change_more_than_their_owner(self):
        self.assertEqual([], self.pull('shard=s1'))
        self.cloud.host_aggregates = (
            peers.Aggregate.of('fast', ['b']),)
        self.decide()
        self.assertIn(Reason.PULLED, self.auditor.last.reasons.values())
        self.assertEqual([], self.pull())

    def test_who_is_about_to_end_pulls_nothing(self):
        self.ending = True
        self.assertEqual([], self.pull())

    def test_who_does_not_answer_is_not_asked_for_each(self):
        self.tracker.failing = set(self.nodes)
        self.pull()
        self.assertEqual([[]], self.tracker.pulled)
        self.assertTrue(all(map(self.schedule.is_next, self.nodes)))

    def test_placement_that_does_not_answer_is_asked_once(self):
        with mock.patch.object(
                self.tracker, 'pull', return_value=set()) as pull:
            self.pull()
        self.assertEqual(1, pull.call_count)

    def test_few_answers_are_lost_in_vain(self):
        """One of two each time."""
        self.tracker.failing = set(sorted(self.nodes)[::2])
        self.pull()
        self.assertEqual(node_moves.FAILURES, len(self.tracker.pulled))

    def test_nova_goes_on_if_nobody_answers(self):
        with mock.patch.object(self.cloud, 'records', side_effect=OSError):
            self.pull()
        self.assertEqual(set(), self.tracker.tracked)
        self.assertTrue(all(map(self.schedule.is_next, self.nodes)))

    def test_node_that_was_here_before_is_audited_again(self):
        node = self.nodes[0]
        with self.schedule.auditing(node):
            self.tracker.tracked.add(node)
            self.schedule.touch(node)
        self.assertFalse(self.schedule.is_due(node))
        self.tracker.drop(node)
        self.pull()
        self.assertTrue(self.schedule.is_due(node))

    def test_one_that_another_has_pulled_before_its_audit(self):
        self.pull()
        offers = recheck.Recheck(self.auditor, self.tracker)
        for owner, offered in (('a', recheck.Offer.AS_IRONIC_SAYS),
                               ('c', recheck.Offer.REFUSED)):
            self.cloud.owners[self.nodes[0]] = owner
            self.assertIs(offered, offers.of(self.nodes[0]))


WAITING = post.WAITING


class AdoptionTestCase(post.PostTestCase):
    """A build has come to b whose node a has, and a is dead."""

    def setUp(self):
        super().setUp()
        self.node = min(self.preferred('b', 'b', 'c'))
        self.acquired = []

    def adopt(self, build='build', node=None):
        node = node or self.node
        self.told = self.adopted(build, node)
        return self.trackers['b'].has(node)

    def adopted(self, build, node):
        return node_moves.adopt(
            self.auditors['b'], self.trackers['b'],
            lambda audit, mine: self.acquired.append(mine),
            self.settings('b'), build, node)

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
        self.assertFalse(self.adopted('build', None))
        self.assertFalse(self.adopt(node='unknown'))
