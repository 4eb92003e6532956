# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


import collections
import random
import uuid

from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost import ring

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

    @given(HOSTS, NODES)
    def test_each_node_has_one_preferred_member(self, hosts, listed):
        members = ring.Ring(hosts, 16)
        for node in listed:
            preferring = [host for host in hosts
                          if members.prefers(host, node)]
            self.assertEqual([members.host_for(node)], preferring)

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

    def test_shares_are_even_with_the_default_partitions(self):
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

    def test_no_member_is_refused(self):
        self.assertRaises(ValueError, ring.Ring, [], 8)


class RefreshedTestCase(base.BaseTestCase):

    def test_same_members_keep_the_ring(self):
        before = ring.refreshed(None, {'a', 'b'}, 8)
        self.assertIs(before, ring.refreshed(before, {'b', 'a'}, 8))

    def test_other_members_or_partitions_make_a_new_ring(self):
        before = ring.refreshed(None, {'a', 'b'}, 8)
        for members, partitions in (({'a'}, 8), ({'a', 'b', 'c'}, 8),
                                    ({'a', 'b'}, 9)):
            after = ring.refreshed(before, members, partitions)
            self.assertEqual(members, after.members)
            self.assertEqual(partitions, after.partitions)
        self.assertEqual({'a', 'b'}, before.members)

    def test_a_change_is_logged_once_with_names(self):
        with self.assertLogs(ring.__name__, 'INFO') as logs:
            before = ring.refreshed(None, {'a', 'b'}, 8)
            after = ring.refreshed(before, {'b', 'c'}, 8)
            ring.refreshed(after, {'b', 'c'}, 8)
        self.assertEqual(2, len(logs.output))
        self.assertIn('joined: c; left: a', logs.output[1])
