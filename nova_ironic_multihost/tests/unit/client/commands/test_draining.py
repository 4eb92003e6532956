# SPDX-License-Identifier: Apache-2.0

import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import drain
from nova_ironic_multihost.rules import liveness

STOP_MARKER = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))


class RefusalTestCase(base.BaseTestCase):

    def refusal(self, *states):
        known = tuple(
            cloud_state.Service(f'compute-{i}', **state)
            for i, state in enumerate(states))
        return drain.refusal(known, known[0])

    def test_it_is_the_last_one(self):
        for others in ([], [{'up': False}],
                       [{'up': False, 'disabled': True}]):
            told = self.refusal({}, *others)
            self.assertIn('Besides compute-0 no compute service', told)
            self.assertIn('start another one first', told)
            self.assertIn('--even-if-last', told)

    def test_whom_to_enable(self):
        self.assertIn('undrain compute-1',
                      self.refusal({}, {'disabled': True}, {'up': False}))

    def test_nobody_takes_the_nodes_of_one_that_has_no_builds(self):
        for state in {'disabled': True}, {'up': False}:
            self.assertIn('undrain compute-1',
                          self.refusal(state, {'disabled': True}))

    def test_an_outage_looks_like_the_death_of_all(self):
        for others in [], [{'up': False}]:
            self.assertIn('Look at RabbitMQ, nova-conductor',
                          self.refusal({'up': False}, *others))


class WantedTestCase(base.BaseTestCase):

    def wanted(self, reason=None, **state):
        return drain.wanted(cloud_state.Service('h', **state), reason)

    def test_one_that_is_enabled(self):
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': drain.REASON},
            self.wanted())
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': 'mine'},
            self.wanted('mine'))

    def test_one_that_is_drained(self):
        self.assertEqual({}, self.wanted(disabled=True))

    def wanted_again(self, reason, there):
        return drain.wanted(
            cloud_state.Service('h', disabled=True, reason=there), reason)

    def test_another_reason(self):
        self.assertEqual({}, self.wanted_again('mine', 'mine'))
        self.assertEqual({}, self.wanted_again(None, 'mine'))
        self.assertEqual({'status': 'disabled', 'disabled_reason': 'new'},
                         self.wanted_again('new', 'mine'))

    def test_one_that_was_told_to_end(self):
        # Its next start would enable it.
        self.assertEqual(
            {'status': 'disabled', 'disabled_reason': drain.REASON},
            self.wanted(disabled=True, stop_marker=STOP_MARKER))
