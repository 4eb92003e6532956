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

from nova_ironic_multihost import membership

ANYWHERE = membership.Partition()


def up(*hosts):
    return [membership.ComputeService(host=host, up=True) for host in hosts]


def down(*hosts):
    return [membership.ComputeService(host=host, up=False) for host in hosts]


class MembersTestCase(base.BaseTestCase):

    def test_alone_when_nova_knows_no_other(self):
        self.assertEqual({'a'}, membership.members([], ANYWHERE, 'a'))

    def test_new_host_is_a_member_before_nova_lists_it(self):
        self.assertEqual({'a', 'b', 'new'},
                         membership.members(up('a', 'b'), ANYWHERE, 'new'))

    def test_hosts_that_are_down_are_no_members(self):
        self.assertEqual(
            {'a', 'b'},
            membership.members(up('a', 'b') + down('c'), ANYWHERE, 'a'))

    def test_one_host_in_two_spellings_is_one_member(self):
        self.assertEqual({'host1', 'host2'}, membership.members(
            up('Host1', 'HOST2'), ANYWHERE, 'hOst1'))

    def test_conductor_group_limits_members_to_the_peer_list(self):
        partition = membership.Partition(conductor_group='rack1',
                                         peer_list=('a', 'B'))
        self.assertEqual({'a', 'b'}, membership.members(
            up('a', 'b', 'c'), partition, 'a'))

    def test_default_conductor_group_is_a_group_too(self):
        partition = membership.Partition(conductor_group='',
                                         peer_list=('a',))
        self.assertEqual({'a'}, membership.members(
            up('a', 'b'), partition, 'a'))

    def test_peer_list_means_nothing_without_a_conductor_group(self):
        partition = membership.Partition(peer_list=('a',))
        self.assertEqual({'a', 'b'}, membership.members(
            up('a', 'b'), partition, 'a'))

    def test_a_shard_has_one_member(self):
        partition = membership.Partition(conductor_group='rack1', shard='s1',
                                         peer_list=('a', 'b'))
        self.assertEqual({'a'}, membership.members(
            up('a', 'b'), partition, 'A'))

    @given(st.lists(st.builds(membership.ComputeService,
                              host=st.sampled_from(['a', 'B', 'c', 'D']),
                              up=st.booleans())),
           st.sampled_from(['a', 'B', 'new']))
    def test_members_are_the_live_hosts_and_me(self, services, host):
        members = membership.members(services, ANYWHERE, host)
        self.assertEqual(
            {service.host.lower() for service in services if service.up}
            | {host.lower()}, members)
