# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.rules import backoff


class LongerTestCase(base.BaseTestCase):

    def test_each_is_twice_as_long_up_to_the_longest(self):
        last, seconds = None, []
        for _ in range(7):
            last = backoff.Backoff(0, backoff.longer(last, False))
            seconds.append(last.seconds)
        self.assertEqual([10, 20, 40, 80, 160, 300, 300], seconds)

    def test_none_grows_while_nobody_answers(self):
        for last in (
            None,
            backoff.Backoff(0, 10, True),
            backoff.Backoff(0, 300),
        ):
            self.assertEqual(10, backoff.longer(last, True))
        self.assertEqual(
            10, backoff.longer(backoff.Backoff(0, 10, True), False))


class DueTestCase(base.BaseTestCase):

    def test_what_has_no_pause_or_a_pause_that_is_over(self):
        paused = {'i1': backoff.Backoff(10, 10), 'i2': backoff.Backoff(20, 10),
                  'i4': backoff.Backoff(0, 10)}
        self.assertEqual(
            {'i1', 'i3'}, backoff.due(paused, {'i1', 'i2', 'i3'}, 10, 1))

    def test_a_few_tell_whether_there_are_answers_again(self):
        paused = {f'i{n}': backoff.Backoff(10 - n, 10, True) for n in range(5)}
        paused['other'] = backoff.Backoff(0, 10)
        self.assertEqual({'other', 'i4', 'i3'},
                         backoff.due(paused, paused.keys(), 60, 2))

    def test_all_are_due_when_there_are(self):
        paused = {'i1': backoff.Backoff(100, 10, True),
                  'i2': backoff.Backoff(100, 10)}
        self.assertEqual({'i1'}, backoff.due(
            backoff.answered(paused, 60), paused.keys(), 60, 0))


class KeptTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.first, self.second = (
            backoff.Backoff(10, 10),
            backoff.Backoff(20, 10),
        )

    def test_what_is_done_has_none(self):
        paused = {'i1': self.first, 'i2': self.second}
        self.assertEqual({'i2': self.second},
                         backoff.kept(paused, paused, {'i2'}))

    def test_what_began_since_the_look_lasts(self):
        for seen in {}, {'i1': self.first}:
            self.assertEqual({'i1': self.second}, backoff.kept(
                {'i1': self.second}, seen, set()))
