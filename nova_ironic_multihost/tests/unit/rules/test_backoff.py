# SPDX-License-Identifier: Apache-2.0

from oslotest import base

from nova_ironic_multihost.rules import backoff


class DueTestCase(base.BaseTestCase):

    BACKOFFS = {
        'early': backoff.Backoff(1, 10, True),
        'late': backoff.Backoff(3, 10, True),
        'next': backoff.Backoff(2, 10, True),
        'failed': backoff.Backoff(3, 10),
        'waits': backoff.Backoff(5, 10)}

    def test_all_whose_time_has_come(self):
        self.assertEqual(
            {'early', 'late', 'next', 'failed'},
            backoff.due(self.BACKOFFS, 3, False, 1))

    def test_some_ask_while_nobody_answers(self):
        self.assertEqual({'early', 'next', 'failed'},
                         backoff.due(self.BACKOFFS, 3, True, 2))


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
