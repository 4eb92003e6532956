# SPDX-License-Identifier: Apache-2.0

import pathlib
import shutil

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools


class ConstraintsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.constraints = tools.load('constraints')
        copy = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copytree(self.constraints.DIRECTORY, copy, dirs_exist_ok=True)
        self.constraints.DIRECTORY = copy

    def complaints(self):
        return [sentence for series in self.constraints.SERIES
                for sentence in self.constraints.complaints(series)]

    def test_the_tree_is_as_generated(self):
        self.assertEqual([], self.complaints())

    def test_a_changed_pin_is_found(self):
        path = self.constraints.DIRECTORY / 'nova34.txt'
        path.write_text(path.read_text().replace('===34.0.0', '===34.0.1'))
        [sentence] = self.complaints()
        self.assertIn('nova34.txt is not as generated', sentence)

    def test_a_line_that_is_no_constraint_is_found(self):
        path = self.constraints.DIRECTORY / '2025.1.txt'
        path.write_text(path.read_text() + '<<<<<<< ours\n')
        [sentence] = self.complaints()
        self.assertIn('2025.1.txt', sentence)
        self.assertIn('is no constraint', sentence)

    def test_missing_files_are_found(self):
        (self.constraints.DIRECTORY / '2026.1.txt').unlink()
        (self.constraints.DIRECTORY / 'nova32.txt').unlink()
        self.assertEqual(2, len(self.complaints()))

    def test_what_nova_wants_newer_is_relaxed(self):
        series = self.constraints.SERIES[-1]
        text = self.constraints.base(
            series, 'keystoneauth1===5.1.0\ntooz===9.0.1\n')
        self.assertIn('\nkeystoneauth1>=5.17.0\ntooz===9.0.1\n', text)
        self.assertIn('\nkeystoneauth1===',
                      self.constraints.generated(series))
