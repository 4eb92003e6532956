# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from nova_ironic_multihost.engine.base import operator_log
from nova_ironic_multihost.rules import mirror
from nova_ironic_multihost.rules.ownership import Reason


def due(reasons=None, mapped=True, **absences):
    return operator_log.due('compute-1', mapped, reasons or {},
                            mirror.Absences(**absences))


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
        notice, = operator_log.due(
            'compute-1', True, {}, mirror.Absences(), False).values()
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
            'ERROR', operator_log.logging.getLevelName(notice.level))
        self.assertIn('2 nodes', notice.sentence)
        self.assertIn('[ironic]', notice.sentence)
        self.assertIn('max_vanished_percent', notice.sentence)


class NoticesTestCase(base.BaseTestCase):

    def test_each_thing_is_told_once_until_it_is_over(self):
        told = operator_log.Notices()
        unknown = {'n1': Reason.UNKNOWN}
        with self.assertLogs(operator_log.__name__, 'WARNING') as logs:
            for reasons in (unknown, unknown, {}, unknown):
                told.tell(due(reasons))
        self.assertEqual(2, len(logs.output))

    def test_host_that_is_new_is_mapped_soon(self):
        """As nobody can do that before it has started."""
        clock = mock.Mock()
        told = operator_log.Notices(clock)

        def tell(now, mapped=False):
            clock.return_value = now
            told.tell(due(mapped=mapped))

        with self.assertNoLogs(operator_log.__name__):
            tell(0)
            tell(operator_log.UNMAPPED - 1)
            tell(operator_log.UNMAPPED - 1, mapped=True)
            tell(operator_log.UNMAPPED)
            tell(2 * operator_log.UNMAPPED - 1)
        with self.assertLogs(operator_log.__name__, 'WARNING') as logs:
            tell(2 * operator_log.UNMAPPED)
            tell(3 * operator_log.UNMAPPED)
        self.assertEqual(1, len(logs.output))

    def test_counts_of_nodes_are_told_when_they_change(self):
        told = operator_log.Notices()
        with self.assertLogs(operator_log.__name__, 'INFO') as logs:
            for reasons in ({'n1': Reason.KEPT}, {'n2': Reason.KEPT},
                            {'n1': Reason.KEPT, 'n2': Reason.LEAKED}):
                told.count(reasons)
        first, second = logs.output
        self.assertIn('Managing 1 of 1 nodes: 1 free and recorded here.',
                      first)
        self.assertIn('Managing 2 of 2 nodes', second)
