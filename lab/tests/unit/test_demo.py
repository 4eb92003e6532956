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

import types

from oslotest import base

from lab import demo
from lab import errors


class StoryTestCase(base.BaseTestCase):

    def told(self, **measured):
        return ' '.join(demo.Story(
            computes=3, nodes=30, split=(8, 10, 12), killed='compute-2',
            **measured).lines())

    def test_tells_what_was_measured(self):
        told = self.told(noticed=8.2, arrived=11.9, free=7, moves=8,
                         again_on='compute-1', returned=6)
        for part in ('3 nova-computes shared 30', '8, 10, 12', '8.2 s',
                     '11.9 s', 'its 7 free nodes', 'in 8 moves',
                     'on compute-1', 'it had 6 free nodes',
                     'no free node was recorded'):
            self.assertIn(part, told)

    def test_does_not_hide_nodes_on_a_dead_compute(self):
        self.assertIn('up to 4 free nodes were recorded', self.told(on_dead=4))

    def test_does_not_hide_stranded_servers(self):
        self.assertIn('Not done yet: the 2 server(s)',
                      self.told(stranded=2))
        self.assertNotIn('Not done yet', self.told(stranded=0))


class RunTestCase(base.BaseTestCase):

    def test_too_few_nodes_for_a_story(self):
        args = types.SimpleNamespace(computes=3, nodes=5, keep=False)
        error = self.assertRaises(errors.LabError, demo.run, args, None)
        self.assertIn('12 nodes', str(error))
