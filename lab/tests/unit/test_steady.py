# SPDX-License-Identifier: Apache-2.0

import argparse
import types
from unittest import mock

from oslotest import base

from lab.experiments import steady
from lab import questions


class SteadyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        #: What was done, in its order.
        self.done = []
        computes = mock.Mock(**{'names.return_value': ['compute-1']})
        computes.restart.side_effect = (
            lambda names, options=(): self.done.append(options))
        timeline = mock.Mock(**{'moves.return_value': [],
                                'split.return_value': [5]})
        self.bench = mock.Mock(
            computes=computes, audit=10,
            recorder=mock.Mock(timeline=timeline))
        self.bench.recorder.watch.side_effect = self.done.append

    def choices(self, *argv):
        parser = argparse.ArgumentParser()
        steady.add_options(parser)
        return steady.choices(parser.parse_args(argv))

    def test_nobody_is_restarted_to_watch(self):
        figures = steady.run(self.bench, **self.choices())
        self.assertEqual({'watched': 60, 'moves': 0, 'split': [5]}, figures)
        self.assertEqual([60], self.done)

    def test_computes_are_counted_for_a_minute_and_restarted(self):
        tally = questions.Tally()
        tally.ask('ironic', 'of the start')
        counting = mock.MagicMock()
        counting.__enter__.return_value = types.SimpleNamespace(
            tally=tally, options=('a.b=c',))
        self.patch(questions, 'Counting', lambda settings: counting)
        self.bench.note.side_effect = lambda event: (
            tally.ask('ironic', 'GET /v1/shards'),
            tally.answer('ironic', 'GET /v1/shards', 7))
        figures = steady.run(self.bench, **self.choices('--questions'))
        self.assertEqual([('a.b=c',), 12, 60, ()], self.done)
        self.assertEqual({'conductor': 0, 'ironic': 1, 'placement': 0,
                          'rabbitmq': 0}, figures['asked'])
        self.assertEqual({'ironic: GET /v1/shards': [1, 7]},
                         figures['questions'])
        self.assertEqual([], steady.failures(figures))
