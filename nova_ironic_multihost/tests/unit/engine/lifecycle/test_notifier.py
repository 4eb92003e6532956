# SPDX-License-Identifier: Apache-2.0

"""Sends notifications in the background, without waiting."""

import threading
from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.lifecycle import notifier
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules import notifications
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers


class HeraldTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.sent = []
        self.notifier = self.herald_of(lambda kind, payload: self.sent.append(
            (kind, payload['ironic_multihost_object.data'])))

    def herald_of(self, notify, start=lambda target, *args: target(*args)):
        return notifier.Notifier(mock.Mock(notify=notify), start)

    def follow(self, reasons=(), missing=0, braked=False, **state):
        view = peers.view(
            [peers.ComputeService('Me', True, **state)],
            peers.Partition(), 'Me')
        self.notifier.follow('Me', audit_state.Audit(
            view, None, {f'n{i}': reason for i, reason in enumerate(reasons)},
            {}, {}), mirror.Absences(
                {f'gone{i}': 0 for i in range(missing)}, braked=braked))
        sent, self.sent = self.sent, []
        return sent

    def test_what_is_as_ever_is_not_told(self):
        self.assertEqual([], self.follow([Reason.KEPT]))
        self.assertEqual([], self.follow([Reason.KEPT], missing=1))

    def test_brake_is_told_when_it_changes(self):
        self.assertEqual([('ironic_multihost.brake', {
            'host': 'Me', 'engaged': True, 'missing': 7})],
            self.follow(missing=7, braked=True))
        self.assertEqual([], self.follow(missing=8, braked=True))
        self.assertEqual([('ironic_multihost.brake', {
            'host': 'Me', 'engaged': False, 'missing': 0})], self.follow())
        self.assertEqual([], self.follow())

    def test_drain_is_told_when_it_changes(self):
        def told(state, free, served):
            return [('ironic_multihost.drain', {
                'host': 'Me', 'state': state, 'free': free,
                'served': served})]

        mine = [Reason.INSTANCE_HERE, Reason.TAKEN_OVER]
        free = [Reason.KEPT, Reason.CREATED, Reason.ADOPTED, Reason.PULLED]
        others = [Reason.INSTANCE_ELSEWHERE, Reason.OTHER_PREFERRED]
        self.assertEqual([], self.follow([*mine, *free, *others]))
        self.assertEqual(told('draining', 4, 2), self.follow(
            [*mine, *free, *others], disabled=True))
        self.assertEqual([], self.follow(
            [*mine, *free[:1], *others], disabled=True))
        self.assertEqual(told('drained', 0, 2), self.follow(
            [*mine, *others], disabled=True))
        self.assertEqual([], self.follow([*mine, *others], disabled=True))
        # A server was deleted.
        self.assertEqual(told('draining', 1, 1), self.follow(
            [*mine[:1], *free[:1]], disabled=True))
        self.assertEqual(told('in_service', 1, 1), self.follow(
            [*mine[:1], *free[:1]]))
        self.assertEqual([], self.follow([*mine[:1], *free[:1]]))

    def test_who_is_about_to_end_is_not_drained(self):
        self.assertEqual([], self.follow(
            [Reason.KEPT], disabled=True, stop_marker='bye'))

    def test_bus_that_is_down_hurts_nobody(self):
        def refuse(kind, payload):
            raise OSError('no bus')

        one = self.herald_of(refuse)
        with self.assertLogs(notifier.__name__, 'WARNING') as logs:
            one.tell(notifications.brake('me', True, 7))
        self.assertIn('no bus', logs.output[0])
        self.assertIn('ironic_multihost.brake', logs.output[0])

    def test_threads_that_are_used_up_hurt_nobody(self):
        def refuse(target, *args):
            raise RuntimeError("can't start new thread")

        one = self.herald_of(self.fail, refuse)
        with self.assertLogs(notifier.__name__, 'WARNING') as logs:
            one.tell(notifications.brake('me', True, 7))
        self.assertIn('used up', logs.output[0])

    def test_nobody_waits_for_the_bus(self):
        answers, sent = threading.Event(), threading.Event()
        self.addCleanup(answers.set)

        def notify(kind, payload):
            answers.wait(60)
            sent.set()

        self.herald_of(notify, notifier.start_thread).tell(
            notifications.brake('me', True, 7))
        self.assertFalse(sent.is_set())
        answers.set()
        self.assertTrue(sent.wait(60))
