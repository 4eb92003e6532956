# SPDX-License-Identifier: Apache-2.0

import math

from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests.unit.client.upgrade import base


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, *timeouts, when='down', after=300, **more):
        return nova_compute.judge_watchdog(
            base.of_host('a', policy=takeover.Policy(when, after), **more),
            [
                nova_compute.Unit('nova-compute.service', *unit)
                for unit in timeouts
            ],
        )

    def test_dead_before_others_take_over(self):
        self.assert_silent(self.judge((30, 30)))
        self.assert_silent(self.judge((30, 30), after=270))

    def test_dead_too_late(self):
        self.assert_complains(
            self.judge((30, 30), after=269), 'takeover_after is 269 s',
            'nova-compute.service may take 270 s', 'WatchdogSec=30',
            fatal=True)

    def test_without_a_watchdog(self):
        self.assert_complains(
            self.judge((90,)), 'may only be cut off', 'forced_down')
        self.assert_complains(self.judge(), 'no unit of systemd')
        self.assert_complains(nova_compute.judge_watchdog(base.of_host(
            'a', policy=takeover.Policy('down', 300)), None), 'no unit')

    def test_longer_to_end_than_the_watchdog_waits(self):
        for seconds in 31, math.inf:
            self.assert_complains(
                self.judge((seconds, 30)), 'TimeoutStopSec', '30 s')

    def test_somebody_has_to_say_that_it_is_dead(self):
        for when in 'forced_down', 'never':
            self.assert_silent(self.judge((90,), when=when, after=1))

    def test_a_controller_takes_nothing_over(self):
        self.assert_silent(self.judge(compute_driver=None))
