# SPDX-License-Identifier: Apache-2.0

from nova_ironic_multihost.client.upgrade import hosts
from nova_ironic_multihost.tests.unit.client.upgrade import base
from nova_ironic_multihost.tests import views

ALL = {f'node-{i}' for i in range(6)}


class JudgeTestCase(base.JudgeTestCase):

    def judge(self, peers, nodes=ALL, seen=None, **partition):
        return hosts.judge_peers(
            base.of_host('compute-1', peers=peers,
                         **partition or {'group': 'g'}),
            seen or views.consistent(), nodes)

    def test_peers_that_have_all_the_nodes(self):
        self.assert_silent(
            self.judge(('compute-1', 'Compute-2', 'compute-3')))
        self.assert_silent(self.judge((), {'node-0', 'node-3'}, shard='s'))

    def test_all_nodes_are_of_all(self):
        self.assert_silent(hosts.judge_peers(
            base.of_host('compute-1'), views.consistent(), ALL))

    def test_a_peer_that_nova_does_not_have(self):
        self.assert_complains(
            self.judge(('compute-1', 'compute-2', 'compute-3', 'compte-4')),
            'names compte-4')

    def test_somebody_who_is_not_named_has_nodes(self):
        self.assert_complains(
            self.judge(('compute-1', 'compute-2')),
            '2 nodes', 'recorded on compute-3')

    def test_nodes_of_a_dead_one_come_back(self):
        self.assert_silent(self.judge(
            ('compute-1', 'compute-2'),
            seen=views.changed(views.consistent(), 'services', 2, up=False)))

    def test_no_nodes(self):
        self.assert_complains(self.judge((), set()), 'Ironic has no node')


class JudgeSettingsTestCase(base.JudgeTestCase):

    def test_peers_without_group_and_shard(self):
        self.assert_complains(
            hosts.judge_peer_list(
                base.of_host('compute-1', peers=('compute-1',))),
            '[ironic]peer_list has no effect')

    def test_peers_with_one_of_both_or_none_at_all(self):
        for found in (base.of_host('a'), base.of_host('a', '', None, ('a',)),
                      base.of_host('a', None, 's', ('a',))):
            self.assert_silent(hosts.judge_peer_list(found))
