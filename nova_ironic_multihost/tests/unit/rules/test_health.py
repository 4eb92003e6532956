# SPDX-License-Identifier: Apache-2.0

"""The lease of a compute service, against all that may happen to it."""

import dataclasses

import hypothesis
from hypothesis import strategies
from oslotest import base

from nova_ironic_multihost.rules import health
from nova_ironic_multihost.rules.health import ServiceState
from nova_ironic_multihost.rules import peers

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

    def test_it_comes_back_when_the_service_is_up_again(self):
        self.assertEqual(30, self.renewed(UP, FENCED, UP).renewed)

    def test_each_answer_renews_it_while_the_service_starts(self):
        for service in DOWN, FENCED, None:
            self.assertEqual(20, self.renewed(service, service).renewed)

    def test_the_start_is_over_when_it_was_up_once(self):
        self.assertEqual(20, self.renewed(None, UP, DOWN).renewed)

    def test_a_start_without_an_answer(self):
        self.assertTrue(health.Lease(5).valid(TERMS, 125))
        self.assertFalse(health.Lease(5).valid(TERMS, 126))

    def test_what_counts_is_when_it_was_asked(self):
        # The answer to it came 60 s later.
        one = health.Lease(0).after(10, UP)
        self.assertFalse(one.valid(TERMS, 131))

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
            kill + terms.margin, max(asked) + terms.over_after(watchdog))

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
