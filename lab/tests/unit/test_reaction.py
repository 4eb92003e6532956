# SPDX-License-Identifier: Apache-2.0

"""The judgement of the experiment in which audits are rare."""

from unittest import mock

import fixtures
from oslotest import base

from lab.experiments import reaction


class FailuresTestCase(base.BaseTestCase):

    def failures(self, after, moves=1):
        good = {'usable_after': 14.0, 'most_moves': 1}
        return reaction.failures({
            'limit': 23.0, 'intervals': [10, 600], 'quiet': True,
            'every_10_s': good,
            'every_600_s': {'usable_after': after, 'most_moves': moves}})

    def test_within_the_limit(self):
        self.assertEqual([], self.failures(23.0))

    def test_too_late_or_never(self):
        for after in (23.1, None):
            sentence, = self.failures(after)
            self.assertIn('with audits every 600 s', sentence)

    def test_what_is_away_is_so_until_looks_have_failed(self):
        for without, limit in (
                (None, 23.0), ('placement', 15.0), ('conductor', 23.0)):
            bench, stack = mock.MagicMock(down_time=8), mock.MagicMock()
            bench.busiest = 'one', ()
            bench.recorder.now.return_value = 30.0
            bench.recorder.wait_for.return_value = 40.0
            bench.kill.return_value = 10.0
            bench.await_down.return_value = 18.0
            bench.recorder.timeline.moves.return_value = []
            done = mock.Mock()
            done.attach_mock(bench.kill, 'kill')
            done.attach_mock(stack, 'stack')
            done.attach_mock(bench.recorder.watch, 'watch')
            self.useFixture(fixtures.MockPatchObject(
                reaction.stacks, 'Stack', return_value=stack))
            found = reaction.run(bench, [600], without)
            self.assertEqual(limit, found['limit'])
            some = found['every_600_s']
            part = {'conductor': 'nova-conductor'}.get(without, without)
            self.assertEqual([mock.call.kill('one')] if without is None else [
                mock.call.stack.kill(part), mock.call.kill('one'),
                mock.call.watch(reaction.LOOKS),
                mock.call.stack.start(part)], done.mock_calls)
            # From the kill, or from its return.
            self.assertEqual(10.0 if without else 30.0, some['usable_after'])

    def test_to_and_fro(self):
        sentence, = self.failures(20.0, moves=2)
        self.assertIn('a node moved 2 times', sentence)
