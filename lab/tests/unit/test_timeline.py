# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import tempfile
import threading

from oslotest import base

from lab import timeline
from lab import view
from nova_ironic_multihost.tests import views

ALL_UP = frozenset('abc')


def recorded(*owners, up=None, mapped=ALL_UP, used=(), disabled=None):
    """A timeline of one sample a second.

    :param owners: for each second a string, the hosts of nodes 0, 1, ...;
        "-" for a node without a record
    :param up: for each second a string of the hosts that are up
    :param disabled: likewise of those that are disabled
    """
    def sample(t, hosts, alive, closed):
        return timeline.Sample(
            float(t),
            {str(n): host for n, host in enumerate(hosts) if host != '-'},
            frozenset(used), alive, closed, frozenset(mapped), alive - closed)

    return timeline.Timeline(tuple(
        sample(t, hosts, frozenset(up[t]) if up else ALL_UP,
               frozenset(disabled[t]) if disabled else frozenset())
        for t, hosts in enumerate(owners)))


class MovesTestCase(base.BaseTestCase):

    def test_nothing_moves(self):
        self.assertEqual([], recorded('abc', 'abc', 'abc').moves())

    def test_each_change_of_owner_is_a_move(self):
        moves = recorded('aab', 'bab', 'abb').moves()
        self.assertEqual(
            [(1.0, '0', 'a', 'b'), (2.0, '0', 'b', 'a'), (2.0, '1', 'a', 'b')],
            [(m.t, m.node, m.old, m.new) for m in moves])
        self.assertEqual(2, timeline.moved_nodes(moves))
        self.assertEqual(2, timeline.most_moves(moves))

    def test_only_within_the_window(self):
        moves = recorded('a', 'b', 'c', 'a').moves(since=1, until=2)
        self.assertEqual([2.0], [m.t for m in moves])

    def test_first_sight_is_no_move(self):
        self.assertEqual([], recorded('-', 'a').moves())

    def test_vanishing_and_coming_back_elsewhere_is_a_move(self):
        [move] = recorded('a', '-', 'b').moves()
        self.assertEqual(('a', 'b'), (move.old, move.new))

    def test_vanishing_and_coming_back_is_no_move(self):
        self.assertEqual([], recorded('a', '-', 'a').moves())

    def test_tells_moves_to_hosts_that_are_not_mapped(self):
        moves = recorded('aa', 'bc', mapped='ab').moves()
        self.assertEqual([True, False], [m.mapped for m in moves])

    def test_most_moves_of_none(self):
        self.assertEqual(0, timeline.most_moves([]))


def first(members, node):
    """A ring that prefers the first member in the alphabet."""
    return min(members, default=None)


class JudgedMovesTestCase(base.BaseTestCase):

    def members(self, **changes):
        """What a look shows when one of three hosts is not as it was."""
        return timeline.Sample.of(views.changed(
            views.consistent(), 'services', 0, **changes), 0.0).members

    def test_members_are_up_and_enabled(self):
        for changes in {'up': False}, {'disabled': True}:
            self.assertEqual({'compute-2', 'compute-3'},
                             self.members(**changes))

    def test_who_is_told_to_end_is_a_member_for_a_short_time(self):
        said = {'stop_marker': 'I go', 'disabled': True}
        self.assertIn('compute-1', self.members(**said))
        self.assertNotIn('compute-1', self.members(**said, over=True))

    def test_builds_go_to_who_is_up_enabled_and_mapped(self):
        [sample] = recorded('a', up=['abd'], disabled=['d'],
                            mapped='bcd').samples
        self.assertEqual({'b'}, sample.schedulable)

    def test_misplaced_are_free_nodes_elsewhere(self):
        [sample] = recorded('abb', used=('1',)).samples
        self.assertEqual({'2'}, sample.misplaced(first))

    def test_a_change_is_a_member_more_or_less(self):
        self.assertEqual([1.0, 2.0, 4.0], recorded(
            *'aaaaa', up=['ab', 'abc', 'abc', 'abc', 'ac'],
            disabled=['', '', 'a', 'a', 'a']).changes())

    def test_moves_are_counted_from_change_to_change(self):
        seen = recorded(*'aaaaabcccca',
                        up=['abc', *['bc'] * 9, 'abc'])
        self.assertEqual(3, timeline.most_moves(seen.moves()))
        self.assertEqual(2, seen.most_moves_per_change())
        self.assertEqual(1, seen.most_moves_per_change(since=6))
        self.assertEqual(0, recorded('a').most_moves_per_change())

    def test_a_late_move_counts_for_the_change_before(self):
        seen = recorded(
            'a', 'a', 'b', 'a', up=['abc', 'bc', 'abc', 'abc'])
        self.assertEqual(1, seen.most_moves_per_change())
        late = recorded(*'aaaaaaabc', up=['abc', 'bc', *['abc'] * 7])
        self.assertEqual(2, late.most_moves_per_change())

    def test_a_move_to_whom_the_ring_prefers_is_needed(self):
        self.assertEqual([], recorded('b', 'a').needless(first))

    def test_a_move_away_from_whom_the_ring_prefers_is_needless(self):
        [move] = recorded('a', 'b').needless(first)
        self.assertEqual(('a', 'b'), (move.old, move.new))
        self.assertEqual(
            [], recorded('a', 'b').needless(first, since=1))

    def test_a_move_from_a_dead_host_is_needed(self):
        self.assertEqual(
            [], recorded('a', 'c', up=['bc', 'bc']).needless(first))

    def test_a_disabled_host_is_alive_but_no_choice(self):
        disabled = ['a', 'a', 'a']
        self.assertEqual(
            ['c'], [move.new for move in recorded(
                'a', 'b', 'c', disabled=disabled).needless(first)])

    def test_who_was_preferred_a_moment_ago_excuses_a_move(self):
        up = ['bc', 'bc', 'abc', 'abc', 'abc', 'abc', 'abc']
        self.assertEqual([], recorded(
            'c', 'c', 'c', 'b', up=up[:4]).needless(first))
        self.assertEqual(1, len(recorded(
            'c', 'c', 'c', 'c', 'c', 'c', 'b', up=up).needless(first)))

    def test_nodes_that_come_to_where_nova_sends_no_builds(self):
        for why in ({'up': ['bc', 'bc']}, {'disabled': ['a', 'a']},
                    {'mapped': 'bc'}):
            with self.subTest(why):
                self.assertEqual(
                    {'0'}, recorded('bb', 'ab', **why).unschedulable())

    def test_nodes_that_are_there_already_do_not_count(self):
        self.assertEqual(set(), recorded(
            'a', 'a', up=['abc', 'bc']).unschedulable())

    def test_nodes_that_came_just_before_do_not_count(self):
        self.assertEqual(set(), recorded(
            'b', 'a', up=['abc', 'bc']).unschedulable())

    def test_created_counts_each_time(self):
        self.assertEqual(3, recorded('--', 'a-', '-b', 'ab').created())
        self.assertEqual(1, recorded('--', 'a-', '-b', 'ab').created(since=2))


class ArrivedTestCase(base.BaseTestCase):

    def test_when_the_last_node_is_on_a_live_host(self):
        lost = recorded('aab', 'aab', 'bab', 'bcb',
                        up=['abc', 'bc', 'bc', 'bc'])
        self.assertEqual(2.0, lost.arrived(['0', '1'], 'a', 1.0))

    def test_not_on_a_dead_host(self):
        lost = recorded('a', 'b', up=['abc', 'c'])
        self.assertIsNone(lost.arrived(['0'], 'a', 0.0))

    def test_staying_is_not_arriving(self):
        # For a while nova still calls a killed compute up.
        self.assertIsNone(recorded('a', 'a').arrived(['0'], 'a', 0.0))

    def test_a_node_without_record_has_not_arrived(self):
        self.assertIsNone(recorded('a', '-').arrived(['0'], 'a', 0.0))


class TimelineTestCase(base.BaseTestCase):

    def test_on_dead_hosts_is_the_worst_moment(self):
        seen = recorded('aaab', 'aaab', 'aabb', 'bbbb',
                        up=['abc', 'bc', 'bc', 'bc'])
        self.assertEqual(3, seen.on_dead_hosts())
        self.assertEqual(2, seen.on_dead_hosts(since=1))
        self.assertEqual(0, seen.on_dead_hosts(since=2))

    def test_on_dead_hosts_can_leave_out_servers(self):
        seen = recorded('aab', up=['b'], used=('0',))
        self.assertEqual({'0', '1'}, seen.samples[0].on_dead_hosts())
        self.assertEqual({'1'}, seen.samples[0].on_dead_hosts(free=True))

    def test_split_counts_live_hosts_that_own_nothing(self):
        self.assertEqual([0, 1, 3], recorded('abbb').split())

    def test_counts_free_and_used(self):
        [sample] = recorded('aab', used=('0',)).samples
        self.assertEqual((1, 1), sample.count('a'))
        self.assertEqual((1, 0), sample.count('b'))
        self.assertEqual((0, 0), sample.count('c'))

    def test_since_begins_at_zero(self):
        seen = timeline.Timeline(
            recorded('a', 'b', 'c').samples,
            (timeline.Event(0.5, 'before'), timeline.Event(1.5, 'after')))
        later = seen.since(1.0)
        self.assertEqual([0.0, 1.0], [s.t for s in later.samples])
        self.assertEqual([timeline.Event(0.5, 'after')], list(later.events))

    def test_hosts_in_the_order_of_their_numbers(self):
        seen = timeline.Timeline((timeline.Sample(
            0.0, {}, up=frozenset({'c-10', 'c-9'})),))
        self.assertEqual(['c-9', 'c-10'], seen.hosts)

    def test_kept_in_a_file(self):
        seen = timeline.Timeline(recorded('ab', '-b', used=('1',)).samples,
                                 (timeline.Event(1.0, 'kill a'),))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'new' / 'kept.json'
            timeline.save(seen, path, driver='ours')
            self.assertEqual(seen, timeline.load(path))
            self.assertEqual({'driver': 'ours'},
                             json.loads(path.read_text())['conditions'])


class RecorderTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = views.consistent()

    def recorder(self, read=None):
        return timeline.Recorder(read or (lambda: self.seen), period=0.01)

    def test_records_until_it_is_left(self):
        with self.recorder() as recorder:
            recorder.mark('kill compute-2')
            self.seen = views.changed(self.seen, 'records', 1,
                                      host='compute-3')
            recorder.wait_for(
                lambda seen: seen.owner_of['node-1'] == 'compute-3', 30,
                'a move')
        count = len(recorder.timeline.samples)
        [event] = recorder.timeline.events
        [move] = recorder.timeline.moves()
        self.assertEqual('kill compute-2', event.name)
        self.assertEqual('node-1', move.node)
        self.assertLessEqual(event.t, move.t)
        self.assertEqual(count, len(recorder.timeline.samples))

    def test_says_what_never_happened(self):
        with self.recorder() as recorder:
            error = self.assertRaises(
                timeline.NeverHappened, recorder.wait_for,
                lambda seen: False, 0.05, 'a miracle')
        self.assertIn('a miracle did not happen', str(error))

    def test_an_unreadable_lab_ends_the_wait(self):
        broken = threading.Event()

        def read():
            if broken.is_set():
                raise view.ViewError('gone')
            return self.seen

        def wait():
            with self.recorder(read) as recorder:
                broken.set()
                recorder.wait_for(lambda seen: False, 30, 'a miracle')

        self.assertRaises(view.ViewError, wait)

    def test_looks_may_fail_while_something_is_away(self):
        broken = threading.Event()
        looks = []

        def read():
            looks.append(broken.is_set())
            if broken.is_set():
                raise view.ViewError('gone')
            return self.seen

        with self.recorder(read) as recorder:
            with recorder.gaps():
                broken.set()
                recorder.watch(0.1)
                broken.clear()
                recorder.wait_for(
                    lambda seen: looks.count(False) > 5, 30, 'looks')
        self.assertIn(True, looks)

    def test_what_fails_otherwise_is_raised_meanwhile(self):
        broken = threading.Event()

        def read():
            if broken.is_set():
                raise KeyError('a mistake')
            return self.seen

        def wait():
            with self.recorder(read) as recorder, recorder.gaps():
                broken.set()
                recorder.wait_for(lambda seen: False, 30, 'a miracle')

        self.assertRaises(KeyError, wait)

    def test_each_view_is_shown(self):
        shown = []
        with self.recorder() as recorder:
            recorder.listen(shown.append)
            recorder.wait_for(lambda seen: len(shown) >= 2, 30, 'two looks')
        self.assertIs(self.seen, shown[0])
