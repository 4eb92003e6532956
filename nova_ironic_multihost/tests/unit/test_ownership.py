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


from hypothesis import given
from hypothesis import strategies as st
from oslotest import base

from nova_ironic_multihost import ownership
from nova_ironic_multihost import ring as hash_ring

HOSTS = ['host-a', 'host-b', 'host-c']
INSTANCES = [f'instance-{i}' for i in range(6)]


@st.composite
def clouds(draw):
    """Nodes, some with instances, and the hosts that nova has these on."""
    listed = draw(st.lists(st.uuids(version=4).map(str), unique=True,
                           max_size=30))
    on_nodes = draw(st.permutations(INSTANCES))[:len(listed)]
    occupied = dict(zip(listed, on_nodes))
    instances = {node: occupied.get(node) if draw(st.booleans()) else None
                 for node in listed}
    # None: nova has that instance nowhere.
    placed = {instance: draw(st.sampled_from(HOSTS + [None]))
              for instance in INSTANCES}
    return instances, placed


def decisions(nodes, placed, ring):
    """What each host decides from one and the same view."""
    return {host: ownership.decide(ownership.Facts(
        nodes=nodes, ring=ring, host=host,
        my_instances={instance for instance, on in placed.items()
                      if on == host})) for host in HOSTS}


class DecideTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.ring = hash_ring.Ring(HOSTS, 32)
        self.node = '1be26c0b-03f2-4d2e-ae87-c02d7f33c123'
        self.preferred = self.ring.host_for(self.node)
        self.other = next(h for h in HOSTS if h != self.preferred)

    def reason(self, host, instance=None, my_instances=()):
        return ownership.decide(ownership.Facts(
            nodes={self.node: instance}, my_instances=set(my_instances),
            ring=self.ring, host=host))[self.node]

    def test_node_with_my_instance_is_mine_wherever_the_ring_points(self):
        for host in HOSTS:
            reason = self.reason(host, 'i1', {'i1'})
            self.assertIs(ownership.Reason.INSTANCE_HERE, reason)
            self.assertTrue(reason.mine)

    def test_node_with_another_instance_is_not_mine(self):
        for host in HOSTS:
            reason = self.reason(host, 'i1', {'i2'})
            self.assertIs(ownership.Reason.INSTANCE_ELSEWHERE, reason)
            self.assertFalse(reason.mine)

    def test_free_node_is_of_the_member_that_the_ring_prefers(self):
        here = self.reason(self.preferred, None, {'i2'})
        self.assertIs(ownership.Reason.RING_HERE, here)
        self.assertTrue(here.mine)
        elsewhere = self.reason(self.other)
        self.assertIs(ownership.Reason.RING_ELSEWHERE, elsewhere)
        self.assertFalse(elsewhere.mine)

    @given(clouds())
    def test_hosts_with_one_view_never_claim_one_node_twice(self, cloud):
        nodes, placed = cloud
        by_host = decisions(nodes, placed, self.ring)
        for node, instance in nodes.items():
            owners = {host for host in HOSTS if by_host[host][node].mine}
            if instance is None:
                self.assertEqual({self.ring.host_for(node)}, owners)
            elif placed[instance] is None:
                self.assertEqual(set(), owners)
            else:
                self.assertEqual({placed[instance]}, owners)

    @given(clouds())
    def test_a_lone_host_manages_all_but_instances_of_nobody(self, cloud):
        nodes, placed = cloud
        mine = {instance for instance, on in placed.items() if on}
        reasons = ownership.decide(ownership.Facts(
            nodes=nodes, my_instances=mine, host='host-a',
            ring=hash_ring.Ring(['host-a'], 32)))
        self.assertEqual(
            {node for node, instance in nodes.items()
             if instance is None or instance in mine},
            {node for node, reason in reasons.items() if reason.mine})

    @given(clouds(), st.randoms(use_true_random=False))
    def test_the_order_of_the_listing_does_not_matter(self, cloud, rnd):
        nodes, placed = cloud
        shuffled = list(nodes.items())
        rnd.shuffle(shuffled)
        self.assertEqual(decisions(nodes, placed, self.ring),
                         decisions(dict(shuffled), placed, self.ring))

    @given(clouds())
    def test_a_host_that_leaves_moves_no_node_of_the_others(self, cloud):
        nodes, placed = cloud
        before = decisions(nodes, placed, self.ring)
        after = decisions(nodes, placed,
                          hash_ring.Ring(['host-a', 'host-b'], 32))
        for host in ('host-a', 'host-b'):
            for node in nodes:
                if before[host][node].mine:
                    self.assertTrue(after[host][node].mine)


class TallyTestCase(base.BaseTestCase):

    def test_every_reason_is_counted(self):
        tally = ownership.tally({
            'n1': ownership.Reason.RING_HERE,
            'n2': ownership.Reason.INSTANCE_HERE,
            'n3': ownership.Reason.RING_HERE})
        self.assertEqual({ownership.Reason.INSTANCE_HERE: 1,
                          ownership.Reason.INSTANCE_ELSEWHERE: 0,
                          ownership.Reason.RING_HERE: 2,
                          ownership.Reason.RING_ELSEWHERE: 0}, tally)
