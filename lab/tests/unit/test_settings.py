# SPDX-License-Identifier: Apache-2.0

import itertools
import json
import pathlib

import fixtures
from oslotest import base

from lab import errors
from lab import settings


class SettingsTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name in ('LAB_DIR', 'LAB_VENV', 'LAB_BASE_PORT'):
            self.useFixture(fixtures.EnvironmentVariable(name))

    def record(self, **state):
        (self.directory / 'state.json').write_text(json.dumps(state))

    def test_each_listener_has_a_port_of_its_own(self):
        found = settings.load(self.directory, 20000)
        ports = [found.port(name) for name in settings.PORT_NAMES]
        self.assertEqual(len(ports), len(set(ports)))
        self.assertEqual(20000, min(ports))

    def test_labs_a_block_apart_share_no_port(self):
        one = settings.load(self.directory, 20000)
        other = settings.load(self.directory,
                              20000 + len(settings.PORT_NAMES))
        self.assertEqual(set(), {one.port(n) for n in settings.PORT_NAMES}
                         & {other.port(n) for n in settings.PORT_NAMES})

    def test_argument_goes_before_environment(self):
        self.useFixture(fixtures.EnvironmentVariable('LAB_BASE_PORT', '21000'))
        self.useFixture(fixtures.EnvironmentVariable('LAB_DIR', '/elsewhere'))
        self.assertEqual(
            (self.directory, 20000),
            (settings.load(self.directory, 20000).directory,
             settings.load(self.directory, 20000).base_port))
        self.assertEqual(
            (pathlib.Path('/elsewhere'), 21000),
            (settings.load().directory, settings.load().base_port))

    def test_port_is_kept_while_the_lab_is_down(self):
        self.record(base_port=22000, phase='down')
        self.assertEqual(22000, settings.load(self.directory).base_port)
        self.assertEqual(20000, settings.load(self.directory, 20000).base_port)

    def test_port_of_a_lab_that_is_up_cannot_be_changed(self):
        for phase in ('up', 'starting'):
            self.record(base_port=22000, phase=phase)
            self.assertEqual(
                22000, settings.load(self.directory, 20000).base_port)

    def test_each_release_has_an_environment_of_its_own(self):
        places = [settings.load(self.directory, release=release)
                  for release in settings.RELEASES]
        self.assertEqual(len(places), len({p.venv for p in places}))
        self.assertEqual(len(places), len({p.snapshot for p in places}))
        for place in places:
            for path in (*place.requirements, place.constraints):
                self.assertTrue(path.is_file(), path)
        self.assertEqual(places[-1], settings.load(self.directory))

    def test_release_before_in_the_environment_that_it_has(self):
        for older, newer in itertools.pairwise(settings.RELEASES):
            self.assertEqual(
                settings.load(self.directory, release=older),
                settings.load(self.directory, release=newer).before())

    def test_no_release_before_the_oldest(self):
        oldest = settings.load(self.directory, release=settings.RELEASES[0])
        self.assertIn('--release', str(
            self.assertRaises(errors.LabError, oldest.before)))

    def test_release_of_a_lab_that_is_up_cannot_be_changed(self):
        self.record(base_port=22000, phase='up', release='2025.1')
        found = settings.load(self.directory)
        self.assertEqual('2025.1', found.release)
        self.assertEqual(found, settings.load(self.directory,
                                              release='2025.1'))
        error = self.assertRaises(errors.LabError, settings.load,
                                  self.directory, release='2026.1')
        self.assertIn('tools/lab down', str(error))

    def test_release_of_a_lab_that_is_down_is_forgotten(self):
        self.record(base_port=22000, phase='down', release='2025.1')
        self.assertEqual(settings.DEFAULT_RELEASE,
                         settings.load(self.directory).release)

    def test_lab_of_an_older_checkout(self):
        self.record(base_port=22000, phase='up')
        self.assertEqual(settings.DEFAULT_RELEASE,
                         settings.load(self.directory).release)

    def test_impossible_port(self):
        for port in (80, 65530, 'http'):
            error = self.assertRaises(
                errors.LabError, settings.load, self.directory, port)
            self.assertIn('--base-port', str(error))

    def test_unreadable_state_counts_as_none(self):
        (self.directory / 'state.json').write_text('{"base_p')
        self.assertEqual(settings.DEFAULT_BASE_PORT,
                         settings.load(self.directory).base_port)
