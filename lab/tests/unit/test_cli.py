# SPDX-License-Identifier: Apache-2.0

import contextlib
import io
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from lab import cli
from lab import computes


class CommandLineTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, value in (('LAB_DIR', str(self.top / 'lab')),
                            ('LAB_VENV', str(self.top / 'venv')),
                            ('LAB_BASE_PORT', '20000')):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.useFixture(fixtures.MockPatch('signal.signal'))

    def run_lab(self, *argv):
        """Run a command: (exit status, stdout, stderr)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = cli.main(list(argv))
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), err.getvalue()

    def test_each_command_explains_itself(self):
        for command in ('up', 'down', 'status', 'compute', 'boot', 'delete',
                        'check', 'logs', 'run', 'demo', 'compute kill',
                        'service', 'service pause'):
            status, out, _ = self.run_lab(*command.split(), '--help')
            self.assertEqual(0, status, command)
            self.assertIn(f'tools/lab {command}', out)

    def test_help_writes_nothing(self):
        self.run_lab('--help')
        self.run_lab('up', '--help')
        self.assertEqual([], list(self.top.iterdir()))

    def test_down_works_when_nothing_was_ever_up(self):
        for _ in range(2):
            self.assertEqual(0, self.run_lab('down')[0])

    def test_up_names_the_commands_to_type_next(self):
        shape = {'computes': ['compute-1', 'compute-2'], 'nodes': 30,
                 'driver': 'ours'}
        self.assertEqual(
            'The lab is up after 9 s: 2 computes, 30 nodes, driver ours. '
            'Next:\n  . /lab/openrc\n  nova-ironic-multihost list',
            cli._up_text('after 9 s', shape, False, '/lab/openrc'))

    def test_bad_port_is_one_sentence(self):
        status, _, err = self.run_lab('--base-port', '80', 'down')
        self.assertEqual(1, status)
        self.assertEqual(1, len(err.splitlines()))

    def test_bad_count(self):
        status, _, err = self.run_lab('up', '--nodes', '0')
        self.assertEqual(2, status)
        self.assertIn('must be 1 or more', err)

    def test_nothing_installed_yet(self):
        status, _, err = self.run_lab('compute', 'kill', 'compute-1')
        self.assertEqual(1, status)
        self.assertIn('tools/lab up', err)

    def test_a_compute_may_start_with_a_wrong_clock(self):
        with mock.patch.object(cli, '_enter_venv'), \
                mock.patch.object(computes.Computes, 'start') as start, \
                mock.patch.object(computes.Computes, 'start_at') as start_at:
            self.run_lab('compute', 'start', 'compute-1')
            start_at.assert_not_called()
            self.run_lab('compute', 'start', 'compute-1', '--ahead', '-90')
        start.assert_called_once_with('compute-1')
        start_at.assert_called_once_with('compute-1', -90)

    def test_unknown_log_names_the_known_ones(self):
        logs = self.top / 'lab' / 'logs'
        logs.mkdir(parents=True)
        (logs / 'ironic.log').write_text('hello\n')
        status, _, err = self.run_lab('logs', 'iron')
        self.assertEqual(1, status)
        self.assertIn('ironic', err)
        status, out, _ = self.run_lab('logs', 'ironic')
        self.assertEqual((0, 'hello\n'), (status, out))

    def test_directory_of_another_user(self):
        error = PermissionError(13, 'Permission denied', '/lab/run')
        with mock.patch('lab.stack.Stack.down', side_effect=error):
            status, _, err = self.run_lab('down')
        self.assertEqual(1, status)
        self.assertIn('--dir', err)

    def test_interrupted(self):
        with mock.patch('lab.stack.Stack.down',
                        side_effect=KeyboardInterrupt):
            self.assertEqual(130, self.run_lab('down')[0])
