# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import views


class NamedTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.services = (cloud_state.Service('West'),
                         cloud_state.Service('east'))

    def test_in_any_spelling(self):
        self.assertIs(self.services[0],
                      services.named(self.services, 'wEST'))

    def test_of_two_spellings_the_one_that_is_at_work(self):
        old = cloud_state.Service('East', up=False, seen=1)
        for new in (cloud_state.Service('east', seen=None),
                    cloud_state.Service('east', up=False, seen=2)):
            for pair in (old, new), (new, old):
                self.assertIs(new, services.named(pair, 'east'))

    def test_no_such_host(self):
        told = str(self.assertRaises(
            cloud_state.CloudError, services.named, self.services, 'nix'))
        self.assertIn('on nix', told)
        self.assertIn('West, east.', told)
        many = tuple(cloud_state.Service(f'h-{i:02}') for i in range(22))
        self.assertIn('h-19 and 2 more.', str(self.assertRaises(
            cloud_state.CloudError, services.named, many, 'nix')))

    def test_no_host_at_all(self):
        self.assertIn('none', str(self.assertRaises(
            cloud_state.CloudError, services.named, (), 'nix')))


class StateTestCase(base.BaseTestCase):

    def test_states(self):
        for words, state in (
                ('enabled and up', {}),
                ('enabled and down', {'up': False}),
                ('disabled and up', {'disabled': True}),
                ('disabled and fenced',
                 {'up': False, 'forced_down': True, 'disabled': True}),
                ('enabled and fenced',
                 {'up': False, 'forced_down': True})):
            self.assertEqual(
                words, cloud_state.Service('h', **state).words)


class HeartbeatsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.now = views.NOW
        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=self.sleep)))
        self.reads = 0

    def sleep(self, seconds):
        self.now += seconds

    def find(self, read, age=1.0, **changes):
        """Whether compute-2 is alive; forced down and written just now.

        :param read: (number of the read, service) -> what nova says
        """
        seen = views.changed(
            views.consistent(), 'services', 1, up=False, forced_down=True,
            seen=views.NOW - age, id='id-2', **changes)

        def computes():
            self.reads += 1
            return (seen.services[0], read(self.reads, seen.services[1]))

        found = services.with_heartbeats(mock.Mock(computes=computes), seen)
        self.assertFalse(found.services[0].alive)
        return found.services[1].alive

    @staticmethod
    def silent(number, service):
        return service

    def test_one_that_beats(self):
        self.assertTrue(self.find(lambda number, service: dataclasses.replace(
            service, seen=views.NOW + 9 * (number > 4))))
        self.assertLess(self.now, views.NOW + services.HEARTBEAT)

    def test_one_that_was_fenced_just_now(self):
        self.assertFalse(self.find(self.silent))
        self.assertEqual(views.NOW + services.HEARTBEAT - 1, self.now)

    def test_one_that_is_silent_is_not_read_again(self):
        self.assertFalse(self.find(self.silent, services.HEARTBEAT))
        self.assertEqual(0, self.reads)

    def test_a_change_by_an_operator_is_no_heartbeat(self):
        for change in ({'disabled': True}, {'reason': 'new fan'},
                       {'forced_down': False}):
            self.assertFalse(self.find(
                lambda number, service: dataclasses.replace(
                    service, seen=views.NOW, **change)))

    def test_nova_that_no_longer_answers(self):
        self.assertFalse(self.find(mock.Mock(
            side_effect=cloud_state.Unanswered('Look into its log.'))))
