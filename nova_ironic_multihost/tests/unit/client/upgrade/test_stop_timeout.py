# SPDX-License-Identifier: Apache-2.0

import math

from nova_ironic_multihost.client.upgrade import nova_compute
from nova_ironic_multihost.tests.unit.client.upgrade import base

SHOWN = """\
Id=nova-compute.service
LoadState=loaded
TimeoutStopUSec=1min 30s

Id=openstack-nova-compute.service
LoadState=not-found
TimeoutStopUSec=infinity

Id=mine.service
LoadState=loaded
TimeoutStopUSec=infinity
"""


class UnitsTestCase(base.JudgeTestCase):

    def test_those_that_exist(self):
        self.assertEqual(
            [
                nova_compute.Unit('nova-compute.service', 90),
                nova_compute.Unit('mine.service', math.inf),
            ],
            nova_compute.loaded(SHOWN),
        )

    def test_times(self):
        for text, seconds in (('3min 10s', 190), ('500ms', 0.5),
                              ('1h 1s', 3601), ('2d', 172800)):
            [unit] = nova_compute.loaded(SHOWN.partition('\n\n')[0].replace(
                '1min 30s', text))
            self.assertEqual(seconds, unit.seconds)

    def test_watchdog(self):
        shown = SHOWN.partition('\n\n')[0]
        for text, seconds in (('30s', 30), ('0', 0), ('infinity', 0)):
            self.assertEqual(
                [nova_compute.Unit('nova-compute.service', 90, seconds)],
                nova_compute.loaded(f'{shown}\nWatchdogUSec={text}\n'))

    def test_what_is_not_understood_is_not_judged(self):
        self.assertEqual([], nova_compute.loaded(''))
        self.assertEqual(
            [],
            nova_compute.loaded(
                SHOWN.partition('\n\n')[0].replace('1min 30s', '3 fortnights')
            ),
        )


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, limit, given, release=34, **more):
        return nova_compute.judge_stop(
            base.of_host('a', graceful_shutdown_timeout=limit, **more),
            release, None if given is None else
            [nova_compute.Unit('nova-compute.service', seconds)
             for seconds in given])

    def test_more_than_it_takes(self):
        self.assert_silent(self.judge(60, [70]))
        self.assert_silent(self.judge(180, [math.inf]))
        self.assert_silent(self.judge(0, [math.inf]))

    def test_less_than_it_takes(self):
        self.assert_complains(
            self.judge(180, [90]), 'nova-compute.service is killed 90 s',
            'may take 180 s', 'TimeoutStopSec=190')
        self.assert_complains(self.judge(60, [60]), 'TimeoutStopSec=70')

    def test_with_a_watchdog_it_gets_more_time(self):
        self.assert_silent(nova_compute.judge_stop(
            base.of_host('a', graceful_shutdown_timeout=180), 34,
            [nova_compute.Unit('nova-compute.service', 30, 30)]))

    def test_a_service_that_may_take_for_ever(self):
        self.assert_complains(self.judge(0, [90]), 'may take for ever')

    def test_nobody_knows_what_runs_it(self):
        self.assert_complains(
            self.judge(60, None), 'There is no systemd here',
            'may take 60 s', 'docker_graceful_timeout')
        self.assert_complains(self.judge(60, []), 'no unit', '--unit')

    def test_the_shortest_times_suit_all(self):
        self.assert_silent(self.judge(25, None))
        self.assert_silent(self.judge(25, []))

    def test_nova_33_is_away_for_longer_than_it_is_waited_for(self):
        long = {'manager_shutdown_timeout': 160, 'service_down_time': 60}
        self.assert_complains(
            self.judge(180, [190], 33, **long), 'takes 160 s',
            'service_down_time, 60 s',
            '[DEFAULT]manager_shutdown_timeout to 40')
        for release in 32, 34, None:
            self.assert_silent(self.judge(180, [190], release, **long))
        self.assert_silent(self.judge(
            50, [90], 33, manager_shutdown_timeout=40))
        self.assert_silent(self.judge(60, [90], 31))

    def test_a_controller_has_no_compute_service(self):
        self.assert_silent(self.judge(180, None, compute_driver=None))
