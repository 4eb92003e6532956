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

from nova_ironic_multihost.client.upgrade import problem


class WordsTestCase(base.BaseTestCase):

    def test_a_few_names_of_many(self):
        self.assertEqual('a, b', problem.some(['a', 'b']))
        self.assertEqual('a, b and 1 more', problem.some(list('abc'), 2))

    def test_numbers(self):
        self.assertEqual('1 node', problem.counted(1, 'node'))
        self.assertEqual('2 nodes', problem.counted(2, 'node'))

    def test_what_is_not_said_to_stop_an_upgrade_does_not(self):
        self.assertFalse(problem.Problem('Do it.').fatal)
