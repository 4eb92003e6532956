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

from oslotest import base

from lab import view
from nova_ironic_multihost.tests.unit.lab import views


class ViewTestCase(base.BaseTestCase):

    def test_owned_nodes_whatever_the_case_of_the_host(self):
        seen = views.changed(views.consistent(), 'records', 0,
                             host='COMPUTE-1')
        self.assertEqual(['node-0', 'node-3'], seen.owned_by('Compute-1'))

    def test_free_nodes_are_those_without_instance(self):
        self.assertEqual(['node-3'], views.consistent().free_of('compute-1'))

    def test_up_hosts(self):
        seen = views.changed(views.consistent(), 'services', 1, up=False)
        self.assertEqual({'compute-1', 'compute-3'}, seen.up_hosts)

    def test_machine_of_a_deleted_server_is_leaked(self):
        seen = views.changed(views.consistent(), 'instances', 0,
                             deleted=True)
        self.assertEqual(['node-0'], [n.uuid for n in seen.leaked()])
        self.assertEqual([], views.consistent().leaked())

    def test_unreachable_database_is_told_with_the_remedy(self):
        class Settings:
            def database(self, name):
                return {'host': '127.0.0.1', 'port': 1, 'user': 'lab',
                        'password': 'lab', 'database': name}

        error = self.assertRaises(view.ViewError, view.read, Settings())
        self.assertIn('tools/lab up', str(error))
