# SPDX-License-Identifier: Apache-2.0

import dataclasses
import io
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from lab import errors
from lab import install
from lab import progress
from lab import settings


class InstallTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.settings = dataclasses.replace(
            settings.load(top / 'lab', 20000), venv=top / 'venv')
        self.install = install.Install(
            self.settings, progress.Progress(io.StringIO()))
        self.calls = []
        self.fails_at = None
        self.useFixture(fixtures.MockPatch(
            'subprocess.run', side_effect=self.call))
        self.programs = self.useFixture(fixtures.MockPatch(
            'shutil.which', return_value='/bin/x')).mock
        self.useFixture(fixtures.MockPatchObject(
            install, '_POLICY', top / 'policy-rc.d'))

    def call(self, argv, **_):
        """Stands for a program: a venv becomes a directory."""
        self.calls.append(' '.join(argv))
        if self.fails_at and self.fails_at in self.calls[-1]:
            return mock.Mock(returncode=1)
        if 'venv --clear' in self.calls[-1]:
            (self.settings.venv / 'bin').mkdir(parents=True, exist_ok=True)
            (self.settings.venv / 'bin' / 'python').touch()
        return mock.Mock(returncode=0)

    def called(self, text):
        return [call for call in self.calls if text in call]

    def user(self, uid):
        self.useFixture(fixtures.MockPatch('os.geteuid', return_value=uid))

    def ensure_venv(self):
        with mock.patch.object(self.install, '_missing_packages',
                               return_value=[]):
            self.install.ensure()

    def test_second_time_does_nothing(self):
        self.ensure_venv()
        self.assertTrue(self.install.done())
        self.calls.clear()
        self.ensure_venv()
        self.assertEqual([], self.calls)

    def test_uv_in_the_place_of_pip(self):
        self.useFixture(fixtures.EnvironmentVariable('LAB_UV', '/x/uv'))
        self.ensure_venv()
        self.assertEqual(2, len(self.called(
            f'/x/uv pip install --python {self.settings.venv}')))
        self.assertEqual([], self.called('-m pip'))

    def test_uv_that_is_not_there(self):
        self.useFixture(fixtures.EnvironmentVariable('LAB_UV', '/x/uv'))
        self.programs.return_value = None
        error = self.assertRaises(errors.LabError, self.ensure_venv)
        self.assertIn('LAB_UV=/x/uv', str(error))

    def test_install_that_failed_is_taken_up_again(self):
        self.fails_at = 'requirements.txt'
        error = self.assertRaises(errors.LabError, self.ensure_venv)
        self.assertIn('install.log', str(error))
        self.assertFalse(self.install.done())
        self.fails_at = None
        self.ensure_venv()
        self.assertEqual(2, len(self.called('venv --clear')))
        self.assertTrue(self.install.done())

    def test_failed_driver_keeps_the_rest(self):
        self.fails_at = '--no-deps'
        self.assertRaises(errors.LabError, self.ensure_venv)
        self.fails_at = None
        self.ensure_venv()
        self.assertEqual(1, len(self.called('venv --clear')))
        self.assertTrue(self.install.done())

    def test_changed_requirements_start_anew(self):
        self.ensure_venv()
        stamp = self.settings.venv / 'lab-venv-stamp'
        stamp.write_text('of other requirements')
        self.assertFalse(self.install.done())
        self.ensure_venv()
        self.assertEqual(2, len(self.called('venv --clear')))

    def test_interpreter_that_is_gone_starts_anew(self):
        self.ensure_venv()
        (self.settings.venv / 'bin' / 'python').unlink()
        self.assertFalse(self.install.done())

    def test_without_root_the_command_is_named(self):
        self.user(1000)
        self.programs.return_value = None
        error = self.assertRaises(errors.LabError, self.install.ensure)
        for word in ('sudo apt-get update', 'mariadb-server',
                     'rabbitmq-server', 'memcached'):
            self.assertIn(word, str(error))
        self.assertEqual([], self.calls)

    def test_apt_starts_no_daemon(self):
        self.user(0)
        policies = []

        def apt(argv, **_):
            policies.append(install._POLICY.exists())
            return mock.Mock(returncode=0)
        with mock.patch('subprocess.run', apt):
            self.install._apt(['memcached'])
        # update, install, afterwards
        self.assertEqual([False, True], policies)
        self.assertFalse(install._POLICY.exists())

    def test_policy_of_the_machine_is_left_alone(self):
        self.user(0)
        install._POLICY.write_text('theirs')
        self.install._apt(['memcached'])
        self.assertEqual('theirs', install._POLICY.read_text())

    def test_our_policy_left_by_a_killed_install_is_removed(self):
        self.user(0)
        install._POLICY.write_text(install._POLICY_TEXT)
        self.install._apt(['memcached'])
        self.assertFalse(install._POLICY.exists())
