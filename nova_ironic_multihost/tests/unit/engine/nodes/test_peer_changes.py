# SPDX-License-Identifier: Apache-2.0

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.engine.nodes import peer_poll
from nova_ironic_multihost.rules import peers

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

    def test_nodes_that_could_not_be_taken_are_tried_ever_more_seldom(self):
        now = 1000
        watcher = peer_poll.PeerChanges(lambda: now)
        looked = view(b=DOWN, c=DOWN)
        watcher.done(looked, 'b', hindered='b')
        for pause in (0, 10, 20, 40, 80, 160, 300, 300):
            if pause:
                now += pause - 1
                self.assertEqual(set(), watcher.due(looked))
                # Of another host.
                watcher.done(looked, 'c')
                now += 1
            self.assertEqual({'b'}, watcher.due(looked))
            watcher.done(looked, 'b', hindered='b')

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


class TakeoverTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.watch = peer_poll.PeerChanges()
        self.view = view(b=DOWN, c=UP)
        self.watch.done(self.view)

    def test_whose_instances_may_be_taken_over_from_now_on(self):
        self.assertEqual(set(), self.watch.due(self.view))
        self.assertEqual({'b'}, self.watch.due(self.view, frozenset('b')))
        self.watch.done(self.view, eligible=frozenset('b'))
        self.assertEqual(set(), self.watch.due(self.view, frozenset('b')))

    def test_more_of_them_than_one_audit_may_take(self):
        for _ in range(9):
            self.watch.done(self.view, waiting=('b',))
            self.assertEqual({'b'}, self.watch.due(self.view))
        self.assertEqual(set(), self.watch.due(view(b=UP, c=UP)))
        self.watch.done(self.view)
        self.assertEqual(set(), self.watch.due(self.view))
