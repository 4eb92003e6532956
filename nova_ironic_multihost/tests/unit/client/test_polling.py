# SPDX-License-Identifier: Apache-2.0

import functools

import fixtures
from oslotest import base

from nova_ironic_multihost.client import services


class LooksTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 100.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def looks(self, seconds, lasting=0.0):
        def read():
            self.now += lasting
            return self.now

        return list(services.looks(
            read, seconds, lambda: self.now, self.sleep))

    def test_looks_once_without_time(self):
        self.assertEqual([(0.0, 100.0)], self.looks(0))
        self.assertEqual([], self.slept)

    def test_looks_until_the_time_is_over(self):
        self.assertEqual([0.0, 2.0, 4.0, 5.0],
                         [after for after, _ in self.looks(5)])

    def test_looks_so_often_at_least(self):
        # Each takes longer than there is time for.
        found = list(services.looks(
            lambda: self.sleep(65), 60, lambda: self.now, self.sleep, least=3))
        self.assertEqual([65.0, 132.0, 199.0], [after for after, _ in found])

    def test_rests_for_as_long_as_a_look_takes(self):
        self.assertEqual([30.0, 90.0, 130.0],
                         [after for after, _ in self.looks(100, 30)])
        self.assertEqual([30.0, 10.0], self.slept)

    def test_who_has_seen_enough_waits_no_more(self):
        for _ in services.looks(
                lambda: None, 60, lambda: self.now, self.sleep):
            break
        self.assertEqual([], self.slept)


class PatientlyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self.sleep)))
        self.told = []

    def sleep(self, seconds):
        self.now += seconds

    def act(self, seconds, *results):
        """Do what has these results: what is raised, or returned."""
        left = list(results)

        def act():
            result = left.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        return services.patiently(act, seconds, (ValueError,),
                                 lambda error: self.told.append(str(error)))

    def test_done_at_once(self):
        self.assertIsNone(self.act(60, None))
        self.assertEqual((0.0, []), (self.now, self.told))

    def test_done_later(self):
        self.assertEqual('it', self.act(
            60, ValueError('a'), ValueError('a'), ValueError('b'), 'it'))
        self.assertEqual(6.0, self.now)
        self.assertEqual(['a', 'b'], self.told)

    def test_without_patience(self):
        self.assertRaises(ValueError, self.act, 0, ValueError('a'))
        self.assertEqual((0.0, []), (self.now, self.told))

    def test_the_time_is_over(self):
        failures = [ValueError(str(number)) for number in range(3)]
        told = self.assertRaises(ValueError, self.act, 3, *failures)
        self.assertEqual('2', str(told))
        self.assertEqual(3.0, self.now)

    def test_what_does_not_pass(self):
        self.assertRaises(KeyError, self.act, 60, ValueError('a'), KeyError())
        self.assertEqual(2.0, self.now)
