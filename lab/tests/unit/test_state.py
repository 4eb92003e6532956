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

import pathlib

import fixtures
from oslotest import base

from lab import settings
from lab import state


class StateTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = settings.load(directory / 'lab', 20000)
        self.state = state.State(self.settings)

    def test_nothing_written_means_down(self):
        self.assertEqual({'phase': 'down'}, self.state.read())

    def test_broken_file_means_down(self):
        self.state.write('up')
        self.settings.state_file.write_text('{')
        self.assertEqual({'phase': 'down'}, self.state.read())

    def test_another_command_reads_what_was_written(self):
        self.state.write('up', computes=['compute-1'], nodes=3)
        found = state.State(self.settings).read()
        self.assertEqual(
            {'phase': 'up', 'base_port': 20000, 'computes': ['compute-1'],
             'nodes': 3}, found)
