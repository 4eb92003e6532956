# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from nova_ironic_multihost.client import cloud_state
from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.rules import liveness
from nova_ironic_multihost.rules.ownership import Reason
from nova_ironic_multihost.rules.peers import host_key
from nova_ironic_multihost.rules import ring
from nova_ironic_multihost.tests import views

SETTINGS = ownership_report.SharedSettings(points=64)


def at_home():
    """Like views.consistent(), each free node with whom the ring prefers."""
    seen = views.consistent()
    hosts = ring.Preferences(dict.fromkeys(views.HOSTS), 64)
    return dataclasses.replace(seen, records=(seen.records[0], *(
        dataclasses.replace(record, host=hosts.host_for(record.node))
        for record in seen.records[1:])))


def service(seen, host, **changes):
    """The observation with one service changed."""
    return views.changed(seen, 'services', views.HOSTS.index(host), **changes)


class JudgementTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.seen = at_home()

    def judge(self, seen, index=0, settings=SETTINGS):
        return ownership_report.OwnershipReport(
            seen, settings).verdict(seen.nodes[index])

    def all(self, seen, settings=SETTINGS):
        report = ownership_report.OwnershipReport(seen, settings)
        return [*map(report.verdict, seen.nodes)]

    def test_healthy(self):
        for verdict in self.all(self.seen):
            used = verdict.node.instance_uuid is not None
            self.assertIs(Reason.INSTANCE_HERE if used else Reason.KEPT,
                          verdict.why)
            self.assertEqual(('', False), (verdict.ahead, verdict.moves))
        self.assertIn('(rule 1)', self.judge(self.seen).because)
        self.assertIn('rule 6', self.judge(self.seen, 1).because)

    def owned(self, host):
        return [index for index, node in enumerate(self.seen.nodes)
                if self.seen.owner_of[node.uuid] == host
                and not node.instance_uuid]

    def somebody(self):
        """A host with a free node, and that node."""
        return next((host, index) for host in views.HOSTS
                    for index in self.owned(host))

    def test_down(self):
        host, index = self.somebody()
        verdict = self.judge(service(self.seen, host, up=False), index)
        self.assertIsNone(verdict.why)
        self.assertEqual('', verdict.because)
        self.assertEqual((verdict.preferred, Reason.ADOPTED),
                         (verdict.decider, verdict.next))
        self.assertNotEqual(host, verdict.preferred)
        self.assertTrue(verdict.moves)
        self.assertEqual(
            f'{verdict.decider} takes it: free and recorded on a dead compute '
            'service (rule 8)', verdict.ahead)

    def test_server_of_one_that_is_down_waits(self):
        verdict = self.judge(service(self.seen, 'compute-1', up=False))
        self.assertIs(Reason.INSTANCE_OF_DEAD, verdict.next)
        self.assertFalse(verdict.moves)
        self.assertEqual(
            f'{verdict.decider} takes it when compute-1 is fenced: with an '
            'instance of a dead compute service (rule 3)', verdict.ahead)

    def test_server_of_one_that_is_fenced_is_taken_over(self):
        verdict = self.judge(service(
            self.seen, 'compute-1', up=False, forced_down=True))
        self.assertIs(Reason.TAKEN_OVER, verdict.next)
        self.assertTrue(verdict.moves)
        self.assertNotEqual('compute-1', verdict.decider)

    def test_server_of_one_that_nova_has_no_more_is_taken_over(self):
        verdict = self.judge(views.without(self.seen, 'services', 0))
        self.assertIs(Reason.TAKEN_OVER, verdict.next)

    def test_server_goes_to_the_heir_in_its_zone(self):
        seen = dataclasses.replace(
            service(self.seen, 'compute-1', up=False, forced_down=True),
            zones={host_key('compute-1'): 'a', host_key('compute-3'): 'a'})
        self.assertEqual(('compute-3', Reason.TAKEN_OVER), (
            self.judge(seen).decider, self.judge(seen).next))

    def test_drained(self):
        host, index = self.somebody()
        verdict = self.judge(service(self.seen, host, disabled=True), index)
        self.assertEqual((host, Reason.KEPT), (verdict.owner, verdict.why))
        self.assertIs(Reason.PULLED, verdict.next)
        self.assertTrue(verdict.moves)
        self.assertIn('takes it: free', verdict.ahead)
        used = self.judge(service(self.seen, 'compute-1', disabled=True))
        self.assertEqual((Reason.INSTANCE_HERE, ''), (used.why, used.ahead))

    def test_ending(self):
        host, index = self.somebody()
        said = datetime.datetime.fromtimestamp(views.NOW, datetime.UTC)
        seen = service(self.seen, host, disabled=True,
                       stop_marker=liveness.stop_marker_text(said))
        self.assertEqual('', self.judge(seen, index).ahead)
        later = dataclasses.replace(seen, at=views.NOW + 60)
        self.assertIs(Reason.PULLED, self.judge(later, index).next)
        self.assertIs(Reason.PULLED, self.judge(
            service(seen, host, over=True), index).next)

    def test_no_record(self):
        seen = views.without(self.seen, 'records', 1)
        verdict = self.judge(seen, 1)
        self.assertEqual((None, None, Reason.CREATED, verdict.preferred), (
            verdict.owner, verdict.why, verdict.next, verdict.decider))

    def test_record_elsewhere(self):
        seen = views.changed(self.seen, 'records', 0, host='compute-2')
        verdict = self.judge(seen)
        self.assertEqual(
            ('compute-2', Reason.INSTANCE_ELSEWHERE, 'compute-1',
             Reason.INSTANCE_HERE),
            (verdict.owner, verdict.why, verdict.decider, verdict.next))

    def test_leaked(self):
        seen = views.changed(self.seen, 'instances', 0, deleted=True)
        self.assertEqual((Reason.LEAKED, ''), (
            self.judge(seen).why, self.judge(seen).ahead))
        verdict = self.judge(service(seen, 'compute-1', up=False))
        self.assertEqual((Reason.LEAKED, verdict.preferred), (
            verdict.next, verdict.decider))

    def test_nobody_is_there(self):
        seen = self.seen
        for host in views.HOSTS:
            seen = service(seen, host, up=False)
        verdict = self.judge(seen, 1)
        self.assertIsNone(verdict.preferred)
        self.assertIn('nobody can take it: start or enable', verdict.ahead)

    def test_zones_keep_nodes(self):
        host, index = self.somebody()
        other = [one for one in views.HOSTS if one != host]
        seen = dataclasses.replace(
            service(self.seen, host, up=False),
            zones={host_key(host): 'a', host_key(other[0]): 'b',
                   host_key(other[1]): 'b'})
        self.assertIn('nobody can take it', self.judge(seen, index).ahead)
        crossing = ownership_report.SharedSettings(points=64, cross_zones=True)
        self.assertIs(Reason.ADOPTED,
                      self.judge(seen, index, crossing).next)

    def test_partitions_keep_nodes(self):
        seen = self.seen
        for index, node in enumerate(seen.nodes):
            seen = views.changed(
                seen, 'nodes', index,
                conductor_group=seen.owner_of[node.uuid])
        host, index = self.somebody()
        self.assertIn('nobody can take it', self.judge(
            service(seen, host, up=False), index).ahead)
        seen = views.with_more(seen, 'nodes', cloud_state.Node(
            'odd', conductor_group='odd'))
        self.assertIn('not known', self.judge(seen, -1).ahead)
