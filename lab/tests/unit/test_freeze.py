# SPDX-License-Identifier: Apache-2.0

"""The experiment in which a compute stands still."""

import argparse
import contextlib
import types

from oslotest import base

from lab.experiments import freeze


class Bench:
    """A lab in which nodes move at some moments.

    :ivar done: what was done to computes, with the time.
    """

    busiest = 'compute1', ['n1', 'n2']

    def __init__(self, moves):
        self.now = 0
        self.done = []
        timeline = types.SimpleNamespace(moves=lambda since, until: [
            at for at in moves if since < at <= until])
        self.computes = types.SimpleNamespace(
            pause=lambda name: self.done.append((self.now, 'pause', name)),
            resume=lambda name: self.done.append((self.now, 'resume', name)))
        self.recorder = types.SimpleNamespace(
            watch=self.watch, now=lambda: self.now, timeline=timeline)

    def watch(self, seconds):
        self.now += seconds

    def note(self, event):
        return self.now

    def moved(self, since, until):
        return {'most_moves': 1}

    def await_quiet(self):
        return True


class RoundsTestCase(base.BaseTestCase):

    def run_rounds(self, *moves, options=('--rounds', '3')):
        parser = argparse.ArgumentParser()
        freeze.add_options(parser)
        self.bench = Bench(moves)
        return freeze.run(self.bench, **freeze.choices(
            parser.parse_args(options)))

    def test_it_stands_still_for_a_part_of_each_round(self):
        figures = self.run_rounds(
            options=('--rounds', '2', '--for', '3', '--every', '10'))
        self.assertEqual(
            [(0, 'pause', 'compute1'), (3, 'resume', 'compute1'),
             (10, 'pause', 'compute1'), (13, 'resume', 'compute1')],
            self.bench.done)
        self.assertEqual([0, 0], figures['moves_in_rounds'])

    def test_moves_of_each_round(self):
        figures = self.run_rounds(5, 6, 50, 100, 101)
        self.assertEqual([2, 1, 2], figures['moves_in_rounds'])
        self.assertEqual(2, figures['moves_at_rest'])
        self.assertEqual(['2 moves after the second round'],
                         freeze.failures(figures))

    def test_away_and_back_is_right(self):
        figures = self.run_rounds(5, 50)
        self.assertEqual([], freeze.failures(figures))
        self.assertEqual(['a node moved 3 times'], freeze.failures(
            {**figures, 'most_moves': 3}))

    def test_it_goes_on_when_the_lab_is_interrupted(self):
        with contextlib.suppress(KeyboardInterrupt):
            bench = Bench([])
            bench.recorder.watch = _interrupt
            freeze.run(bench, 1, 3, 10)
        self.assertEqual('resume', bench.done[-1][1])


def _interrupt(seconds):
    raise KeyboardInterrupt
