# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.nodes import due_nodes


class UpkeepTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.due = {}
        self.ending = False
        self.audited = []
        self.schedule = mock.Mock(
            waiting=lambda: list(self.due),
            is_due=lambda node: node in self.due)
        self.background_audit = due_nodes.BackgroundAudit(
            self.schedule, mock.Mock(audit=self.audit), lambda: self.ending)

    def audit(self, node):
        self.audited.append(node)
        self.due.pop(node, None)

    def once(self, *nodes):
        self.due.update(dict.fromkeys(nodes))
        self.background_audit.once()
        return self.audited

    def test_nothing(self):
        self.assertEqual([], self.once())

    def test_what_nobody_has_changed_is_not_due(self):
        self.schedule.skip_unchanged = lambda nodes: self.due.pop(*nodes)
        self.assertEqual([], self.once('a'))

    def test_few_are_asked_about_before_some_are_audited(self):
        """Placement may answer slowly, and other things be more urgent."""
        nodes = [f'node-{number}' for number in range(120)]
        asked = []

        def spare(some):
            asked.append(len(some))
            self.ending = len(asked) == 2

        self.schedule.skip_unchanged = spare
        self.assertEqual(nodes[:due_nodes.BACKGROUND_BATCH], self.once(*nodes))
        self.assertEqual([due_nodes.BACKGROUND_BATCH] * 2, asked)

    def test_what_has_changed_cannot_be_known(self):
        self.schedule.skip_unchanged.side_effect = OSError
        self.assertEqual(['a', 'b'], self.once('a', 'b'))

    def test_what_is_due_in_that_order(self):
        nodes = [f'node-{number}' for number in range(120)]
        self.assertEqual(nodes, self.once(*nodes))

    def test_what_nova_has_come_to_meanwhile(self):
        self.schedule.is_due = lambda node: node != 'b'
        with mock.patch.object(self.schedule, 'waiting', side_effect=[
                ['a', 'b', 'c'], []]):
            self.assertEqual(['a', 'c'], self.once())

    def test_what_stays_due_is_audited_once(self):
        self.audit = self.background_audit._tracker.audit = self.audited.append
        self.assertEqual(['a', 'b'], self.once('a', 'b'))

    def test_what_becomes_due_meanwhile(self):
        def audit(node):
            self.audited.append(node)
            self.due.pop(node)
            if node == 'a':
                self.due['c'] = None

        self.background_audit._tracker.audit = audit
        self.assertEqual(['a', 'c'], self.once('a'))

    def test_nothing_by_who_ends(self):
        self.ending = True
        with self.assertNoLogs(due_nodes.__name__):
            self.assertEqual(
                [], self.once(*map(str, range(due_nodes.BACKGROUND_MANY))))
