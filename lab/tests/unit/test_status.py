# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from lab import status
from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import findings as consistency
from nova_ironic_multihost.rules import model
from nova_ironic_multihost.tests import views

RUNNING = dict.fromkeys(views.HOSTS, 'running')


class StateTestCase(base.BaseTestCase):

    def test_words(self):
        for service, words in [
                (cloud_state.Service('a'), 'up'),
                (cloud_state.Service('a', up=False), 'down'),
                (cloud_state.Service('a', disabled=True), 'up, disabled'),
                (cloud_state.Service('a', disabled=True, stop_marker='I go'),
                 'up, stopping'),
                (cloud_state.Service('a', up=False, forced_down=True),
                 'fenced'),
                (cloud_state.Service('a', mapped=False), 'up, not mapped')]:
            self.assertEqual(words, status.state_of(service))


class ExplainTestCase(base.BaseTestCase):
    """What is told of the nodes that are not simply kept."""

    node = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
    seen = cloud_state.CloudState(
        services=(cloud_state.Service('east'),
                  cloud_state.Service('west', up=False)),
        nodes=(cloud_state.Node(node),),
        records=(model.Record(node, 'west'),),
        zones={'east': 'zone-e', 'west': 'zone-w'})

    def explain(self, driver, *options):
        return [one.reason
                for one in status.explain(self.seen, driver, options)]

    def test_nodes_keep_their_zone_unless_the_lab_is_told_otherwise(self):
        self.assertEqual(['no compute may take it'], self.explain('ours'))
        [reason] = self.explain(
            'ours', 'ironic_multihost.move_across_zones=True')
        self.assertIn('is down', reason)

    def test_servers_stay_where_the_lab_is_told_so(self):
        self.seen = dataclasses.replace(
            self.seen, zones={},
            services=(cloud_state.Service('east'), cloud_state.Service(
                'west', up=False, forced_down=True)),
            nodes=(cloud_state.Node(self.node, instance_uuid='server'),),
            instances=(cloud_state.CloudServer(
                uuid='server', host='west', node=self.node),))
        [reason] = self.explain('ours')
        self.assertIn('about to be taken over', reason)
        [reason] = self.explain(
            'ours', 'ironic_multihost.instance_takeover=never')
        self.assertNotIn('about', reason)

    def test_nothing_is_known_of_the_rules_of_stock(self):
        self.assertEqual([], self.explain('stock'))


class RowsTestCase(base.BaseTestCase):

    def test_nodes_free_and_used(self):
        found = status.rows(views.consistent(), RUNNING, {}, {})
        self.assertEqual(
            [('compute-1', 1, 1), ('compute-2', 2, 0), ('compute-3', 2, 0)],
            [(row.host, row.free, row.used) for row in found])

    def test_process_and_service_are_told_apart(self):
        # A process that was killed is called up until its heartbeat is old.
        found = status.rows(views.consistent(),
                            {**RUNNING, 'compute-2': 'stopped'}, {}, {})
        self.assertEqual(('up', 'stopped'),
                         (found[1].state, found[1].process))

    def test_since_is_start_or_last_sign_of_life(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False,
                             seen=900.0)
        found = status.rows(seen, RUNNING,
                            {'compute-1': 500.0, 'compute-2': 600.0}, {})
        self.assertEqual([500.0, 900.0, None], [row.since for row in found])

    def test_share_of_the_ring(self):
        found = status.rows(views.consistent(), RUNNING, {},
                            {'compute-1': 40.0})
        self.assertEqual([40.0, None, None], [row.share for row in found])

    def test_owner_that_is_no_service_is_shown(self):
        seen = views.changed(views.consistent(), 'records', 1, host='ghost')
        rows = {row.host: row
                for row in status.rows(seen, RUNNING, {}, {})}
        self.assertEqual('unknown to nova', rows['ghost'].state)
        self.assertEqual(1, rows['ghost'].free)

    def test_compute_that_nova_does_not_know_yet(self):
        found = status.rows(views.consistent(),
                            {**RUNNING, 'compute-4': 'running'}, {}, {})
        self.assertEqual(('compute-4', 'unknown to nova', 0),
                         (found[3].host, found[3].state, found[3].free))


class SummaryTestCase(base.BaseTestCase):

    def findings(self, count):
        return [consistency.Finding('stuck', str(n), f'server {n} is stuck')
                for n in range(count)]

    def test_few_findings_are_all_told(self):
        self.assertEqual(['server 0 is stuck', 'server 1 is stuck'],
                         status.summary(self.findings(2)))

    def test_of_many_the_rest_is_counted(self):
        lines = status.summary(self.findings(status.SHOWN + 3))
        self.assertEqual(status.SHOWN + 1, len(lines))
        self.assertEqual('and 3 more: tools/lab check', lines[-1])


class RingSharesTestCase(base.BaseTestCase):

    def test_add_up_to_all_nodes(self):
        shares = status.ring_shares(views.consistent(), 'ours', 64)
        self.assertEqual(set(views.HOSTS), set(shares))
        self.assertAlmostEqual(100.0, sum(shares.values()))

    def test_only_hosts_that_are_up_and_enabled(self):
        seen = views.changed(views.consistent(), 'services', 0, up=False)
        seen = views.changed(seen, 'services', 1, disabled=True)
        self.assertEqual({'compute-3': 100.0},
                         status.ring_shares(seen, 'ours', 64))

    def test_none_for_stock(self):
        self.assertEqual(
            {}, status.ring_shares(views.consistent(), 'stock', 64))


class DurationTestCase(base.BaseTestCase):

    def test_words(self):
        self.assertEqual(
            ['0 s', '59 s', '2 min', '3.0 h'],
            [status.duration(s) for s in (-1, 59, 125, 10800)])
