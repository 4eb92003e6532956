# SPDX-License-Identifier: Apache-2.0

import json
import threading
from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.audit import audit_state
from nova_ironic_multihost.engine.audit import operator_news
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules import peers


def due(reasons=None, mapped=True, zones_known=True, **absences):
    return operator_news.notices_due(
        'compute-1', reasons or {}, audit_state.AuditState(
            mapped=mapped, absences=mirror.Absences(**absences),
            host_aggregates=peers.KnownAggregates(read=zones_known)))


class DueTestCase(base.BaseTestCase):

    def test_nothing_to_tell(self):
        self.assertEqual({}, due({
            'n1': Reason.KEPT, 'n2': Reason.INSTANCE_ELSEWHERE}))

    def test_host_that_is_not_mapped_is_told_the_command(self):
        sentence = due(mapped=False)['unmapped'].sentence
        self.assertIn('discover_hosts --by-service', sentence)
        self.assertIn('compute-1', sentence)
        self.assertEqual({}, due(mapped=None))

    def test_aggregates_that_cannot_be_read(self):
        notice, = due(zones_known=False).values()
        self.assertIn('[api_database]connection', notice.sentence)

    def test_counts_and_one_example_in_the_place_of_a_list(self):
        for reason, words in (
                (Reason.OTHER_PARTITION, 'peer_list'),
                (Reason.UNKNOWN, 'nova-ironic-multihost leaks'),
                (Reason.LEAKED, 'running_deleted_instance_action')):
            notice, = due(dict.fromkeys(['n1', 'n2', 'n3'], reason)).values()
            sentence = notice.sentence
            self.assertIn('3 nodes', sentence)
            self.assertIn('n1', sentence)
            self.assertNotIn('n2', sentence)
            self.assertIn(words, sentence)

    def test_brake_says_what_to_do_in_either_case(self):
        notice, = due(counts={'n1': 0, 'n2': 0}, braked=True).values()
        self.assertEqual(
            'ERROR', operator_news.logging.getLevelName(notice.level))
        self.assertIn('2 nodes', notice.sentence)
        self.assertIn('[ironic]', notice.sentence)
        self.assertIn('max_vanished_percent', notice.sentence)


class NoticesTestCase(base.BaseTestCase):

    def test_each_thing_is_told_once_until_it_is_over(self):
        told = operator_news.Notices()
        unknown = {'n1': Reason.UNKNOWN}
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            for reasons in (unknown, unknown, {}, unknown):
                told.tell(due(reasons))
        self.assertEqual(2, len(logs.output))

    def test_host_that_is_new_is_mapped_soon(self):
        """As nobody can do that before it has started."""
        clock = mock.Mock()
        told = operator_news.Notices(clock)

        def tell(now, mapped=False):
            clock.return_value = now
            told.tell(due(mapped=mapped))

        with self.assertNoLogs(operator_news.__name__):
            tell(0)
            tell(operator_news.UNMAPPED - 1)
            tell(operator_news.UNMAPPED - 1, mapped=True)
            tell(operator_news.UNMAPPED)
            tell(2 * operator_news.UNMAPPED - 1)
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            tell(2 * operator_news.UNMAPPED)
            tell(3 * operator_news.UNMAPPED)
        self.assertEqual(1, len(logs.output))

    def test_counts_of_nodes_are_told_when_they_change(self):
        told = operator_news.Notices()
        with self.assertLogs(operator_news.__name__, 'INFO') as logs:
            for reasons in ({'n1': Reason.KEPT}, {'n2': Reason.KEPT},
                            {'n1': Reason.KEPT, 'n2': Reason.LEAKED}):
                told.count(reasons)
        first, second = logs.output
        self.assertIn('Managing 1 of 1 nodes: 1 free and recorded here.',
                      first)
        self.assertIn('Managing 2 of 2 nodes', second)


class HeraldTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.sent = []
        self.notifier = self.herald_of(lambda kind, payload: self.sent.append(
            (kind, payload['ironic_multihost_object.data'])))

    def herald_of(self, notify, start=lambda target, *args: target(*args)):
        return operator_news.Notifier(mock.Mock(notify=notify), start)

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
        with self.assertLogs(operator_news.__name__, 'WARNING') as logs:
            one.tell(operator_news.brake_notification('me', True, 7))
        self.assertIn('no bus', logs.output[0])
        self.assertIn('ironic_multihost.brake', logs.output[0])

    def test_nobody_waits_for_the_bus(self):
        answers, sent = threading.Event(), threading.Event()
        self.addCleanup(answers.set)

        def notify(kind, payload):
            answers.wait(60)
            sent.set()

        operator_news.Notifier(mock.Mock(notify=notify)).tell(
            operator_news.brake_notification('me', True, 7))
        self.assertFalse(sent.is_set())
        answers.set()
        self.assertTrue(sent.wait(60))


#: Of every one: (type, name, version, fields). Whoever changes one raises
#: its version, and doc/source/reference/notifications.rst.
SENT = (
    (operator_news.takeover_notification('new', 'old', ['i2', 'i1']), (
        'ironic_multihost.takeover', 'TakeoverPayload', '1.0', {
            'host': 'new', 'source_host': 'old', 'instances': ['i1', 'i2']})),
    (operator_news.brake_notification('me', True, 7), (
        'ironic_multihost.brake', 'BrakePayload', '1.0', {
            'host': 'me', 'engaged': True, 'missing': 7})),
)


class EventsTestCase(base.BaseTestCase):

    def test_types_versions_and_fields(self):
        for event, (kind, name, version, fields) in SENT:
            self.assertEqual(kind, event.kind)
            self.assertEqual({
                'ironic_multihost_object.name': name,
                'ironic_multihost_object.namespace': 'ironic_multihost',
                'ironic_multihost_object.version': version,
                'ironic_multihost_object.data': fields},
                json.loads(json.dumps(event.payload)))
