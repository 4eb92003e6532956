# SPDX-License-Identifier: Apache-2.0

import collections
import random
from unittest import mock
import uuid

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost.rules import ring

HOSTS = st.sets(st.from_regex(r'\Ahost-[a-z0-9]{1,6}\Z'),
                min_size=1, max_size=8)
NODES = st.lists(st.uuids(version=4).map(str), min_size=1, max_size=50,
                 unique=True)


def nodes(count, seed=1):
    generator = random.Random(seed)
    return [str(uuid.UUID(int=generator.getrandbits(128), version=4))
            for _ in range(count)]


class RingTestCase(base.BaseTestCase):

    @given(HOSTS, NODES, st.randoms(use_true_random=False))
    def test_agrees_whatever_the_order_of_members(self, hosts, listed, rnd):
        shuffled = list(hosts)
        rnd.shuffle(shuffled)
        one = ring.Ring(sorted(hosts), 64)
        other = ring.Ring(shuffled, 64)
        self.assertEqual([one.host_for(node) for node in listed],
                         [other.host_for(node) for node in listed])

    def test_each_node_is_looked_up_once(self):
        members = ring.Ring(['a', 'b'], 16)
        with mock.patch.object(
                members.hashring, 'get_nodes',
                side_effect=members.hashring.get_nodes) as lookup:
            for _ in range(3):
                members.host_for('node')
        lookup.assert_called_once_with(b'node')

    @given(HOSTS, NODES)
    def test_leaving_moves_only_what_the_leaver_had(self, hosts, listed):
        before = ring.Ring(hosts | {'leaver'}, 64)
        after = ring.Ring(hosts, 64)
        for node in listed:
            if before.host_for(node) != 'leaver':
                self.assertEqual(before.host_for(node), after.host_for(node))

    @given(HOSTS, NODES)
    def test_joining_moves_nodes_only_to_the_newcomer(self, hosts, listed):
        before = ring.Ring(hosts, 64)
        after = ring.Ring(hosts | {'newcomer'}, 64)
        for node in listed:
            self.assertIn(after.host_for(node),
                          {before.host_for(node), 'newcomer'})

    def test_the_map_never_changes_between_releases(self):
        # Computes of different versions of this package, tooz and Python
        # share nodes during an upgrade: the map is part of the interface.
        members = ring.Ring(['compute-1', 'compute-2', 'compute-3'], 1024)
        mapped = [members.host_for(f'1be26c0b-03f2-4d2e-ae87-c02d7f33c12{i}')
                  for i in range(6)]
        self.assertEqual(
            ['compute-3', 'compute-1', 'compute-2', 'compute-1', 'compute-1',
             'compute-3'], mapped)

    def test_shares_are_even_with_the_default_points(self):
        for count in (2, 3, 10):
            members = ring.Ring([f'host-{i}' for i in range(count)], 1024)
            shares = members.shares(nodes(10000))
            self.assertEqual(10000, sum(shares.values()))
            self.assertLess(max(shares.values()) / (10000 / count), 1.15)

    def test_shares_name_members_without_a_node(self):
        members = ring.Ring(['a', 'b'], 8)
        node, = nodes(1)
        expected = collections.Counter({'a': 0, 'b': 0})
        expected[members.host_for(node)] = 1
        self.assertEqual(dict(expected), members.shares([node]))


class PreferencesTestCase(base.BaseTestCase):

    def test_without_zones_all_members_count(self):
        preferences = ring.Preferences(dict.fromkeys('abc'), 32)
        plain = ring.Ring('abc', 32)
        for node in nodes(50):
            for zone in (None, 'z'):
                host = plain.host_for(node)
                self.assertEqual(host, preferences.host_for(node, zone))
                self.assertEqual(
                    {host}, {member for member in 'abc'
                             if preferences.prefers(member, node, zone)})
                self.assertEqual(
                    {host}, {member for member in 'abc'
                             if preferences.may_prefer(member, node)})

    def test_node_of_a_zone_is_wanted_there_and_by_hosts_without_one(self):
        preferences = ring.Preferences(
            {'a1': 'a', 'a2': 'a', 'b1': 'b', 'c': None}, 32)
        for zone, allowed in (('a', {'a1', 'a2', 'c'}), ('b', {'b1', 'c'}),
                              ('elsewhere', {'c'}),
                              (None, {'a1', 'a2', 'b1', 'c'})):
            hosts = {preferences.host_for(node, zone) for node in nodes(100)}
            self.assertEqual(allowed, hosts, zone)

    def test_node_stays_where_it_was_preferred(self):
        zones = {'a1': 'a', 'a2': 'a', 'b1': 'b', 'c1': None, 'c2': None}
        preferences = ring.Preferences(zones, 32)
        for node in nodes(100):
            for zone in ('a', 'b', None):
                host = preferences.host_for(node, zone)
                self.assertEqual(
                    host, preferences.host_for(node, zones[host]))

    def test_zone_without_a_host_that_may_take_its_nodes(self):
        preferences = ring.Preferences({'a': 'z1'}, 32)
        node, = nodes(1)
        self.assertIsNone(preferences.host_for(node, 'z2'))
        self.assertFalse(preferences.prefers('a', node, 'z2'))
        self.assertTrue(preferences.prefers('a', node, 'z1'))

    def test_zones_mean_nothing_when_nodes_may_cross_them(self):
        preferences = ring.Preferences({'a': 'z1', 'b': 'z2'}, 32, True)
        for node in nodes(20):
            self.assertEqual(preferences.host_for(node, 'z1'),
                             preferences.host_for(node, 'z2'))

    def test_who_is_preferred_with_any_owner(self):
        preferences = ring.Preferences({'a': 'z1', 'b': 'z2', 'c': None}, 32)
        for node in nodes(50):
            expected = {
                whose(node, zone)
                for zone in (None, 'z1', 'z2', 'z3')
                for whose in (
                    preferences.host_for,
                    preferences.takeover_target,
                )
            }
            expected.discard(None)
            self.assertEqual(expected, {
                host for host in 'abc'
                if preferences.may_prefer(host, node)})

    @given(st.dictionaries(
        st.sampled_from('abcdef'), st.sampled_from([None, 'z1', 'z2', 'z3']),
        min_size=1), NODES)
    def test_who_is_preferred_with_some_owner(self, zones, listed):
        preferences = ring.Preferences(zones, 16)
        every = (None, 'z1', 'z2', 'z3', 'of-nobody')
        for node in listed:
            for host in 'abcdef':
                preferred = {
                    zone for zone in every
                    if host in (preferences.host_for(node, zone),
                                preferences.takeover_target(node, zone))}
                self.assertEqual(
                    bool(preferred), preferences.may_prefer(host, node))
                for zone in every:
                    self.assertEqual(
                        zone in preferred,
                        preferences.may_inherit(host, node, [zone]))
                self.assertEqual(
                    bool(preferred & {'z1', 'z2'}),
                    preferences.may_inherit(host, node, ['z1', 'z2']))

    def test_instances_of_the_dead_stay_in_their_zone(self):
        preferences = ring.Preferences(
            {'a1': 'a', 'a2': 'a', 'b1': 'b', 'c': None}, 32)
        for zone, heirs in (('a', {'a1', 'a2'}), ('b', {'b1'}),
                            (None, {'c'}), ('elsewhere', {None})):
            self.assertEqual(
                heirs,
                {
                    preferences.takeover_target(node, zone)
                    for node in nodes(100)
                },
            )

    def test_instances_of_the_dead_go_to_the_preferred_without_zones(self):
        plain = ring.Preferences(dict.fromkeys('abc'), 32)
        crossing = ring.Preferences(
            {'a': 'z1', 'b': 'z2', 'c': None}, 32, cross_zones=True)
        for node in nodes(50):
            self.assertEqual(plain.host_for(node), plain.takeover_target(node))
            # A zone of which no host is left.
            self.assertIsNone(plain.takeover_target(node, 'z1'))
            for zone in (None, 'z1', 'z3'):
                self.assertEqual(crossing.host_for(node),
                                 crossing.takeover_target(node, zone))

    def test_without_members_nobody_is_preferred(self):
        preferences = ring.Preferences({}, 32)
        node, = nodes(1)
        self.assertIsNone(preferences.host_for(node))
        self.assertFalse(preferences.prefers('a', node))
        self.assertFalse(preferences.may_prefer('a', node))
        self.assertIsNone(preferences.takeover_target(node))


class RefreshedTestCase(base.BaseTestCase):

    def test_same_members_keep_the_preferences(self):
        before = ring.refreshed(None, {'a': None, 'b': 'z'}, 8)
        self.assertIs(before, ring.refreshed(
            before, {'b': 'z', 'a': None}, 8))

    def test_any_change_makes_new_preferences(self):
        before = ring.refreshed(None, {'a': None, 'b': 'z'}, 8)
        for members, points, cross in (
                ({'a': None}, 8, False), ({'a': None, 'b': None}, 8, False),
                ({'a': None, 'b': 'z'}, 9, False),
                ({'a': None, 'b': 'z'}, 8, True)):
            after = ring.refreshed(before, members, points, cross)
            self.assertEqual(members, after.members)
            self.assertEqual(points, after.points)
            self.assertEqual(cross, after.cross_zones)
        self.assertEqual({'a': None, 'b': 'z'}, before.members)

    def test_a_change_is_logged_once_with_names(self):
        with self.assertLogs(ring.__name__, 'INFO') as logs:
            before = ring.refreshed(None, {'a': None, 'b': None}, 8)
            after = ring.refreshed(before, {'b': None, 'c': None}, 8)
            ring.refreshed(after, {'b': 'zone', 'c': None}, 8)
        self.assertEqual(2, len(logs.output))
        self.assertIn('joined: c; left: a', logs.output[1])
