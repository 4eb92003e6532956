# SPDX-License-Identifier: Apache-2.0

import dataclasses

from oslotest import base

from nova_ironic_multihost.client import ownership_report
from nova_ironic_multihost.tests import views


def grouped(*kinds):
    """Nodes of these groups and shards, one after the other."""
    seen = views.consistent()
    return dataclasses.replace(seen, nodes=tuple(
        dataclasses.replace(node, conductor_group=group, shard=shard)
        for node, (group, shard) in zip(seen.nodes, kinds)))


def report(seen):
    """The report of this state."""
    return ownership_report.OwnershipReport(
        seen, ownership_report.SharedSettings(64))


class PartitionsTestCase(base.BaseTestCase):

    def labels(self, seen):
        found = report(seen).partition_of
        return {host: found[host].label if host in found else None
                for host in (*views.HOSTS, 'new')}

    def test_all_share_all(self):
        seen = views.consistent()
        self.assertEqual({'compute-1': 'all', 'compute-2': 'all',
                          'compute-3': 'all', 'new': None},
                         self.labels(seen))
        self.assertEqual({'all'}, {
            report(seen).partition_of_node(node).label
            for node in seen.nodes})

    def test_who_owns_nothing_shares_with_the_only_ones(self):
        seen = views.without(views.without(
            views.consistent(), 'records', 4), 'records', 1)
        self.assertEqual('all', self.labels(seen)['compute-2'])

    def test_groups_and_shards_tell_them_apart(self):
        seen = grouped(('a', ''), ('', 'x'), ('', ''),
                       ('a', ''), ('', 'x'), ('', ''))
        self.assertEqual(
            {'compute-1': 'group a', 'compute-2': 'shard x',
             'compute-3': 'default group', 'new': None}, self.labels(seen))
        self.assertEqual('shard x', report(seen).partition_of_node(
            seen.nodes[4]).label)

    def test_who_owns_nothing_is_not_known_among_several(self):
        seen = grouped(('a', ''), ('b', ''), ('b', 'x'),
                       ('a', ''), ('b', ''), ('b', 'x'))
        seen = views.without(views.without(seen, 'records', 4), 'records', 1)
        self.assertEqual(
            {'compute-1': 'group a', 'compute-2': None,
             'compute-3': 'group b, shard x', 'new': None},
            self.labels(seen))
        # Nobody owns one like this.
        self.assertIsNone(report(seen).partition_of_node(seen.nodes[1]))

    def test_what_a_dead_one_owns_tells_nothing_if_a_live_one_does(self):
        kinds = [('a', ''), ('b', ''), ('c', ''),
                 ('b', ''), ('b', ''), ('a', '')]
        seen = grouped(*kinds)
        for index in 0, 2:
            seen = views.changed(seen, 'services', index, up=False)
        # One has a node that is in group b by now, one a node of group a.
        self.assertEqual(
            {'compute-1': 'group b', 'compute-2': 'group b',
             'compute-3': 'group a + group c', 'new': None},
            self.labels(views.changed(seen, 'records', 0,
                                      host='compute-3')))

    def test_who_owns_of_several_shares_all_of_these(self):
        seen = grouped(('a', ''), ('b', ''), ('c', ''),
                       ('b', ''), ('b', ''), ('c', ''))
        self.assertEqual(
            {'compute-1': 'group a + group b',
             'compute-2': 'group a + group b', 'compute-3': 'group c',
             'new': None}, self.labels(seen))
