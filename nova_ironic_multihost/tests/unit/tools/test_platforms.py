# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import os
import pathlib
import subprocess
from unittest import mock

import fixtures
from oslotest import base

from nova_ironic_multihost.tests.unit import tools

UNITTEST = """\
test_one (tests.OneTestCase.test_one) ... ok

----------------------------------------------------------------------
Ran 4 tests in 3.210s
""".splitlines()


class CountTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.platforms = tools.load('platforms')

    def test_tests(self):
        self.assertEqual((3012, 2), self.platforms.count(
            ['=== py3-nova34: 3 passed, 2 failed in 1 s',
             '3012 passed, 2 failed'], 1))

    def test_packages(self):
        self.assertEqual((4, 0), self.platforms.count(UNITTEST + ['OK'], 0))
        self.assertEqual((1, 3), self.platforms.count(
            UNITTEST + ['FAILED (failures=1, errors=2)'], 1))

    def test_lab_counts_as_one(self):
        self.assertEqual((1, 0), self.platforms.count(['Done.'], 0))
        self.assertEqual((0, 1), self.platforms.count(['Nothing.'], 1))

    def test_a_crash_is_one_failed_test(self):
        self.assertEqual((4, 1), self.platforms.count(UNITTEST, -9))


class SystemTestCase(base.BaseTestCase):
    """The steps on a system, with programs of ours."""

    def setUp(self):
        super().setUp()
        self.platforms = tools.load('platforms')
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.programs = self.top / 'bin'
        self.programs.mkdir()
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', f'{self.programs}:/usr/bin:/bin'))
        for name in self.platforms.CERTIFICATES:
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.program('debootstrap', 'mkdir -p $3/usr/sbin $3/usr/local/share '
                     '$3/etc/apt/apt.conf.d $3/root')
        self.program('setpriv')
        self.system = self.platforms.System(
            self.platforms.PLATFORMS[0], self.top / 'platforms',
            'http://mirror', 27000)

    def program(self, name, script=''):
        path = self.programs / name
        path.write_text(
            f'#!/bin/sh\necho {name} $* >> {self.top}/called\n{script}\n')
        path.chmod(0o755)

    def called(self, name):
        """Return the commands in which a word was, and forget all."""
        path = self.top / 'called'
        lines = path.read_text().splitlines() if path.exists() else []
        path.write_text('')
        return [line for line in lines if name in line.split()]

    def make(self):
        with contextlib.redirect_stdout(io.StringIO()):
            self.system.make()

    def test_is_made_once_and_then_brought_up_to_date(self):
        self.make()
        self.assertEqual(1, len(self.called('debootstrap')))
        self.make()
        called = self.called('setpriv')
        self.assertEqual(
            ['update', 'full-upgrade', 'install'],
            [word for line in called for word in line.split()
             if word in ('update', 'full-upgrade', 'install')])

    def test_services_of_packages_are_not_started(self):
        self.make()
        policy = self.system.root / 'usr' / 'sbin' / 'policy-rc.d'
        self.assertEqual(101, subprocess.run([policy]).returncode)

    def test_a_mirror_may_be_behind(self):
        self.make()
        text = (self.system.root / self.platforms.APT_CONFIGURATION
                ).read_text()
        self.assertEqual('Acquire::Check-Valid-Until "false";\n', text)

    def test_one_that_was_cut_off_is_made_anew(self):
        self.program('debootstrap', 'mkdir -p $3/half; echo No route >&2; '
                     'exit 1')
        error = self.assertRaises(self.platforms.PlatformError, self.make)
        self.assertIn('No route', str(error))
        self.assertFalse(self.system.root.exists())
        self.program('debootstrap',
                     'mkdir -p $3/usr/sbin $3/etc/apt/apt.conf.d')
        self.make()
        self.assertFalse((self.system.root / 'half').exists())

    def test_a_command_that_fails_is_told_with_the_end_of_its_log(self):
        self.program('setpriv', 'echo No space left; exit 100')
        error = self.assertRaises(self.platforms.PlatformError, self.make)
        self.assertIn('No space left', str(error))
        self.assertIn('"apt-get update" failed', str(error))

    def test_trusts_what_the_host_trusts(self):
        (self.top / 'proxy.crt').write_text('certificate')
        self.useFixture(fixtures.EnvironmentVariable(
            'SSL_CERT_FILE', str(self.top / 'proxy.crt')))
        self.make()
        inside = self.platforms.CERTIFICATES_INSIDE
        self.assertEqual(
            'certificate', (self.system.root / inside).read_text())
        self.assertIn(f' PIP_CERT=/{inside} ', self.called('setpriv')[-1])

    def test_of_the_environment_proxies_alone_go_in(self):
        for name, value in (('https_proxy', 'http://p'), ('PYENV_ROOT', '/p')):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.make()
        called = self.called('setpriv')[-1]
        self.assertIn(' https_proxy=http://p ', called)
        self.assertNotIn('PYENV_ROOT', called)

    def test_what_runs_inside_is_ended_with_us(self):
        process = mock.MagicMock()
        process.__enter__.return_value = process
        process.stdout.__iter__.side_effect = KeyboardInterrupt
        with mock.patch('subprocess.Popen', return_value=process):
            self.assertRaises(KeyboardInterrupt, self.system.tests)
        process.kill.assert_called_once_with()

    def test_steps(self):
        self.make()
        for step, word in (('tests', 'tools/test'), ('packages', 'unittest'),
                           ('lab', 'tools/lab')):
            self.assertEqual((1, 0), getattr(self.system, step)())
            self.assertEqual(1, len(self.called(word)))


class CopyTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.platforms = tools.load('platforms')
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.source = top / 'source'
        self.source.mkdir()
        self.useFixture(fixtures.MockPatchObject(
            self.platforms, 'REPOSITORY', self.source))
        self.git('init', '--quiet')
        self.write('committed', 'then')
        self.write('removed', 'then')
        self.write('.gitignore', 'ignored')
        self.git('add', '.')
        self.git('-c', 'user.name=a', '-c', 'user.email=a@example.com',
                 'commit', '--quiet', '--message', 'one')
        self.system = self.platforms.System(
            self.platforms.PLATFORMS[0], top / 'platforms', 'mirror', 1)
        self.target = self.system.root / self.platforms.CHECKOUT

    def git(self, *arguments):
        subprocess.run(['git', *arguments], cwd=self.source, check=True)

    def write(self, name, text):
        (self.source / name).parent.mkdir(exist_ok=True)
        (self.source / name).write_text(text)

    def copied(self):
        self.system.copy()
        return {str(path.relative_to(self.target)): path.read_text()
                for path in self.target.rglob('*')
                if path.is_file() and '.git' not in path.parts}

    def test_as_it_is_now(self):
        self.write('committed', 'now')
        self.write('new/one', 'now')
        self.write('ignored', 'now')
        (self.source / 'removed').unlink()
        now = {'.gitignore': 'ignored', 'committed': 'now', 'new/one': 'now'}
        self.assertEqual(now, self.copied())
        (self.source / 'new' / 'one').unlink()
        self.write('committed', 'then')
        # What the system has installed stays.
        (self.target / 'ignored').write_text('inside')
        self.assertEqual(
            {'.gitignore': 'ignored', 'committed': 'then',
             'ignored': 'inside'}, self.copied())


class RunTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.platforms = tools.load('platforms')
        self.platform = self.platforms.Platform(
            'one', 'suite', '34', ('tests', 'packages'))
        self.system = mock.Mock(**{
            'tests.return_value': (30, 0), 'packages.return_value': (4, 0)})

    def run_steps(self, *steps):
        """Return ([(step, passed, failed)], what was printed)."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            rows = [row[:3] for row in self.platforms.run(
                self.platform, self.system, steps)]
        return rows, out.getvalue()

    def test_those_that_were_asked_for(self):
        self.assertEqual(
            [('system', 0, 0), ('packages', 4, 0)],
            self.run_steps('packages', 'lab')[0])

    def test_without_a_system_there_are_no_steps(self):
        self.system.make.side_effect = self.platforms.PlatformError('No disk.')
        rows, printed = self.run_steps('tests', 'packages')
        self.assertEqual([('system', 0, 1)], rows)
        self.assertIn('No disk.', printed)

    def test_a_step_that_cannot_be_done_does_not_stop_the_others(self):
        self.system.tests.side_effect = self.platforms.PlatformError('No.')
        self.assertEqual(
            [('system', 0, 0), ('tests', 0, 1), ('packages', 4, 0)],
            self.run_steps('tests', 'packages')[0])

    def test_root_is_needed(self):
        with mock.patch('os.geteuid', return_value=1000):
            error = self.assertRaises(
                self.platforms.PlatformError, self.platforms.prepare)
        self.assertIn('sudo tools/platforms', str(error))

    def test_debootstrap_cannot_be_had(self):
        with (mock.patch('os.geteuid', return_value=0),
              mock.patch.dict(os.environ, PATH='/nowhere'),
              contextlib.redirect_stdout(io.StringIO())):
            error = self.assertRaises(
                self.platforms.PlatformError, self.platforms.prepare)
        self.assertIn('debian-archive-keyring', str(error))

    def test_report(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = self.platforms.report(
                [('one', 'tests', 30, 0, 60.0), ('one', 'lab', 0, 1, 9.0)])
        self.assertEqual(1, status)
        self.assertEqual('30 passed, 1 failed',
                         out.getvalue().splitlines()[-1])
