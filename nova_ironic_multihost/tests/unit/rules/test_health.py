# SPDX-License-Identifier: Apache-2.0

"""The lease of a compute service, against all that may happen to it."""

import dataclasses

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules.counters import Pending
from nova_ironic_multihost.rules.counters import RunStats
from nova_ironic_multihost.rules.counters import Work
from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import ServiceState
from nova_ironic_multihost.rules import peers
from nova_ironic_multihost.tests.unit.telemetry import pictures

#: nova's defaults.
TERMS = health.LeaseTiming(answer=60, down_time=60)

UP = peers.ComputeService('me', up=True)
DOWN = peers.ComputeService('me', up=False)
FENCED = peers.ComputeService('me', up=False, forced_down=True)

seconds = strategies.integers(1, 600)
some_terms = strategies.builds(health.LeaseTiming, seconds, seconds)
services = strategies.sampled_from([UP, DOWN, FENCED, None])


class LeaseTestCase(base.BaseTestCase):

    def renewed(self, *answers, at=0):
        """Return the lease after answers to questions 10 s apart."""
        one = health.Lease(at)
        for number, service in enumerate(answers, 1):
            one = one.after(at + 10 * number, service)
        return one

    def test_an_answer_that_it_is_up_renews_it(self):
        one = self.renewed(UP, UP)
        self.assertTrue(one.valid(TERMS, 20 + 120))
        self.assertFalse(one.valid(TERMS, 20 + 121))

    def test_other_answers_do_not_once_it_was_up(self):
        for service in DOWN, FENCED, None:
            self.assertEqual(10, self.renewed(UP, service, service).renewed)

    def test_each_answer_renews_it_while_the_service_starts(self):
        for service in DOWN, FENCED, None:
            self.assertEqual(20, self.renewed(service, service).renewed)

    def test_one_lost_question_and_one_lost_heartbeat_do_no_harm(self):
        # Both are awaited for 60 s, the next heartbeat comes then, and it is
        # asked for 10 s later at the most.
        self.assertTrue(self.renewed(UP).valid(TERMS, 10 + 60 + 10 + 10))

    def test_with_the_defaults_of_nova_a_takeover_after_300_s_is_late(self):
        self.assertEqual(270, TERMS.over_after(30))

    def test_verdict(self):
        one = self.renewed(UP)
        self.assertEqual(
            (True, 'The lease is valid for 20 s more.'),
            dataclasses.astuple(one.verdict(TERMS, 110)))
        for answers, why in (
                ((UP,), 'does not answer'), ((UP, DOWN), 'heartbeat'),
                ((UP, FENCED), 'forced down'), ((UP, None), 'no such')):
            verdict = self.renewed(*answers).verdict(TERMS, 131)
            self.assertFalse(verdict.well)
            self.assertIn('121 s', verdict.why)
            self.assertIn(why, verdict.why)

    def test_what_was_heard_long_ago_explains_nothing(self):
        self.assertIn('does not answer', self.renewed(
            UP, DOWN).verdict(TERMS, 141).why)

    def test_word(self):
        self.assertEqual(
            [
                ServiceState.UP,
                ServiceState.DOWN,
                ServiceState.FENCED,
                ServiceState.GONE,
            ],
            [health.service_state(one) for one in (UP, DOWN, FENCED, None)],
        )


class ProofTestCase(base.BaseTestCase):
    """The process is dead before anybody may take over its instances."""

    @hypothesis.given(
        some_terms, seconds, strategies.lists(strategies.tuples(
            strategies.integers(0, 900), strategies.integers(0, 900),
            services), min_size=1),
        strategies.lists(strategies.tuples(
            strategies.integers(0, 600), strategies.integers(0, 600)),
            min_size=1),
        strategies.integers(0, 3000))
    def test_dead_in_time(self, terms, watchdog, answers, turns, told):
        """A process asks and gives signs of life, and is frozen at will.

        Others see it up at the moment at which its own service was read as
        up. So they count from then at the earliest.

        :param answers: (seconds from the answer before to the question, from
            that to its answer, the answer).
        :param turns: (seconds from the sign of life before to the look at the
            lease, from that to the sign of life).
        :param told: when it is told to end.
        """
        one, asked, known = health.Lease(0), [0], 0
        sign, kill = 0, watchdog
        for pause, late in turns:
            look = sign + pause
            while answers and known + sum(answers[0][:2]) <= look:
                wait, delay, service = answers.pop(0)
                asked_at = known + wait
                known = asked_at + delay
                if service is UP or not one.held:
                    asked.append(asked_at)
                one = one.after(asked_at, service)
            if told <= kill:
                # It has that long to end, and more with each sign of life.
                kill = max(kill, told + watchdog)
            if not one.valid(terms, look) or look + late > kill:
                break
            sign = look + late
            kill = max(kill, sign + watchdog)
        if sign <= told <= kill:
            kill = max(kill, told + watchdog)
        self.assertLessEqual(
            kill + terms.down_time, max(asked) + terms.over_after(watchdog))

    @hypothesis.given(some_terms, strategies.lists(
        strategies.tuples(seconds, services), min_size=1), seconds)
    def test_valid_only_after_a_question_answered_well(
            self, terms, answers, later):
        one, now = health.Lease(0), 0
        good = 0
        for pause, service in answers:
            now += pause
            starting = not one.held
            one = one.after(now, service)
            if service is UP or starting:
                good = now
        self.assertEqual(
            now + later - good <= terms.length,
            one.valid(terms, now + later))

    @hypothesis.given(some_terms, seconds)
    def test_takeover_waits_longer_than_the_lease_and_the_watchdog(
            self, terms, watchdog):
        self.assertGreater(terms.over_after(watchdog),
                           terms.length + 3 * watchdog)
        self.assertGreater(terms.over_after(watchdog), terms.down_time)


#: nova's defaults.
BOUNDS = health.bounds(60, 10, 60)

NOW = 100000.0

times = strategies.none() | strategies.integers(0, int(NOW))
signs = strategies.fixed_dictionaries({
    'started': times, 'ending': strategies.booleans(),
    'listening': strategies.booleans(), 'audit': times, 'peer_poll': times,
    'services': times, 'failed': strategies.booleans(), 'asking': times})
bounds = strategies.builds(
    health.bounds, strategies.none() | strategies.integers(1, 86400),
    strategies.integers(1, 10), strategies.integers(1, 600))


def ago(seconds):
    return NOW - seconds


class HealthTestCase(base.BaseTestCase):

    #: ``services``: the last answer of the conductor; ``failed``: it has been
    #: asked once more, without an answer; ``asked``: it has been since then.
    well = {'started': ago(50000), 'audit': ago(5), 'peer_poll': ago(1),
            'services': ago(2), 'failed': False}

    def judge(self, limits=BOUNDS, some=well, **changes):
        def snapshot(audit, peer_poll, services, failed, asked=None,
                     **fields):
            ended = ago(0.5) if failed else services
            return pictures.of({
                Work.AUDIT: RunStats(audit),
                Work.PEER_POLL: RunStats(peer_poll),
                Work.SERVICES: RunStats(asked or ended, ended, services)},
                **fields)

        return health.judge(dataclasses.replace(
            snapshot(**some | changes), at=NOW), limits)

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
                        services=ago(BOUNDS.peer_poll - 1))
        self.assertIll('no peer poll got any further',
                       peer_poll=ago(BOUNDS.peer_poll + 1),
                       services=ago(BOUNDS.peer_poll + 1))

    def test_both_hang(self):
        self.assertIll('and no audit', peer_poll=ago(5000),
                       services=ago(5000), audit=ago(5000))

    def test_look_that_takes_many_nodes_goes_on(self):
        """And when it has ended, until the next one has asked."""
        self.assertWell('is well', peer_poll=ago(1), services=ago(4999))

    def test_conductor_is_silent(self):
        self.assertWell('is well', services=ago(BOUNDS.conductor - 1),
                        failed=True)
        self.assertIll('nova-conductor has not answered for 301 s',
                       services=ago(BOUNDS.conductor + 1), failed=True)
        # Since the start.
        self.assertIll('nova-conductor', services=None, failed=True)

    def test_question_to_the_conductor_has_no_end(self):
        """So it is without RabbitMQ; it is not for want of Ironic then."""
        for answer in None, ago(BOUNDS.conductor + 2):
            self.assertWell('is well', services=answer,
                            asked=ago(BOUNDS.conductor - 1))
            self.assertIll('nova-conductor', services=answer,
                           asked=ago(BOUNDS.conductor + 1), asking=ago(5000))

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
                        peer_poll=None, services=None)

    @hypothesis.given(signs, bounds)
    def test_start_is_never_ill(self, some, limits):
        self.assertTrue(self.judge(limits, some, started=None).well)

    @hypothesis.given(signs, bounds)
    def test_end_is_never_ill(self, some, limits):
        self.assertTrue(self.judge(limits, some, ending=True).well)

    @hypothesis.given(signs, bounds, strategies.integers(
        health.UNANSWERED + 1, int(NOW)))
    def test_ironic_that_is_away_makes_nobody_ill(self, some, limits, asking):
        """As long as the conductor answers and messages are read."""
        self.assertTrue(self.judge(
            limits, some, listening=True, services=NOW, asking=ago(asking)
        ).well)

    @hypothesis.given(signs, bounds, strategies.integers(
        0, health.UNANSWERED))
    def test_requests_that_are_answered_explain_nothing(
            self, some, limits, asking):
        self.assertEqual(self.judge(limits, some, asking=None),
                         self.judge(limits, some, asking=ago(asking)))

    @hypothesis.given(signs, bounds)
    def test_who_got_on_within_the_bounds_is_well(self, some, limits):
        self.assertTrue(self.judge(
            limits, some, listening=True, audit=ago(limits.audit or 0),
            peer_poll=ago(limits.peer_poll), services=ago(limits.conductor)
        ).well)

    @hypothesis.given(signs, bounds, strategies.sampled_from(
        ['audit', 'peer_poll', 'services']))
    def test_younger_signs_make_nobody_ill(self, some, limits, name):
        """What gets further is not worse off for it."""
        if self.judge(limits, some).well:
            self.assertTrue(self.judge(limits, some, **{name: NOW}).well)

    @hypothesis.given(signs, bounds)
    def test_one_line_that_says_why(self, some, limits):
        verdict = self.judge(limits, some)
        self.assertTrue(verdict.why)
        self.assertNotIn('\n', verdict.why)


class PictureTestCase(base.BaseTestCase):

    def test_how_long_take_overs_have_been_pending(self):
        self.assertEqual(0, pictures.of().pending_seconds)
        for since, seconds in (
                (90, 10),
                # Noted after the moment was taken.
                (101, 0)):
            self.assertEqual(seconds, pictures.of(
                pending={Pending.TURN: {'n1': since}}).pending_seconds)

    def test_what_is_pending_oldest_first(self):
        some = pictures.of(pending={
            Pending.REST: {'i3': 90, 'i1': 90, 'i2': 80}})
        self.assertEqual([('i2', 20), ('i1', 10), ('i3', 10)],
                         some.waiting(Pending.REST))
        self.assertEqual([], some.waiting(Pending.TURN))

    def test_age_counts_from_the_beginning_if_it_was_never_done(self):
        some = pictures.of({Work.LISTING: RunStats().over(90, 92, True)})
        self.assertEqual(60, some.age(Work.AUDIT))
        self.assertEqual(8, some.age(Work.LISTING))
