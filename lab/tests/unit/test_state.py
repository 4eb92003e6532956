# SPDX-License-Identifier: Apache-2.0

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
