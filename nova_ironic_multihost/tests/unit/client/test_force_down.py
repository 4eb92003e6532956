# SPDX-License-Identifier: Apache-2.0

import functools

import fixtures
from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import fencing
from nova_ironic_multihost.client import services
from nova_ironic_multihost.tests import clouds

FENCED = {'forced_down': True, 'status': 'disabled',
          'disabled_reason': f'{fencing.REASON}: fan'}


class DeclareTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.apis = self.useFixture(clouds.FakeCloud())
        self.cloud = self.apis.survey()

    def declare(self, host='east', **options):
        service, changed = fencing.declare(
            self.cloud, host, why='fan', **options)
        self.assertEqual('east', service.host)
        return changed

    def test_one_request(self):
        self.apis.services[0]['state'] = 'down'
        self.assertTrue(self.declare('East'))
        self.assertEqual([FENCED], self.apis.changes)

    def test_twice(self):
        self.declare(sure=True)
        self.assertFalse(self.declare())
        self.assertFalse(self.declare(sure=True))
        self.assertEqual([FENCED], self.apis.changes)

    def test_too_early(self):
        told = self.assertRaises(fencing.TooEarly, self.declare)
        self.assertIn('east is up', str(told))
        self.assertEqual([], self.apis.changes)

    def looking(self, *changes):
        """Have nova see these changes of east, one after each look."""
        self.now, ahead = 0, list(changes)

        def sleep(seconds):
            if ahead:
                self.apis.services[0].update(ahead.pop(0))
            self.now += seconds if ahead else 60

        self.useFixture(fixtures.MockPatchObject(
            services, 'looks', functools.partial(
                services.looks, clock=lambda: self.now, sleep=sleep)))

    def test_one_that_dies_meanwhile(self):
        # Its last heartbeat was under way.
        self.looking({'updated_at': '2026-01-01T00:00:20.000000'}, {},
                     {'state': 'down'})
        self.assertTrue(self.declare(patience=60))
        self.assertEqual([FENCED], self.apis.changes)

    def test_one_that_has_come_back_is_not_waited_for(self):
        self.looking(
            {'updated_at': '2026-01-01T00:00:20.000000'},
            {'updated_at': '2026-01-01T00:00:30.000000'}, {'state': 'down'})
        told = self.assertRaises(
            cloud_state.CloudError, self.declare, patience=60)
        self.assertIn('it is ALIVE', str(told))
        self.assertEqual([], self.apis.changes)

    def test_an_outage_of_all(self):
        for service in self.apis.services:
            service['state'] = 'down'
        told = self.assertRaises(fencing.TooEarly, self.declare)
        self.assertIn('No compute service is up', str(told))

    def test_nova_does_not_answer(self):
        self.apis.http.put(clouds.CHANGE, status_code=503)
        self.assertRaises(cloud_state.Unanswered, self.declare, sure=True)
        self.apis.http.get(f'{clouds.NOVA}/os-services', status_code=504)
        self.assertRaises(cloud_state.Unanswered, self.declare, sure=True)
