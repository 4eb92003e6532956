# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers


def state(mapped=True, zones_known=True, **absences):
    return audit_state.AuditState(
        mapped=mapped, absences=mirror.Absences(**absences),
        host_aggregates=peers.KnownAggregates(read=zones_known))


def due(reasons=(), **facts):
    return operator_news.notices_due(
        'compute-1', dict(reasons), state(**facts))


class DueTestCase(base.BaseTestCase):

    def test_nothing_to_tell(self):
        self.assertEqual({}, due({
            'n1': Reason.KEPT, 'n2': Reason.INSTANCE_ELSEWHERE}))

    def test_host_that_is_not_mapped_is_told_the_command(self):
        (_, sentence), = due(mapped=False).values()
        self.assertIn('discover_hosts --by-service', sentence)
        self.assertIn('compute-1', sentence)
        self.assertEqual({}, due(mapped=None))

    def test_aggregates_that_cannot_be_read(self):
        (_, sentence), = due(zones_known=False).values()
        self.assertIn('[api_database]connection', sentence)

    def test_counts_and_one_example_in_the_place_of_a_list(self):
        for reason, words in (
                (Reason.OTHER_PARTITION, 'peer_list'),
                (Reason.UNKNOWN, 'nova-ironic-multihost leaks'),
                (Reason.LEAKED, 'running_deleted_instance_action')):
            (_, sentence), = due(
                dict.fromkeys(['n1', 'n2', 'n3'], reason)).values()
            self.assertIn('3 nodes', sentence)
            self.assertIn('n3', sentence)
            self.assertNotIn('n2', sentence)
            self.assertIn(words, sentence)

    def test_brake_says_what_to_do_in_either_case(self):
        (level, sentence), = due(
            counts={'n1': 0, 'n2': 0}, braked=True).values()
        self.assertEqual('ERROR', operator_news.logging.getLevelName(level))
        self.assertIn('2 nodes', sentence)
        self.assertIn('[ironic]', sentence)
        self.assertIn('max_vanished_percent', sentence)


class NoticesTestCase(base.BaseTestCase):

    def test_each_thing_is_told_once_until_it_is_over(self):
        told = operator_news.Notices()
        unknown = {'n1': Reason.UNKNOWN}
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            for reasons in (unknown, unknown, {}, unknown):
                told.tell('a', reasons, state())
        self.assertEqual(2, len(logs.output))

    def test_counts_of_nodes_are_told_when_they_change(self):
        told = operator_news.Notices()
        with self.assertLogs(operator_news.__name__, 'INFO') as logs:
            for reasons in ({'n1': Reason.KEPT}, {'n2': Reason.KEPT},
                            {'n1': Reason.KEPT, 'n2': Reason.LEAKED}):
                told.tell('a', reasons, state())
        first, _, second = logs.output
        self.assertIn('Managing 1 of 1 nodes: 1 free and recorded here.',
                      first)
        self.assertIn('Managing 2 of 2 nodes', second)


class NotificationTestCase(base.BaseTestCase):

    def notify(self, notify):
        operator_news.notify_takeover(
            mock.Mock(notify=notify), 'new', 'old', ['i2', 'i1'])

    def test_type_version_and_fields(self):
        """If one changes, so do the version and notifications.rst."""
        sent = []
        self.notify(lambda *event: sent.append(event))
        self.assertEqual([('ironic_multihost.takeover', {
            'ironic_multihost_object.name': 'TakeoverPayload',
            'ironic_multihost_object.namespace': 'ironic_multihost',
            'ironic_multihost_object.version': '1.0',
            'ironic_multihost_object.data': {
                'host': 'new', 'source_host': 'old',
                'instances': ['i1', 'i2']}})], sent)

    def test_bus_that_is_down_hurts_nobody(self):
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            self.notify(mock.Mock(side_effect=OSError('no bus')))
        self.assertIn('no bus', logs.output[0])
