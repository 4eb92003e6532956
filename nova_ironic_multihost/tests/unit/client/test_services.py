# SPDX-License-Identifier: Apache-2.0

import dataclasses
import functools
from unittest import mock

import fixtures
from oslotest import base
import requests

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds
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
                    cloud_state.Service('east', up=False, seen=2),
                    cloud_state.Service('east', up=False, seen=1)):
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


class ChangeTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.apis = self.useFixture(clouds.FakeCloud())
        self.cloud = self.apis.survey()
        [self.east, _] = self.cloud.computes('east')
        self.url = clouds.CHANGE
        self.fence = {'forced_down': True, 'status': 'disabled',
                      'disabled_reason': 'mine'}

    def change(self, body=None):
        services.change(self.cloud, self.east,
                        self.fence if body is None else body)

    def refused(self):
        return str(self.assertRaises(cloud_state.CloudError, self.change))

    def test_all_in_one_request(self):
        self.change()
        self.assertEqual([self.fence], self.apis.changes)

    def test_another_has_done_it_meanwhile(self):
        # nova refuses a request that changes nothing.
        self.apis.services[0].update(self.fence)
        self.change()
        self.assertEqual([], self.apis.changes)

    def test_nothing_to_be_changed(self):
        self.change({})
        self.assertEqual([], self.apis.changes)

    def test_nova_refuses(self):
        self.apis.http.put(self.url, status_code=400, json={
            'badRequest': {'message': 'Not now.'}})
        told = self.refused()
        self.assertIn('Not now. east is enabled and up.', told)

    def change_and_answer(self, wanted, **answer):
        """Let nova change a service, and somebody answer otherwise."""
        def late(request, context):
            [found] = [s for s in self.apis.services if s['host'] == 'east']
            found.update(wanted)
            context.status_code = 504
            return {}

        self.apis.http.put(self.url, json=late)

    def test_a_proxy_that_does_not_wait_for_nova(self):
        self.change_and_answer(self.fence)
        self.change()

    def test_half_of_it(self):
        # Not by nova: by somebody else at the same moment.
        for half in ({'forced_down': True},
                     {'status': 'disabled', 'disabled_reason': 'mine'},
                     {'forced_down': True, 'status': 'disabled'}):
            self.apis.services[0] = clouds.service('east')
            self.change_and_answer(half)
            told = self.refused()
            self.assertIn('HTTP 504', told)
            self.assertIn('east is ', told)
        self.assertIn('east is disabled and fenced', told)

    def test_enabling_is_told_from_disabling(self):
        self.change_and_answer({})
        self.change({'status': 'enabled'})
        self.assertIn('504', str(self.assertRaises(
            cloud_state.CloudError, self.change,
            {'status': 'disabled', 'disabled_reason': 'fan'})))

    def test_nova_is_gone(self):
        gone = requests.exceptions.ConnectionError('refused')
        self.apis.http.put(self.url, exc=gone)
        self.apis.http.get(f'{clouds.NOVA}/os-services', exc=gone)
        told = self.refused()
        self.assertIn('Whether east is changed is not known', told)
        self.assertIn('give the same command again', told)


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
