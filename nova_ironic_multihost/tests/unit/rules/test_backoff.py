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
