# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime
import types

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client.commands import list as compute_list
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import takeover
from nova_ironic_multihost.tests import views


class RowsTestCase(base.BaseTestCase):

    def rows(self, seen):
        rows = compute_list.rows(ownership_report.OwnershipReport(
            seen, ownership_report.SharedSettings(points=8)))
        return {row['Host']: types.SimpleNamespace(**{
            name.lower().replace(' ', '_'): value
            for name, value in row.items()}) for row in rows}

    def changed(self, **changes):
        return self.rows(views.changed(
            views.consistent(), 'services', 0, **changes))['compute-1']

    def test_healthy(self):
        rows = self.rows(views.consistent())
        self.assertEqual(list(views.HOSTS), list(rows))
        first = rows['compute-1']
        self.assertEqual(('up', 'enabled', 'all', ''), (
            first.state, first.status, first.partition, first.zone))
        self.assertEqual((2, 1, 1, 0, 0), (
            first.nodes, first.free, first.used, first.leaked,
            first.taking_over))
        # Five are free, and three could have them.
        self.assertAlmostEqual(1 / (5 / 3), first.balance)
        self.assertAlmostEqual(2 / (5 / 3), rows['compute-2'].balance)

    def test_down(self):
        row = self.changed(up=False)
        self.assertEqual(('down', 'enabled', None), (
            row.state, row.status, row.balance))

    def test_fenced(self):
        self.assertEqual('fenced', self.changed(
            up=False, forced_down=True).state)

    def test_drained(self):
        row = self.changed(disabled=True)
        self.assertEqual(('up', 'disabled', None), (
            row.state, row.status, row.balance))

    def test_ending(self):
        words = liveness.stop_marker_text(datetime.datetime(2026, 5, 4))
        for up, status in ((True, 'ending'), (False, 'ended')):
            self.assertEqual(status, self.changed(
                disabled=True, stop_marker=words, up=up).status)

    def test_leaked(self):
        for seen in (
                views.changed(views.consistent(), 'instances', 0,
                              deleted=True),
                views.without(views.consistent(), 'instances', 0)):
            row = self.rows(seen)['compute-1']
            self.assertEqual((2, 1, 0, 1), (
                row.nodes, row.free, row.used, row.leaked))

    def test_marks(self):
        for mark in takeover.taking, takeover.taken:
            seen = views.changed(
                views.consistent(), 'instances', 0,
                task_state=mark(None, host_key('compute-2')))
            self.assertEqual([0, 1, 0], [
                row.taking_over for row in self.rows(seen).values()])

    def test_mark_of_a_server_that_is_deleted(self):
        seen = views.changed(
            views.consistent(), 'instances', 0, deleted=True,
            task_state=takeover.taken(None, host_key('compute-2')))
        self.assertEqual(0, self.rows(seen)['compute-2'].taking_over)

    def test_owner_without_service(self):
        rows = self.rows(views.without(views.consistent(), 'services', 0))
        row = rows['compute-1']
        self.assertEqual(('gone', '', 2), (
            row.state, row.status, row.nodes))

    def test_new(self):
        seen = views.with_more(views.consistent(), 'services',
                               cloud_state.Service('New'))
        row = self.rows(seen)['New']
        self.assertEqual((0, 0), (row.nodes, row.balance))

    def test_nothing_is_free(self):
        seen = dataclasses.replace(views.consistent(), nodes=())
        row = self.rows(seen)['compute-1']
        self.assertIsNone(row.balance)

    def test_zone(self):
        seen = dataclasses.replace(
            views.consistent(), zones={host_key('compute-1'): 'rack'})
        self.assertEqual(['rack', '', ''], [
            row.zone for row in self.rows(seen).values()])

    def test_partition_that_is_not_known(self):
        seen = views.consistent()
        for index, node in enumerate(seen.nodes):
            seen = views.changed(seen, 'nodes', index,
                                 conductor_group=seen.owner_of[node.uuid])
        seen = views.with_more(seen, 'services', cloud_state.Service('new'))
        rows = self.rows(seen)
        self.assertEqual(('group compute-2', ''), (
            rows['compute-2'].partition, rows['new'].partition))
        # Two of two that it alone shares.
        self.assertEqual((1, None), (
            rows['compute-2'].balance, rows['new'].balance))
