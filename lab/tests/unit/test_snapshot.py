# SPDX-License-Identifier: Apache-2.0

import pathlib

import fixtures
from oslotest import base

from lab import settings
from lab import snapshot


class SnapshotTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.EnvironmentVariable(
            'LAB_VENV', str(self.directory / 'venv')))
        self.settings = settings.load(self.directory / 'lab', 20000)
        self.snapshot = snapshot.Snapshot(self.settings)
        self.settings.data.mkdir(parents=True)
        self.file = self.settings.data / 'database'
        self.file.write_text('prepared')

    def test_restore_brings_back_what_was_taken(self):
        self.snapshot.take()
        self.file.write_text('used')
        (self.settings.data / 'more').write_text('used')
        self.snapshot.restore()
        self.assertEqual(['database'],
                         [p.name for p in self.settings.data.iterdir()])
        self.assertEqual('prepared', self.file.read_text())

    def test_valid_once_taken(self):
        self.assertFalse(self.snapshot.valid())
        self.snapshot.take()
        self.assertTrue(self.snapshot.valid())

    def test_half_a_copy_is_not_valid(self):
        self.snapshot.take()
        (self.settings.snapshot / 'stamp').unlink()
        self.assertFalse(self.snapshot.valid())

    def test_another_lab_of_the_same_environment_begins_with_it(self):
        self.snapshot.take()
        other = settings.load(self.directory / 'other', 21000)
        second = snapshot.Snapshot(other)
        self.assertTrue(second.valid())
        second.restore()
        self.assertEqual(
            'prepared', (other.data / self.file.name).read_text())
