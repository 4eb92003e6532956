# SPDX-License-Identifier: Apache-2.0

import dataclasses
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from lab.bench import bench as benches
from lab import errors
from lab.experiments import coldstart
from lab import timeline
from nova_ironic_multihost.tests import views

OWNERS = {f'node-{i}': views.HOSTS[i % 3] for i in range(6)}


def prefer(members, node):
    """A ring that wants each node where views.consistent() has it."""
    owner = OWNERS[node]
    return owner if owner in members else min(members, default=None)


class Film:
    """A recorder for which a second passes with each look.

    :param views: what is seen, second by second; the last one stays
    """

    def __init__(self, *views):
        self._views = views
        self._samples = []
        self._events = []
        self._listeners = []
        self._look()

    def _look(self):
        self.view = self._views[min(len(self._samples),
                                    len(self._views) - 1)]
        self._samples.append(
            timeline.Sample.of(self.view, float(len(self._samples))))
        for listener in self._listeners:
            listener(self.view)

    def listen(self, listener):
        self._listeners.append(listener)

    @property
    def timeline(self):
        return timeline.Timeline(tuple(self._samples), tuple(self._events))

    def now(self):
        return self._samples[-1].t

    def mark(self, name):
        self._events.append(timeline.Event(self.now(), name))

    def watch(self, seconds):
        end = self.now() + seconds
        while self.now() < end:
            self._look()
        return self.now()

    def wait_for(self, condition, timeout, what):
        end = self.now() + timeout
        while not condition(self.view):
            if self.now() >= end:
                raise timeline.NeverHappened(what)
            self._look()
        return self.now()


def moved(seen, index, host):
    return views.changed(seen, 'records', index, host=host)


class FilmTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.good = views.consistent()
        self.computes = mock.Mock()

    def bench(self, *seen):
        return benches.Bench(
            settings=None, tell=lambda text: None, recorder=Film(*seen),
            computes=self.computes, cloud=None, prefer=prefer, audit=10,
            down_time=8, clock=lambda: views.NOW - 2)


class BenchTestCase(FilmTestCase):

    def test_in_place(self):
        bench = self.bench(self.good)
        self.assertTrue(bench.in_place(self.good))
        self.assertFalse(bench.in_place(moved(self.good, 1, 'compute-3')))
        self.assertFalse(
            bench.in_place(views.without(self.good, 'records', 1)))

    def test_a_node_with_a_server_is_in_place_anywhere(self):
        bench = self.bench(self.good)
        self.assertTrue(bench.in_place(moved(self.good, 0, 'compute-3')))

    def test_settles_when_the_last_node_is_in_place(self):
        away = moved(self.good, 1, 'compute-3')
        rest = self.bench(*[away] * 5, self.good).settle()
        self.assertEqual(benches.Rest(5.0, 0), rest)
        self.assertTrue(rest.quiet)

    def test_a_move_after_that_is_late(self):
        away = moved(self.good, 1, 'compute-3')
        rest = self.bench(*[self.good] * 8, away, self.good).settle()
        self.assertEqual(2, rest.late)
        self.assertFalse(rest.quiet)

    def test_what_is_never_in_place_is_not_quiet(self):
        away = moved(self.good, 1, 'compute-3')
        rest = self.bench(away).settle()
        self.assertEqual(benches.Rest(None, 0), rest)
        self.assertFalse(rest.quiet)

    def test_a_phase_tells_what_is_left(self):
        disabled = views.changed(self.good, 'services', 1, disabled=True)
        one_left = moved(disabled, 1, 'compute-1')
        none_left = moved(one_left, 4, 'compute-1')
        figures = self.bench(self.good, disabled, one_left, one_left,
                             none_left).phase('disable', 'compute-2')
        self.computes.disable.assert_called_once_with('compute-2')
        self.assertEqual(
            {'moves': 2, 'moved_nodes': 2, 'most_moves': 1,
             'most_moves_per_change': 1, 'needless': 0, 'unschedulable': 0,
             'left': 0, 'settled_after': 4.0, 'quiet': True,
             'moves_after_quiet': 0}, figures)

    def test_removing_drains_first(self):
        gone = self.good
        for number in (1, 4):
            gone = moved(gone, number, 'compute-1')
        down = views.changed(gone, 'services', 1, up=False)
        self.bench(self.good, gone, gone, down).remove('compute-2')
        self.assertEqual(
            [mock.call.disable('compute-2'), mock.call.stop('compute-2'),
             mock.call.forget('compute-2')], self.computes.mock_calls)

    def test_one_that_keeps_its_nodes_while_it_lives_is_removed_too(self):
        down = views.changed(self.good, 'services', 1, up=False)
        gone = moved(moved(down, 1, 'compute-1'), 4, 'compute-1')
        self.bench(*[self.good] * 130, down, gone).remove('compute-2')
        self.computes.forget.assert_called_once_with('compute-2')

    def test_one_that_still_says_farewell_is_not_back(self):
        down = views.changed(self.good, 'services', 1, up=False)
        ending = views.changed(self.good, 'services', 1, disabled=True,
                               stop_marker='stopping since then')
        film = self.bench(down, ending, ending, self.good)
        film.await_up('compute-2')
        self.assertEqual(3.0, film.recorder.now())

    def test_what_the_process_before_has_said_is_no_sign_of_life(self):
        old = views.changed(self.good, 'services', 1, seen=views.NOW - 2)
        film = self.bench(old, old, self.good)
        film.await_up('compute-2')
        self.assertEqual(2.0, film.recorder.now())

    def test_a_stock_one_that_is_not_disabled_is_up_whatever_it_says(self):
        left = views.changed(self.good, 'services', 1,
                             stop_marker='stopping since then')
        film = self.bench(left)
        film.await_up('compute-2')
        self.assertEqual(0.0, film.recorder.now())

    def test_no_compute_is_up(self):
        nothing = dataclasses.replace(self.good, services=())
        self.computes.names.return_value = ['compute-1']
        error = self.assertRaises(
            errors.LabError, lambda: self.bench(nothing).busiest)
        self.assertIn('tools/lab up', str(error))


class ColdstartTestCase(FilmTestCase):

    def setUp(self):
        super().setUp()
        self.computes.names.return_value = list(views.HOSTS)
        self.states = dict.fromkeys(views.HOSTS, 'running')
        self.computes.process_state.side_effect = self.states.get
        self.empty = dataclasses.replace(self.good, services=(), records=())
        logs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.computes.log.side_effect = lambda name: logs / name
        self.log = logs / views.HOSTS[0]

    def test_what_is_logged_and_what_nova_logs_in_any_case(self):
        def spawn(names):
            self.log.write_text(
                '2026-11-27 01:49:53 1 WARNING nova.compute.resource_tracker '
                '[None req-1 - -] No compute node record for a:b\n'
                '2026-11-27 01:49:53 1 WARNING nova.compute.manager '
                "[None req-1 - -] Compute node 'x' not found\n"
                '2026-11-27 01:49:53 1 ERROR nova.scheduler [-] Failed\n'
                '2026-11-27 01:49:53 1 ERROR nova.scheduler [-] Got 409: '
                '{"errors": [{"code": "placement.concurrent_update"}]}\n')

        self.computes.spawn.side_effect = spawn
        figures = coldstart.run(self.bench(
            self.empty, self.empty, self.good))
        self.assertEqual(
            {"nova.compute.manager Compute node 'x' not found": 1},
            figures['warnings'])
        self.assertEqual({'nova.scheduler Failed': 1}, figures['errors'])
        self.assertEqual(2, len(coldstart.failures(figures)))

    def test_counts_from_the_start(self):
        crowded = self.good
        for number in range(6):
            crowded = moved(crowded, number, 'compute-1')
        figures = coldstart.run(self.bench(
            self.empty, self.empty, crowded, self.good))
        self.assertEqual((6, 4, 1, 2.0), (
            figures['created'], figures['moves'], figures['most_moves'],
            figures['owned_after']))
        self.assertEqual([], coldstart.failures(figures))

    def test_a_compute_that_does_not_survive_its_start_is_named(self):
        self.states['compute-2'] = 'stopped'
        rest = views.without(self.good, 'services', 1)
        for number in (1, 4):
            rest = moved(rest, number, 'compute-1')
        figures = coldstart.run(self.bench(self.empty, rest))
        self.assertEqual(['compute-2'], figures['died'])
        [sentence] = coldstart.failures(figures)
        self.assertIn('compute-2', sentence)
