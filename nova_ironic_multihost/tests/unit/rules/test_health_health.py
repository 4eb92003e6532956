# SPDX-License-Identifier: Apache-2.0

"""Whether a compute service still does anything useful."""

import dataclasses

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import HealthInputs

#: nova's defaults.
BOUNDS = health.bounds(60, 10, 60)

NOW = 100000.0

times = strategies.none() | strategies.integers(0, int(NOW))
signs = strategies.builds(
    HealthInputs, started=times, ending=strategies.booleans(),
    listening=strategies.booleans(), audit=times, peer_poll=times,
    peer_poll_ended=times, services=times, asking=times)
bounds = strategies.builds(
    health.bounds, strategies.none() | strategies.integers(1, 86400),
    strategies.integers(1, 10), strategies.integers(1, 600))


def ago(seconds):
    return NOW - seconds


class HealthTestCase(base.BaseTestCase):

    well = HealthInputs(started=ago(50000), audit=ago(5), peer_poll=ago(1),
                        peer_poll_ended=ago(1), services=ago(2))

    def judge(self, limits=BOUNDS, **changes):
        return health.judge(
            dataclasses.replace(self.well, **changes), limits, NOW)

    def assertIll(self, why, **changes):
        verdict = self.judge(**changes)
        self.assertFalse(verdict.well, verdict)
        self.assertIn(why, verdict.why)

    def assertWell(self, why, **changes):
        verdict = self.judge(**changes)
        self.assertTrue(verdict.well, verdict)
        self.assertIn(why, verdict.why)

    def test_well(self):
        self.assertWell('is well')

    def test_audit_hangs(self):
        self.assertWell('is well', audit=ago(BOUNDS.audit - 1))
        self.assertIll('no audit got any further for 781 s',
                       audit=ago(BOUNDS.audit + 1))

    def test_look_hangs(self):
        self.assertWell('is well', peer_poll=ago(BOUNDS.peer_poll - 1),
                        peer_poll_ended=ago(BOUNDS.peer_poll),
                        services=ago(BOUNDS.peer_poll - 1))
        self.assertIll('no peer poll got any further',
                       peer_poll=ago(BOUNDS.peer_poll + 1),
                       peer_poll_ended=ago(BOUNDS.peer_poll + 2),
                       services=ago(BOUNDS.peer_poll + 1.5))

    def test_both_hang(self):
        self.assertIll('and no audit', peer_poll=ago(5000),
                       peer_poll_ended=ago(5001),
                       services=ago(5000.5), audit=ago(5000))

    def test_look_that_takes_many_nodes_goes_on(self):
        self.assertWell('is well', peer_poll=ago(1), peer_poll_ended=ago(5000),
                        services=ago(4999))

    def test_conductor_is_silent(self):
        self.assertWell('is well', services=ago(BOUNDS.conductor - 1))
        self.assertIll('nova-conductor has not answered for 301 s',
                       services=ago(BOUNDS.conductor + 1))
        # Since the start.
        self.assertIll('nova-conductor', services=None)

    def test_messages_that_nobody_reads(self):
        self.assertIll('Nobody reads the messages', listening=False)

    def test_audits_that_nova_does_not_make(self):
        off = health.bounds(None, 10, 60)
        self.assertWell('is well', limits=off, audit=None)
        self.assertWell('is well', limits=off, audit=ago(50000))

    def test_bounds_follow_the_intervals(self):
        self.assertEqual(health.HealthLimits(780, 330, 300), BOUNDS)
        self.assertEqual(health.HealthLimits(1500, 603, 600),
                         health.bounds(100, 1, 120))
        self.assertEqual(health.HealthLimits(1600, 603, 600),
                         health.bounds(100, 1, 120, 100))
        self.assertIsNone(health.bounds(None, 1, 120, 100).audit)

    def test_what_was_before_the_start_was_over_does_not_count(self):
        self.assertWell('is well', started=ago(100), audit=ago(9000),
                        peer_poll=None, peer_poll_ended=None, services=None)

    @hypothesis.given(signs, bounds)
    def test_start_is_never_ill(self, some, limits):
        self.assertTrue(health.judge(
            dataclasses.replace(some, started=None), limits, NOW).well)

    @hypothesis.given(signs, bounds)
    def test_end_is_never_ill(self, some, limits):
        self.assertTrue(health.judge(
            dataclasses.replace(some, ending=True), limits, NOW).well)

    @hypothesis.given(signs, bounds, strategies.integers(
        health.UNANSWERED + 1, int(NOW)))
    def test_ironic_that_is_away_makes_nobody_ill(self, some, limits, asking):
        """As long as the conductor answers and messages are read."""
        some = dataclasses.replace(
            some, listening=True, services=NOW, asking=ago(asking))
        self.assertTrue(health.judge(some, limits, NOW).well)

    @hypothesis.given(signs, bounds, strategies.integers(
        0, health.UNANSWERED))
    def test_requests_that_are_answered_explain_nothing(
            self, some, limits, asking):
        asks = dataclasses.replace(some, asking=ago(asking))
        self.assertEqual(
            health.judge(dataclasses.replace(some, asking=None), limits, NOW),
            health.judge(asks, limits, NOW))

    @hypothesis.given(signs, bounds)
    def test_who_got_on_within_the_bounds_is_well(self, some, limits):
        some = dataclasses.replace(
            some, listening=True, audit=ago(limits.audit or 0),
            peer_poll=ago(limits.peer_poll), services=ago(limits.conductor))
        self.assertTrue(health.judge(some, limits, NOW).well)

    @hypothesis.given(signs, bounds, strategies.sampled_from(
        ['audit', 'peer_poll', 'services']))
    def test_younger_signs_make_nobody_ill(self, some, limits, name):
        """What gets further is not worse off for it."""
        if health.judge(some, limits, NOW).well:
            self.assertTrue(health.judge(dataclasses.replace(
                some, **{name: NOW}), limits, NOW).well)

    @hypothesis.given(signs, bounds)
    def test_one_line_that_says_why(self, some, limits):
        verdict = health.judge(some, limits, NOW)
        self.assertTrue(verdict.why)
        self.assertNotIn('\n', verdict.why)
