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


from unittest import mock

from oslotest import base

from nova_ironic_multihost.contract import listing
from nova_ironic_multihost.contract import names
from nova_ironic_multihost.core import membership


class QueryTestCase(base.BaseTestCase):

    def test_no_partition_lists_all(self):
        self.assertEqual(({}, []), listing.query(membership.Partition()))

    def test_default_conductor_group_is_asked_for(self):
        self.assertEqual(
            ({'conductor_group': ''}, ['1.46']),
            listing.query(membership.Partition(conductor_group='')))

    def test_conductor_group_and_shard(self):
        self.assertEqual(
            ({'conductor_group': 'rack1', 'shard': 's1'}, ['1.46', '1.82']),
            listing.query(membership.Partition(conductor_group='rack1',
                                             shard='s1')))


class ReadTestCase(base.BaseTestCase):

    def read(self, get_node_list, can_send_version=mock.Mock(),
             partition=membership.Partition(shard='s1')):
        return listing.read(partition, get_node_list, can_send_version)

    def test_lists_with_the_fields_that_novas_driver_needs(self):
        get_node_list = mock.Mock(return_value=['a node'])
        self.assertEqual(['a node'], self.read(get_node_list))
        get_node_list.assert_called_once_with(
            fields=names.NODE_FIELDS, shard='s1')

    def test_ironic_too_old_for_the_filter_lists_nothing(self):
        # Without the filter it would list the nodes of all shards.
        get_node_list = mock.Mock()
        too_old = mock.Mock(
            side_effect=names.IronicAPIVersionNotAvailable(
                version='1.82'))
        with self.assertLogs(listing.__name__, 'ERROR') as logs:
            self.assertRaises(names.VirtDriverNotReady,
                              self.read, get_node_list, too_old)
        get_node_list.assert_not_called()
        self.assertIn('1.82', logs.output[0])
        self.assertIn('Upgrade Ironic', logs.output[0])

    def test_error_says_cause_and_remedy_in_one_line(self):
        def fail(**kwargs):
            try:
                raise OSError('connection\nrefused')
            except OSError:
                raise names.VirtDriverNotReady()

        with self.assertLogs(listing.__name__, 'ERROR') as logs:
            self.assertRaises(names.VirtDriverNotReady,
                              self.read, fail)
        line, = logs.output
        self.assertIn('connection refused', line)
        self.assertIn('[ironic]', line)
        self.assertNotIn('\n', line)

    def test_error_of_its_own_is_told_itself(self):
        def fail(**kwargs):
            try:
                raise OSError('socket 7')
            except OSError:
                raise ValueError('503 from ironic-api')

        with self.assertLogs(listing.__name__, 'ERROR') as logs:
            self.assertRaises(names.VirtDriverNotReady,
                              self.read, fail)
        self.assertIn('503 from ironic-api', logs.output[0])

    def test_ironic_that_cannot_be_asked_for_its_version(self):
        def fail(version):
            raise OSError('connection refused')

        with self.assertLogs(listing.__name__, 'ERROR') as logs:
            self.assertRaises(names.VirtDriverNotReady,
                              self.read, mock.Mock(), fail)
        self.assertIn('connection refused', logs.output[0])
