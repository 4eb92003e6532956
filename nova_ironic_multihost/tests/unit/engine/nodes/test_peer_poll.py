# SPDX-License-Identifier: Apache-2.0

"""Between two audits: who left, and what becomes of its nodes."""

import itertools
import random
from unittest import mock

import fixtures
import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import auditor
from nova_ironic_multihost.engine.audit import lister as readers
from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules.liveness import Heartbeats
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.engine import cloud

NODES = cloud.NODES


class Tracker(cloud.Tracker):
    """Makes the records a's."""

    def __init__(self, some_cloud):
        super().__init__()
        self._cloud = some_cloud

    def audit(self, node):
        super().audit(node)
        if node in self.tracked:
            self._cloud.owners[node] = 'a'


class LookTestCase(cloud.AuditTestCase):
    """b has all nodes and leaves; a looks."""

    ending = False

    def to_move(self, nodes):
        return ()

    def pull(self, nodes):
        return ()

    def setUp(self):
        super().setUp()
        self.draw(lambda some, count: some[:count])
        self.options['pulls_per_audit'] = 0
        self.heartbeats = Heartbeats(10, 0)
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.tracker = Tracker(self.cloud)
        self.acquired = []
        self.pulled = []
        for _ in range(2):
            self.audit('a')
        self.look = self.look_of(self.auditors['a'])
        self.look()

    def look_of(self, some_auditor):
        """Return a function that looks once; self.last is what looks."""
        one = peer_poll.PeerPoller(
            some_auditor, self.tracker,
            lambda audit, mine: self.acquired.append(mine), self.clock,
            lambda: self.ending, lambda nodes: self.to_move(nodes),
            pull=lambda nodes: self.pull(nodes),
            note_pulled=self.pulled.extend)
        self.last = one

        def settings(options):
            return audit_state.Settings(
                'a', points=32, heartbeats=self.heartbeats,
                **{**self.options, **options})

        self.pause = lambda: one.pause(settings({}))
        self.settings = settings
        self.may_close = lambda: one.may_close(settings({}))
        return lambda **options: one.once(settings(options))

    def draw(self, sample):
        self.useFixture(fixtures.MockPatchObject(random, 'sample', sample))

    def test_nobody_is_taken_over_before_the_first_look(self):
        self.look_of(self.auditors['a'])
        self.assertEqual(set(), self.last.eligible)

    def test_nodes_of_who_left_are_taken_and_no_others(self):
        self.cloud.owners[NODES[0]] = 'a'
        self.audit('a')
        self.cloud.set('b', up=False)
        self.assertFalse(self.look().live('b'))
        self.assertEqual(NODES[1:], self.tracker.audited)
        self.assertEqual(NODES[1:], sum(self.acquired, []))
        self.look()
        self.assertEqual(NODES[1:], self.tracker.audited)

    def test_records_are_moved_and_what_cannot_be_is_audited(self):
        asked = []

        def to_move(nodes):
            asked.extend(nodes)
            self.assertFalse(self.tracker.tracked.intersection(nodes))
            return self.cloud.records(
                [node for node in nodes if node in NODES[::2]])

        self.to_move = to_move
        self.tracker.tracked = {NODES[0]}
        self.cloud.set('b', up=False)
        self.look()
        self.assertEqual(NODES, sorted(asked))
        moved = set(NODES[::2])
        self.assertEqual(moved, set(self.tracker.moved))
        self.assertEqual(set(NODES) - moved, set(self.tracker.audited))

    def test_who_does_not_answer_is_not_asked_for_each_record(self):
        asked = []

        def to_move(nodes):
            self.assertLessEqual(len(nodes), peer_poll.AT_ONCE)
            asked.extend(nodes)
            return self.cloud.records(nodes)

        self.to_move = to_move
        self.tracker.failing = {NODES[0]}
        self.cloud.set('b', up=False)
        with mock.patch.object(peer_poll, 'BATCH', len(NODES)):
            self.look()
        self.assertEqual(NODES[:peer_poll.AT_ONCE], asked[:peer_poll.AT_ONCE])
        # Only its portion is tried again.
        self.assertEqual(NODES[:1] + NODES[peer_poll.AT_ONCE:],
                         self.tracker.audited[:len(NODES)])

    def test_each_node_is_a_sign_of_the_look(self):
        signs = self.last._recorder = mock.MagicMock()
        self.cloud.set('b', up=False)
        self.look()
        self.assertEqual(len(NODES), signs.sign.mock_calls.count(
            mock.call(Work.PEER_POLL)))

    def test_who_may_be_starting_keeps_its_nodes(self):
        self.heartbeats = Heartbeats(10, 60)
        self.auditors['a'] = self.new_auditor()
        self.look = self.look_of(self.auditors['a'])
        self.cloud.set('b', up=False)
        self.look()
        for _ in range(2):
            self.auditors['a'].audit(self.settings({}))
        self.assertEqual([], self.tracker.audited)
        for _ in range(6):
            self.assertEqual([], self.tracker.audited)
            self.clock.now += 10
            self.look()
        self.assertEqual(NODES, self.tracker.audited)

    def test_who_was_told_to_end_keeps_its_nodes_for_a_while(self):
        self.heartbeats = Heartbeats(10, 60)
        self.options['pulls_per_audit'] = 5
        self.cloud.set('b', stop_marker='bye')
        seen = self.look()
        self.assertEqual({'a', 'b'}, seen.members)
        self.assertEqual(10, self.pause())
        for seconds in 30, 25:
            self.clock.now += seconds
            self.look()
        self.assertEqual([], self.tracker.audited)
        # The next look is just in time.
        self.assertEqual(5, self.pause())
        self.clock.now += 4.5
        self.assertEqual(1, self.pause())
        self.clock.now += 0.5
        self.assertEqual({'a'}, self.look().members)
        self.assertEqual(NODES[:5], self.tracker.audited)
        # It is still up, so that they are pulled, some by each look.
        for last in (10, 15):
            self.look()
            self.assertEqual(NODES[:last], sorted(self.cloud.owners_now('a')))
        self.assertEqual({'a'}, self.audit('a').view.members)
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))
        self.look()
        self.tracker.audited.clear()
        self.look()
        self.look()
        self.assertEqual([], self.tracker.audited)

    def test_who_was_told_to_end_and_is_back_keeps_its_nodes(self):
        self.heartbeats = Heartbeats(10, 60)
        self.options['pulls_per_audit'] = 200
        for stop_marker in 'bye', '':
            self.cloud.set('b', stop_marker=stop_marker)
            for _ in range(2):
                self.look()
                # Longer, and this host would wait: it may have been paused.
                self.clock.now += 29
        self.cloud.set('b', stop_marker='bye bye')
        for _ in range(5):
            self.look()
            self.clock.now += 10
        self.assertEqual([], self.tracker.audited)

    def test_builds_on_their_way_to_who_was_told_to_end_stay_there(self):
        self.heartbeats = Heartbeats(10, 60)
        self.options['pulls_per_audit'] = 200
        self.cloud.allocations[NODES[3]] = frozenset({'build'})
        self.cloud.set('b', stop_marker='bye')
        for _ in range(3):
            self.look()
            self.clock.now += 30
        self.assertEqual([node for node in NODES if node != NODES[3]],
                         self.tracker.audited)

    def test_who_is_told_to_end_takes_no_more_nodes(self):
        def audit(node):
            self.tracker.audited.append(node)
            self.ending = len(self.tracker.audited) == 3

        self.tracker.audit = audit
        self.cloud.set('b', up=False)
        self.look()
        self.assertEqual(NODES[:3], self.tracker.audited)

    def test_who_is_told_to_end_asks_who_else_is(self):
        self.cloud.set('c')
        self.assertTrue(self.may_close())
        self.cloud.set('b', stop_marker='bye')
        self.assertFalse(self.may_close())
        self.cloud.set('d')
        # Its zone is not known before an audit.
        self.assertFalse(self.may_close())
        self.audit()
        self.assertTrue(self.may_close())

    def test_builds_of_a_zone_go_to_no_other(self):
        """Compute services of another one do not stand in for who ends."""
        self.cloud.set('c', stop_marker='bye')
        self.cloud.set('d')
        self.audit()
        self.assertTrue(self.may_close())
        self.cloud.host_aggregates = (
            peers.Aggregate.of('z', ['b', 'd'], 'east'),)
        self.audit()
        self.assertFalse(self.may_close())

    def test_whom_an_outage_has_silenced_keeps_its_nodes(self):
        self.heartbeats = Heartbeats(10, 60)
        self.look()
        self.clock.now += 120
        # Heartbeats cannot be written, and then come back one by one.
        for up in (False, True):
            self.cloud.set('a', up=up)
            self.cloud.set('b', up=False)
            self.look()
            self.clock.now += 10
        for seconds in 0, 10, 10, 10, 10, 9:
            self.clock.now += seconds
            self.look()
        self.assertEqual([], self.tracker.audited)
        self.clock.now += 1
        self.look()
        self.assertEqual(NODES, self.tracker.audited)

    def test_who_had_many_nodes_to_take_was_in_no_outage(self):
        self.heartbeats = Heartbeats(10, 60)
        self.look()
        self.clock.now += 30
        self.look()
        self.clock.now += 30
        self.cloud.set('b', up=False)
        acquire = self.tracker.audit
        self.tracker.audit = lambda node: (
            setattr(self.clock, 'now', self.clock.now + 100), acquire(node))
        self.look()
        self.cloud.set('b')
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        self.clock.now += 10
        self.look()
        self.cloud.set('b', up=False)
        self.clock.now += 10
        self.look()
        self.assertEqual(NODES * 2, self.tracker.audited)

    def test_who_waited_for_an_audit_takes_over_at_the_next_look(self):
        """It was too long ago that this host had seen who is dead."""
        self.heartbeats = Heartbeats(10, 60)
        self.options.update(policy=takeover.Policy('down', after=61))
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.placed['i1'] = cloud.instance('b', NODES[0])
        self.cloud.set('c')
        self.cloud.set('b', up=False)
        self.look()
        for seconds in 30, 30:
            self.clock.now += seconds
            self.look()
        self.clock.now += 5
        audit = self.auditors['a'].audit_hosts

        def audit_late(*args, **options):
            self.clock.now += 51
            return audit(*args, **options)

        with mock.patch.object(
                self.auditors['a'], 'audit_hosts', audit_late):
            self.look()
        self.assertEqual('b', self.cloud.placed['i1'].host)
        self.clock.now += 10
        self.look()
        self.assertEqual('a', self.cloud.placed['i1'].host)

    def test_nodes_that_are_looked_at_again_make_no_outage(self):
        self.heartbeats = Heartbeats(10, 60)
        self.look()
        for _ in range(2):
            self.clock.now += 35
            self.look()
        self.cloud.set('b', disabled=True)
        self.look(pulls_per_audit=3)
        audit = self.tracker.audit
        self.tracker.audit = lambda node: (
            setattr(self.clock, 'now', self.clock.now + 20), audit(node))
        self.clock.now += 10
        self.cloud.set('b', up=False)
        self.look(pulls_per_audit=3)
        self.clock.now += 10
        self.look()
        self.assertEqual(set(NODES), set(self.tracker.audited))

    def test_who_dies_while_looks_take_long_is_seen_dead(self):
        """Each look waits for placement for a minute."""
        self.heartbeats = Heartbeats(10, 60)
        for host in 'cde':
            self.cloud.set(host)

        def wait(seconds):
            for _ in range(seconds // 10):
                self.clock.now += 10
                self.last.listen(self.settings({}))

        self.cloud.consumers_of = lambda nodes: (
            wait(60 if nodes else 0), dict.fromkeys(nodes))[1]
        self.audit()
        for died in 'bc':
            self.look()
            self.cloud.set(died, up=False)
            for _ in range(3):
                wait(10)
                view = self.look()
            self.assertFalse(view.live(died))

    def test_while_looks_are_short_nobody_else_asks(self):
        for _ in range(3):
            self.look()
            with mock.patch.object(self.auditors['a'], 'read_view') as read:
                self.clock.now += 10
                self.last.listen(self.settings({}))
                read.assert_not_called()

    def test_while_nodes_are_taken_each_heartbeat_is_read(self):
        """A poll that is missed would make a death be noticed later."""
        read, times = self.auditors['a'].read_view, []
        self.useFixture(fixtures.MockPatchObject(
            self.auditors['a'], 'read_view', lambda *args: (
                times.append(self.clock.now) or read(*args))))
        take = self.tracker.audit

        def take_slowly(node):
            self.clock.now += 10
            self.last.listen(self.settings({}))
            take(node)

        self.tracker.audit = take_slowly
        self.look()
        self.cloud.set('b', up=False)
        self.look()
        self.assertEqual(NODES, self.tracker.audited)
        self.assertEqual({10}, {
            after - before for before, after in itertools.pairwise(times)
            if after > before})

    def test_an_answer_that_comes_late_is_not_noted(self):
        """Another thread has asked and noted meanwhile."""
        self.heartbeats = Heartbeats(10, 60)
        services, late = self.cloud.services, []

        def answer():
            found = services()
            if not late:
                late.append(found)
                self.clock.now += 20
                self.cloud.set('b', up=False)
                self.last.listen(self.settings({}))
            return found

        self.look()
        self.cloud.services = answer
        self.look()
        self.assertEqual({'b'}, self.auditors['a'].heartbeats.outages.dead)

    def test_before_the_first_audit_it_only_looks(self):
        first = self.look_of(self.new_auditor())
        self.cloud.set('b', up=False)
        self.assertFalse(first().live('b'))
        self.assertEqual([], self.tracker.audited)

    def test_what_was_seen_is_known_before_nodes_are_taken(self):
        """That may take minutes."""
        self.cloud.set('b', up=False)
        seen = []
        self.tracker.drop = lambda node: seen.append(self.last.view.live('b'))
        self.look()
        self.assertEqual({False}, {*seen})

    def test_servers_and_free_nodes_of_another_partition_alike(self):
        """Ironic has put them into this one; b served another."""
        self.options.update(
            policy=takeover.Policy('forced_down'),
            partition=peers.Partition(shard='x', peer_list=('a',)))
        self.cloud.labels['b'] = 'shard=y'
        self.cloud.ironic[NODES[0]] = 'i'
        self.cloud.placed['i'] = cloud.instance('b', NODES[0])
        self.audit('a')
        self.cloud.set('b', up=False, forced_down=True)
        self.look()
        self.assertEqual('a', self.cloud.placed['i'].host)
        self.assertEqual(set(NODES), set(self.tracker.audited))

    def test_who_is_unfenced_is_not_eligible_while_nodes_are_taken(self):
        self.options.update(policy=takeover.Policy('forced_down'))
        self.cloud.set('b', up=False, forced_down=True)
        self.look()
        self.assertEqual({'b'}, {*self.last.eligible})
        self.cloud.set('b', up=False, forced_down=False, disabled=True)
        self.cloud.owners = dict.fromkeys(NODES, 'b')
        seen = []
        self.tracker.drop = lambda node: seen.append(self.last.eligible)
        self.look()
        self.assertEqual({frozenset()}, {*seen})

    def test_what_it_led_to_is_logged_once(self):
        self.cloud.set('b', up=False)
        with self.assertLogs(peer_poll.__name__, 'INFO') as logs:
            for _ in range(3):
                self.look()
        line, = logs.output
        self.assertIn('Audited the nodes of b, which left: 20 free and '
                      'recorded on a dead compute service.', line)

    def test_a_stale_record_at_hand_is_dropped_first(self):
        self.tracker.tracked = {NODES[0]}
        self.tracker.failing = {NODES[0]}
        self.cloud.set('b', up=False)
        self.look()
        self.assertNotIn(NODES[0], self.tracker.tracked)

    def test_a_node_that_could_not_be_taken_is_tried_ever_more_seldom(self):
        self.cloud.set('b', up=False)
        self.tracker.failing = {NODES[0]}
        tries = []
        for _ in range(100):
            before = self.tracker.audited.count(NODES[0])
            self.look()
            tries += [self.clock.now] * (
                self.tracker.audited.count(NODES[0]) - before)
            self.clock.now += 10
        self.assertEqual([10, 10, 20, 40, 80, 160, 300, 300], [
            after - before for before, after
            in zip(tries, tries[1:], strict=False)])
        self.assertEqual(1, self.tracker.audited.count(NODES[1]))
        self.tracker.failing = set()
        self.clock.now += 300
        self.look()
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))

    def test_a_look_that_failed_leaves_the_same_to_do(self):
        self.cloud.set('b', up=False)
        self.cloud.broken = True
        self.assertRaises(OSError, self.look)
        self.cloud.broken = False
        self.look()
        self.assertEqual(NODES, self.tracker.audited)

    def test_nodes_pulled_from_a_live_host_are_noted_by_the_next_look(self):
        """Which does not wait for placement: somebody else may have died."""
        self.cloud.set('b', disabled=True)
        for noted in [], NODES[:3], []:
            self.pulled.clear()
            self.look(pulls_per_audit=3)
            self.assertEqual(noted, self.pulled)
        self.assertEqual(NODES[:3], self.tracker.audited)
        self.assertEqual([], self.tracker.asked)

    def test_what_one_that_was_told_to_end_has_is_pulled_together(self):
        """An audit of each takes long where much else goes on."""
        self.heartbeats = Heartbeats(10, 60)
        self.options['pulls_per_audit'] = 200
        asked = []

        def pull(nodes):
            asked.append(nodes)
            others = set(nodes) - {NODES[0]}
            self.tracker.tracked |= others
            return others

        self.pull = pull
        self.cloud.set('b', stop_marker='bye')
        self.look()
        for _ in range(2):
            self.clock.now += 30
            self.look()
        self.assertEqual(NODES, sum(asked, []))
        self.assertEqual(NODES[:1], self.tracker.audited)

    def test_a_peer_that_is_disabled_is_seen_by_what_a_look_leads_to(self):
        self.options.update(policy=takeover.Policy('down', after=30))
        self.cloud.ironic[NODES[0]] = 'i1'
        self.cloud.placed['i1'] = cloud.instance('b', NODES[0])
        self.cloud.set('c')
        self.look()
        self.cloud.set('c', disabled=True)
        self.cloud.set('b', up=False)
        for expected in ('b', 'b', 'a'):
            self.look()
            self.assertEqual(expected, self.cloud.placed['i1'].host)
            self.clock.now += 15

    def fence(self, servers):
        """Fence b, with as many servers; two of them move at a time."""
        self.options.update(
            policy=takeover.Policy('forced_down'), takeovers_per_audit=2)
        for node in NODES[:servers]:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = cloud.instance('b', node)
        self.cloud.set('b', up=False, forced_down=True)

    def test_one_answer_that_is_lost_keeps_the_others_waiting_no_longer(self):
        self.fence(5)
        take_over, made = self.cloud.take_over, []

        def lose_the_first(instances, host, eligible):
            made.append(instances)
            if len(made) == 1:
                return {uuid: False if number else OSError('lost')
                        for number, uuid in enumerate(instances)}
            return take_over(instances, host, eligible)

        self.cloud.take_over = lose_the_first
        self.look()
        self.assertEqual(4, self.here())
        self.clock.now += 10
        self.look()
        self.assertEqual(5, self.here())

    def test_what_could_not_be_taken_over_is_tried_by_the_next_looks(self):
        """The conductor does not answer, or a user was at work on it."""
        for what in (OSError('no answer'), False):
            self.cloud.owners = dict.fromkeys(NODES, 'b')
            self.fence(2)
            take_over, made = self.cloud.take_over, []

            def fail(instances, host, eligible, what=what, made=made,
                     take_over=take_over):
                made.append(self.clock.now)
                if len(made) < 6:
                    return dict.fromkeys(instances, what)
                return take_over(instances, host, eligible)

            self.cloud.take_over = fail
            began = self.clock.now
            for _ in range(32):
                self.look()
                self.clock.now += 10
            self.assertEqual(
                [0, 10, 20, 40, 80, 160], [at - began for at in made])
            self.assertEqual(2, self.here())
            self.cloud.take_over = take_over
            self.cloud.set('b')
            self.look()

    def test_servers_do_not_wait_for_placement(self):
        """Each answer may take longer than what was seen of deaths holds."""
        self.heartbeats = Heartbeats(10, 60)
        self.options.update(policy=takeover.Policy(takeover.DOWN, after=20))
        self.cloud.set('c')
        for index in range(5):
            self.cloud.ironic[NODES[index]] = f'i{index}'
            self.cloud.placed[f'i{index}'] = cloud.instance(
                'b', NODES[index])

        def hang(nodes):
            self.clock.now += 60 if nodes else 0
            return dict.fromkeys(nodes)

        self.cloud.consumers_of = hang
        self.audit()
        self.cloud.set('b', up=False)
        for _ in range(20):
            self.clock.now += 10
            self.look()
        self.assertEqual({'i0', 'i1', 'i2', 'i3', 'i4'} & {
            self.cloud.ironic[node] for node in self.preferred('a', 'a', 'c')},
            {uuid for uuid, state in self.cloud.placed.items()
             if state.host == 'a'})

    def test_nodes_of_which_placement_does_not_say_are_tried_again(self):
        self.cloud.set('b', up=False)
        self.cloud.allocations = dict.fromkeys(NODES)
        with self.assertLogs(peer_poll.__name__) as logs:
            for _ in range(20):
                self.look()
                self.clock.now += 10
        # Each once.
        self.assertEqual(['INFO', 'WARNING'], [
            record.levelname for record in logs.records])
        self.assertIn('or more nodes of b', logs.output[1])
        self.assertIn(Reason.UNANSWERED,
                      self.auditors['a'].last.reasons.values())
        self.assertNotIn(Reason.AWAITED,
                         self.auditors['a'].last.reasons.values())
        self.cloud.allocations = {}
        self.look()
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))

    def test_those_of_which_it_never_says_keep_no_others_waiting(self):
        self.cloud.set('b', up=False)
        silent = dict.fromkeys(NODES[:peer_poll.UNANSWERED + 1])
        self.cloud.allocations = silent
        self.draw(random.Random(1).sample)
        with mock.patch.object(peer_poll, 'BATCH', 4):
            for _ in range(30):
                self.look()
                self.clock.now += 10
        self.assertEqual(
            {*NODES[len(silent):]}, {*self.tracker.audited})

    def test_nodes_to_be_pulled_of_which_placement_does_not_say(self):
        self.options['pulls_per_audit'] = 5
        self.cloud.set('b', disabled=True)
        self.cloud.allocations = dict.fromkeys(NODES)
        self.look()
        self.assertEqual([], self.tracker.audited)
        self.cloud.allocations = {}
        self.look()
        self.assertEqual(5, len(self.cloud.owners_now('a')))

    def here(self):
        return sum(state.host == 'a' for state in self.cloud.placed.values())

    def between(self, act):
        """Have something happen whenever nova is asked who is there."""
        services = self.cloud.services
        self.cloud.services = lambda: act() or services()

    def portions(self, act):
        """Have something happen before instances are taken over."""
        take_over, made = self.cloud.take_over, []

        def take(instances, host, eligible):
            made.append(len(instances))
            act(len(made))
            return take_over(instances, host, eligible)

        self.cloud.take_over = take
        return made

    def test_instances_are_taken_over_in_portions(self):
        self.fence(5)
        made = self.portions(lambda number: None)
        with self.assertLogs(peer_poll.__name__, 'INFO') as logs:
            self.look()
        self.assertEqual(([2, 2, 1], 5), (made, self.here()))
        self.assertEqual(
            [f'{count} instances of b wait to be taken over' in line
             for count, line in zip((3, 1), logs.output, strict=False)],
            [True, True])
        # What they are on has come, too, and what is free.
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))
        self.assertIn(
            Reason.ADOPTED, self.auditors['a'].last.reasons.values())
        self.look()
        self.assertEqual(3, len(made))

    def test_no_more_is_read_for_a_portion_than_it_is_about(self):
        self.fence(len(NODES))
        asked = []
        self.portions(lambda number: asked.append(
            (len(self.asked('record')), len(self.asked('instance_state')))))
        self.look()
        first, *others = asked
        self.assertEqual([(2, 2)] * 9, [
            (records - before[0], states - before[1])
            for before, (records, states) in zip(
                [first, *others], others, strict=False)])

    def test_if_somebody_else_leaves_the_next_look_goes_on(self):
        """Whoever may have been starting all the time makes no difference."""
        self.heartbeats = Heartbeats(10, 60)
        self.cloud.set('c')
        self.cloud.set('d')
        self.look()
        self.cloud.set('d', up=False)
        self.fence(len(NODES))
        made = self.portions(lambda number: self.cloud.set(
            'c', up=number < 2))
        self.look()
        self.assertEqual([2, 2], made)
        self.look()
        self.assertEqual(len(NODES), self.here())

    def test_who_is_unfenced_in_between_keeps_the_others(self):
        self.fence(5)
        self.between(
            lambda: self.here() and self.cloud.set('b', up=False))
        self.look()
        self.look()
        self.assertEqual(2, self.here())

    def test_who_is_about_to_end_takes_no_further_portion(self):
        self.fence(5)
        self.portions(lambda number: setattr(self, 'ending', True))
        self.look()
        self.assertEqual(2, self.here())

    def test_if_too_much_goes_wrong_the_next_look_goes_on(self):
        self.fence(9)

        def fail(number):
            if number == 2:
                raise OSError

        made = self.portions(fail)
        with self.assertLogs('nova_ironic_multihost', 'WARNING'):
            self.look()
        self.assertEqual((2, 2), (len(made), self.here()))
        self.look()
        self.assertEqual(9, self.here())
        self.clock.now += 10
        self.look()
        self.assertEqual(9, self.here())

    def test_it_is_busy_while_it_takes_what_is_to_be_taken(self):
        seen = []
        self.portions(lambda number: seen.append(self.last.busy))
        self.look()
        self.fence(3)
        self.assertFalse(self.last.busy)
        self.look()
        self.assertEqual(([True] * 2, False), (seen, self.last.busy))
        self.cloud.broken = True
        self.cloud.set('c')
        self.assertFalse(self.last.busy)


class PortionsTestCase(LookTestCase):
    """All that, when few nodes are taken at a time."""

    def setUp(self):
        self.useFixture(fixtures.MockPatchObject(peer_poll, 'BATCH', 3))
        super().setUp()

    def test_others_have_their_turn_in_between(self):
        """An audit of all nodes, with what it takes itself."""
        found = []

        def audit():
            if len(self.tracker.audited) == 3 and not self.begun:
                self.begun = True
                self.assertFalse(self.auditors['a']._lock.locked())
                found.append(self.audit('a'))

        self.begun = False
        self.cloud.set('b', up=False)
        self.between(audit)
        self.look()
        self.assertIs(Reason.KEPT, found[0].reasons[NODES[0]])
        self.assertIs(Reason.ADOPTED, found[0].reasons[NODES[3]])
        self.assertEqual(NODES[:3], self.tracker.audited)

    def test_placement_is_asked_for_each_once(self):
        self.cloud.set('b', up=False)
        self.cloud.asked.clear()
        self.look()
        self.assertEqual(NODES, self.tracker.audited)
        self.assertEqual(NODES, sorted(self.asked('consumers')))

    def read_what_changes(self):
        """Have Ironic asked for what has changed, and not for all nodes."""
        self.pages = cloud.Pages(self.cloud)
        self.auditors['a'] = auditor.Auditor(
            self.cloud, readers.Lister(self.pages, self.clock),
            self.clock)
        self.pages.wait(100)
        for _ in range(2):
            self.audit('a')
        self.look = self.look_of(self.auditors['a'])
        self.look()
        self.pages.wait(100)

    def test_what_changes_in_between_is_seen(self):
        """It may be out of service by now, or back."""
        self.read_what_changes()
        late, others = NODES[-1], NODES[:4]
        self.useFixture(fixtures.MockPatchObject(readers, 'FIRST', 1))
        self.useFixture(fixtures.MockPatchObject(readers, 'PAGE', 1))
        self.cloud.set('b', up=False)

        def change():
            if not self.tracker.audited:
                return
            self.pages.wait(40)
            if self.cloud.contents.setdefault(late, 1) == 1 and (
                    len(self.tracker.audited) > 3):
                # Later ones hide that it was touched.
                for node in others:
                    self.cloud.contents[node] = len(self.tracker.audited)

        self.between(change)
        self.look()
        row = self.auditors['a'].last.nodes[late]
        self.assertIn(row.body, (None, self.pages.truth(
            wanted=lambda node: True)[late].body))

    def test_node_that_novas_tracker_takes_meanwhile_stays(self):
        """An audit of all had it adopted before this look had."""
        late = NODES[-1]
        self.cloud.set('b', up=False)
        self.auditors['a'].read_view(self.settings({}))
        self.auditors['a'].audit(self.settings({}))
        ask = self.cloud.consumers_of

        def take(nodes):
            self.tracker.audit(late)
            self.cloud.consumers_of = ask
            return ask(nodes)

        self.cloud.consumers_of = take
        self.look()
        self.assertTrue(self.auditors['a'].is_mine(late))
        self.assertIn(late, self.auditors['a'].last.nodes)

    def test_a_build_that_is_waited_for_is_looked_for_ever_more_seldom(self):
        self.cloud.placed['build'] = cloud.instance(None, None)
        self.cloud.allocations[NODES[7]] = frozenset({'build'})
        self.cloud.set('b', up=False)
        self.look()
        self.cloud.asked.clear()
        for _ in range(16):
            self.look()
            self.clock.now += 10
        self.assertEqual([NODES[7]] * 5, self.asked('consumers'))
        del self.cloud.placed['build'], self.cloud.allocations[NODES[7]]
        self.clock.now += 300
        self.look()
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))

    def test_if_somebody_else_dies_the_next_look_goes_on(self):
        """Adopting many nodes may take long."""
        self.cloud.set('c')
        self.look()
        self.cloud.set('b', up=False)
        self.between(lambda: self.tracker.audited and
                     self.cloud.set('c', up=False))
        self.look()
        taken = len(self.tracker.audited)
        self.assertLessEqual(taken, peer_poll.BATCH)
        self.look()
        self.assertEqual(NODES, sorted(self.cloud.owners_now('a')))

    def test_those_that_come_later_are_not_its_own_yet(self):
        """An audit of all nodes, or a build, is not to take them."""
        seen = []
        self.cloud.set('b', up=False)
        self.between(lambda: seen.append(
            {**self.auditors['a'].last.reasons}))
        self.look()
        self.assertIs(Reason.ADOPTED, seen[-1][NODES[0]])
        self.assertIs(Reason.ADOPTION_WAITS, seen[-1][NODES[-1]])

    def test_what_is_left_when_it_ends_is_left_to_the_next_look(self):
        self.cloud.set('b', up=False)
        audit = self.tracker.audit
        self.tracker.audit = lambda node: (
            setattr(self, 'ending', node == NODES[2]), audit(node))
        self.look()
        self.assertEqual(NODES[:3], self.tracker.audited)
        self.ending = False
        self.look()
        self.assertEqual(NODES, self.tracker.audited)

    def test_who_is_back_in_between_keeps_what_is_left(self):
        self.options['pulls_per_audit'] = 200
        self.between(lambda: self.cloud.set('b', up=bool(
            self.tracker.audited)))
        self.look()
        self.assertEqual(NODES[:3], self.tracker.audited)
        # Others go by that at once.
        self.assertTrue(self.last.view.member('b'))

    def test_what_is_skipped_is_left_to_the_next_look(self):
        """A heartbeat of this host is late, say, for a moment."""
        self.cloud.set('b', up=False)
        late = [3, 6]
        self.between(lambda: self.cloud.set(
            'a', up=len(self.tracker.audited) not in late))
        self.look()
        self.assertEqual(NODES[:3], self.tracker.audited)
        late.clear()
        self.look()
        self.assertEqual({*NODES}, {*self.tracker.audited})

    def test_a_portion_that_fails_late_is_no_gap_in_what_was_seen(self):
        self.cloud.set('b', up=False)
        audit = self.tracker.audit
        self.tracker.audit = lambda node: (
            setattr(self.clock, 'now', self.clock.now + 20), audit(node))

        def fail():
            if len(self.tracker.audited) == 6 and not failed:
                failed.append(True)
                raise OSError

        failed = []
        self.between(fail)
        self.assertRaises(OSError, self.look)
        self.clock.now += 10
        self.look()
        self.assertEqual({*NODES}, {*self.tracker.audited})

    def test_a_build_that_came_in_between_is_waited_for(self):
        self.cloud.set('b', up=False)
        self.between(lambda: self.tracker.audited and
                     self.cloud.allocations.update({
                         NODES[4]: frozenset({'build'})}))
        self.cloud.placed['build'] = cloud.instance(None, None)
        self.look()
        self.assertEqual([node for node in NODES if node != NODES[4]],
                         self.tracker.audited)

    def test_what_was_taken_over_is_taken_in_any_portion(self):
        self.options.update(policy=takeover.Policy('forced_down'))
        for node in NODES[2:5]:
            self.cloud.ironic[node] = f'i-{node}'
            self.cloud.placed[f'i-{node}'] = cloud.instance('b', node)
        self.cloud.set('b', up=False, forced_down=True)
        self.look()
        self.assertEqual(NODES, self.tracker.audited)


UP = {'up': True}
DOWN = {'up': False}
DISABLED = {'up': True, 'disabled': True}
FENCED = {'up': False, 'forced_down': True}

services = strategies.builds(
    peers.ComputeService, host=strategies.sampled_from('abCD'),
    up=strategies.booleans(), disabled=strategies.booleans(),
    forced_down=strategies.booleans(), ironic=strategies.booleans())
views = strategies.lists(services, max_size=6).map(
    lambda some: peers.view(some, peers.Partition(), 'a'))


def view(**hosts):
    """The view of host a: host -> what it is."""
    return peers.view(
        [peers.ComputeService(host, **state)
         for host, state in {'a': UP, **hosts}.items()],
        peers.Partition(), 'a')


class DueTestCase(base.BaseTestCase):

    def test_who_died_or_was_disabled_or_fenced(self):
        before = view(b=UP, c=UP)
        for state in (DOWN, DISABLED, FENCED):
            self.assertEqual(
                {'b'}, peer_poll.due(before, view(b=state, c=UP)))

    def test_who_is_fenced_after_it_died(self):
        # What may be done with its servers depends on it.
        self.assertEqual({'b'}, peer_poll.due(view(b=DOWN), view(b=FENCED)))

    def test_who_dies_after_it_was_disabled(self):
        self.assertEqual({'b'}, peer_poll.due(view(b=DISABLED), view(
            b={**DISABLED, 'up': False})))

    def test_who_left_before_when_another_leaves(self):
        # It was to take nodes of the first one, perhaps.
        self.assertEqual({'b', 'c'}, peer_poll.due(
            view(b=DOWN, c=UP), view(b=DOWN, c=DOWN)))
        self.assertEqual(
            {'b'}, peer_poll.due(view(b=DOWN, c=UP), view(b=DOWN)))

    def test_everybody_who_is_away_at_first_and_when_this_host_is_back(self):
        after = view(b=DOWN, c=DISABLED, d=UP)
        self.assertEqual({'b', 'c'}, peer_poll.due(None, after))
        for state in (DOWN, DISABLED, FENCED):
            self.assertEqual({'b', 'c'}, peer_poll.due(view(
                a=state, b=DOWN, c=DISABLED, d=UP), after))

    def test_nobody_when_others_join(self):
        self.assertEqual(set(), peer_poll.due(
            view(b=DOWN, c=DISABLED), view(b=DOWN, c=UP, d=UP)))

    @hypothesis.given(views, views)
    def test_of_any_change(self, before, after):
        due = peer_poll.due(before, after)
        self.assertEqual(set(), due & (after.members | {'a'}))
        self.assertEqual(set(), peer_poll.due(after, after))
        if not after.member('a'):
            self.assertEqual(set(), due)
            return
        gone = {host for host in before.members if host in after.services
                and (not after.live(host) or after.services[host].disabled)}
        self.assertLessEqual(gone, due)
        for host in due:
            service = after.services[host]
            self.assertTrue(not service.up or service.disabled)


class WatchTestCase(base.BaseTestCase):

    def test_what_was_done_is_not_due_again(self):
        watcher = peer_poll.PeerChanges()
        self.assertEqual((), watcher.hosts)
        for looked, due in ((view(B=DOWN), {'b'}),
                            (view(B=DOWN, c=DOWN), {'c'})):
            self.assertEqual(due, watcher.due(looked))
            self.assertEqual(due, watcher.due(looked))
            watcher.done(looked)
            self.assertEqual(set(), watcher.due(looked))
        self.assertEqual({'a', 'B', 'c'}, set(watcher.hosts))

    def test_what_is_taken_in_portions_goes_on_to_its_end(self):
        watcher = peer_poll.PeerChanges()
        looked = view(b=DOWN, c=DOWN)
        for _ in range(9):
            watcher.done(looked, waiting=['b'])
            self.assertEqual({'b'}, watcher.due(looked))
        self.assertEqual(set(), watcher.due(view(b=UP)))
        watcher.done(looked)
        self.assertEqual(set(), watcher.due(looked))

    def test_they_are_not_tried_when_their_host_is_back(self):
        watcher = peer_poll.PeerChanges()
        watcher.done(view(b=DOWN), 'b', hindered='b')
        self.assertEqual(set(), watcher.due(view(b=UP)))

    def test_they_are_not_tried_again_when_they_were_taken(self):
        watcher = peer_poll.PeerChanges()
        watcher.done(view(b=DOWN), 'b', hindered='b')
        self.assertEqual({'b'}, watcher.due(view(b=DOWN)))
        watcher.done(view(b=DOWN), 'b')
        self.assertEqual(set(), watcher.due(view(b=DOWN)))

    def test_whose_instances_may_be_taken_over_from_now_on(self):
        watcher, looked = peer_poll.PeerChanges(), view(b=DOWN, c=UP)
        watcher.done(looked)
        self.assertEqual(set(), watcher.due(looked))
        self.assertEqual({'b'}, watcher.due(looked, frozenset('b')))
        watcher.done(looked, eligible=frozenset('b'))
        self.assertEqual(set(), watcher.due(looked, frozenset('b')))
