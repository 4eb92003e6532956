# SPDX-License-Identifier: Apache-2.0

import datetime
from unittest import mock

from nova import exception
from nova import objects

from nova_ironic_multihost.adapters import db
from nova_ironic_multihost.adapters import nova_facts
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.tests.unit.adapters import base

WORDS = liveness.stop_marker_text(
    datetime.datetime(2026, 5, 4))
NEXT = liveness.stop_marker_text(
    datetime.datetime(2026, 5, 5))


class RegistrationTestCase(base.DatabaseTestCase):

    def setUp(self):
        super().setUp()
        self.mine = nova_facts.ServiceRecord('a')

    def row(self):
        return objects.Service.get_by_compute_host(self.context, 'a')

    def state(self):
        row = self.row()
        return row.disabled, row.disabled_reason

    def operator(self, disabled, reason=None):
        """Disable or enable the service as nova's API does."""
        row = self.row()
        row.disabled = disabled
        row.disabled_reason = reason
        row.save()

    def test_said_and_taken_back(self):
        self.service('a')
        self.assertFalse(self.mine.take_back())
        self.assertTrue(self.mine.say(WORDS))
        self.assertEqual((False, WORDS), self.state())
        self.assertTrue(self.mine.close(WORDS))
        self.assertEqual((True, WORDS), self.state())
        # The process was killed, and its start as well.
        self.assertTrue(self.mine.say(NEXT))
        self.assertEqual((False, NEXT), self.state())
        self.assertFalse(self.mine.close(WORDS))
        self.assertTrue(self.mine.close(NEXT))
        self.assertEqual((True, NEXT), self.state())
        self.assertTrue(self.mine.take_back())
        self.assertEqual((False, None), self.state())
        self.assertFalse(self.mine.take_back())

    def test_said_and_open_for_builds(self):
        self.service('a')
        self.mine.say(WORDS)
        self.assertEqual((False, WORDS), self.state())
        self.assertTrue(self.mine.take_back())
        self.assertEqual((False, None), self.state())

    def test_what_an_operator_says_stands(self):
        self.service('a')
        for reason in (None, 'broken fan'):
            for before in ((), (self.mine.say,),
                           (self.mine.say, self.mine.close)):
                for act in before:
                    act(WORDS)
                self.operator(True, reason)
                for act in (self.mine.say, self.mine.close):
                    self.assertFalse(act(WORDS))
                self.assertFalse(self.mine.take_back())
                self.assertEqual((True, reason), self.state())
                self.operator(False)

    def test_who_is_enabled_meanwhile_stays_so(self):
        self.service('a')
        self.mine.say(WORDS)
        self.operator(False)
        self.assertFalse(self.mine.close(WORDS))
        self.assertFalse(self.mine.take_back())
        self.assertEqual((False, None), self.state())

    def test_who_is_forced_down_has_nothing_to_say(self):
        self.service('a', forced_down=True)
        self.assertFalse(self.mine.say(WORDS))
        self.assertEqual((False, None), self.state())

    def test_service_that_there_is_not(self):
        for act in (lambda: self.mine.say(WORDS),
                    lambda: self.mine.close(WORDS), self.mine.take_back):
            self.assertFalse(act())

    def test_service_that_is_deleted_meanwhile(self):
        self.service('a')
        with mock.patch.object(
                objects.Service, 'save',
                side_effect=exception.ServiceNotFound(service_id=1)):
            self.assertFalse(self.mine.say(WORDS))

    def test_others_hear_it(self):
        self.service('a')
        up = mock.Mock(**{'service_is_up.return_value': True})
        self.mine.say(WORDS)
        for _ in range(2):
            heard = db.compute_service(self.context, up, 'a')
            self.assertEqual(
                (False, WORDS), (heard.disabled, heard.stop_marker))
            self.mine.close(WORDS)
        self.operator(True)
        heard = db.compute_service(self.context, up, 'a')
        self.assertEqual((True, ''), (heard.disabled, heard.stop_marker))
