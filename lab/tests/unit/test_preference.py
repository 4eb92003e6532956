# SPDX-License-Identifier: Apache-2.0

import collections

from oslotest import base

from lab import preference
from nova_ironic_multihost.rules import ring

NODES = [f'node-{number}' for number in range(200)]
MEMBERS = frozenset({'compute-1', 'compute-2', 'compute-3'})


class PartitionsTestCase(base.BaseTestCase):

    def test_those_of_the_driver(self):
        self.assertEqual(32, preference.partitions('stock'))
        self.assertEqual(1024, preference.partitions('ours'))

    def test_option_of_ours(self):
        options = ['ironic_multihost.ring_partitions=64']
        self.assertEqual(64, preference.partitions('ours', options))
        self.assertEqual(32, preference.partitions('stock', options))


class PreferenceTestCase(base.BaseTestCase):

    def test_as_the_driver_reckons(self):
        prefer = preference.Preference(64)
        drivers = ring.Ring(MEMBERS, 64)
        self.assertEqual([drivers.host_for(node) for node in NODES],
                         [prefer(MEMBERS, node) for node in NODES])

    def test_other_members_have_another_ring(self):
        prefer = preference.Preference(64)
        counts = collections.Counter(
            (prefer(MEMBERS, node), prefer(MEMBERS - {'compute-1'}, node))
            for node in NODES)
        self.assertEqual({'compute-2', 'compute-3'},
                         {after for _, after in counts})
        # A node that did not prefer the one that left stays.
        self.assertEqual(
            {('compute-2', 'compute-2'), ('compute-3', 'compute-3')},
            {pair for pair in counts if pair[0] != 'compute-1'})

    def test_nobody_without_members(self):
        self.assertIsNone(preference.Preference(64)(frozenset(), 'node-1'))
