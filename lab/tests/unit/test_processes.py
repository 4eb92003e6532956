# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import signal
import subprocess
import sys
import time

import fixtures
from oslotest import base

from lab import errors
from lab import processes

_DEADLINE = 20


class ProcessesTestCase(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.run_directory = top / 'run'
        self.logs = top / 'logs'
        self.processes = self.make()
        self.addCleanup(self.processes.sweep)

    def make(self):
        return processes.Processes(self.run_directory, self.logs)

    def spawn(self, name, script):
        return self.processes.spawn(
            name, [sys.executable, '-c', script], dict(os.environ))

    def sleeper(self, name='one'):
        return self.spawn(name, 'import time; time.sleep(600)')

    def eventually(self, condition):
        deadline = time.monotonic() + _DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def pid_said(self, name):
        """The pid that a process has printed."""
        log = self.processes.log(name)
        self.eventually(lambda: log.read_text().endswith('\n'))
        return int(log.read_text())

    def gone(self, pid):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        stat = pathlib.Path(f'/proc/{pid}/stat').read_text()
        return stat.rpartition(')')[2].split()[0] == 'Z'

    def test_state_follows_the_process(self):
        self.assertEqual('stopped', self.processes.state('one'))
        self.sleeper()
        self.assertEqual('running', self.processes.state('one'))
        self.processes.signal('one', signal.SIGSTOP)
        self.eventually(lambda: self.processes.state('one') == 'paused')
        self.processes.signal('one', signal.SIGCONT)
        self.eventually(lambda: self.processes.state('one') == 'running')
        self.processes.kill(['one'])
        self.assertEqual('stopped', self.processes.state('one'))
        self.assertEqual([], self.processes.names())

    def test_another_command_knows_it_too(self):
        started = self.sleeper()
        self.assertEqual(started.pid, self.make().pid('one'))

    def test_no_second_one_of_a_name(self):
        self.sleeper()
        self.assertRaises(errors.LabError, self.sleeper)

    def test_stop_is_polite_first(self):
        self.spawn('one', (
            'import signal, time\n'
            'def end(*_): print("bye", flush=True); raise SystemExit\n'
            'signal.signal(signal.SIGTERM, end)\n'
            'print("ready", flush=True); time.sleep(600)'))
        log = self.processes.log('one')
        self.eventually(lambda: 'ready' in log.read_text())
        self.processes.stop(['one'], _DEADLINE)
        self.assertIn('bye', log.read_text())

    def test_stop_ends_one_that_does_not_listen(self):
        self.spawn('one', (
            'import signal, time\n'
            'signal.signal(signal.SIGTERM, signal.SIG_IGN)\n'
            'print("ready", flush=True); time.sleep(600)'))
        self.eventually(
            lambda: 'ready' in self.processes.log('one').read_text())
        self.processes.stop(['one'], 0)
        self.assertEqual('stopped', self.processes.state('one'))

    def test_stop_ends_a_frozen_one(self):
        self.sleeper()
        self.processes.signal('one', signal.SIGSTOP)
        self.processes.stop(['one'], _DEADLINE)
        self.assertEqual('stopped', self.processes.state('one'))

    def test_children_end_with_their_parent(self):
        self.spawn('one', (
            'import subprocess, sys, time\n'
            'child = subprocess.Popen(["sleep", "600"])\n'
            'print(child.pid, flush=True); time.sleep(600)'))
        child = self.pid_said('one')
        self.processes.kill(['one'])
        self.eventually(lambda: self.gone(child))

    def test_orphans_are_found_by_their_session(self):
        self.spawn('one', (
            'import subprocess\n'
            'child = subprocess.Popen(["sleep", "600"])\n'
            'print(child.pid, flush=True)')).wait()
        child = self.pid_said('one')
        self.assertFalse(self.gone(child))
        self.processes.stop(self.processes.names(), 0)
        self.eventually(lambda: self.gone(child))

    def test_sweep_finds_one_that_left_its_session(self):
        self.spawn('one', (
            'import subprocess\n'
            'child = subprocess.Popen(["sleep", "600"], '
            'start_new_session=True)\n'
            'print(child.pid, flush=True)')).wait()
        child = self.pid_said('one')
        self.processes.stop(self.processes.names(), 0)
        self.assertFalse(self.gone(child))
        self.make().sweep()
        self.eventually(lambda: self.gone(child))

    def test_sweep_leaves_other_labs_alone(self):
        self.sleeper()
        other = processes.Processes(
            self.run_directory.with_name('run2'), self.logs)
        other.sweep()
        self.assertEqual('running', self.processes.state('one'))

    def test_recycled_pid_is_never_signalled(self):
        self.sleeper()
        stranger = subprocess.Popen(['sleep', '600'], start_new_session=True)
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        pid_file = self.run_directory / 'one.pid'
        mine = self.processes.pid('one')
        # As if our process had ended and its pid were the stranger's now.
        line, boot = pid_file.read_text().splitlines()
        fields = line.rpartition(')')[2].split()
        fields[3] = str(stranger.pid)
        # Here both may have started in the same hundredth of a second.
        fields[19] = str(int(fields[19]) - 1)
        pid_file.write_text(f'{stranger.pid} (x) {" ".join(fields)}\n{boot}\n')
        self.assertEqual('stopped', self.processes.state('one'))
        self.processes.signal('one', signal.SIGKILL)
        self.processes.stop(['one'], 0)
        self.assertIsNone(stranger.poll())
        os.kill(mine, signal.SIGKILL)

    def test_pid_file_of_an_earlier_boot_counts_as_stopped(self):
        self.sleeper()
        pid_file = self.run_directory / 'one.pid'
        before = pid_file.read_text()
        pid_file.write_text(before.splitlines()[0] + '\nanother boot\n')
        self.assertEqual('stopped', self.processes.state('one'))

    def test_cut_off_pid_file_counts_as_stopped(self):
        self.run_directory.mkdir(parents=True)
        (self.run_directory / 'one.pid').write_text('')
        self.assertEqual('stopped', self.processes.state('one'))
        self.processes.stop(['one'], 0)
        self.assertEqual([], self.processes.names())

    def test_program_that_is_not_there(self):
        self.processes.spawn('one', ['/no/such/program'], {}).wait()
        self.assertEqual('stopped', self.processes.state('one'))
        self.assertIn('/no/such/program', self.processes.tail('one'))

    def test_tail(self):
        self.spawn('one', 'print("1\\n2\\n3")').wait()
        self.assertEqual('2\n3', self.processes.tail('one', 2))
        self.assertEqual('(no log)', self.processes.tail('none'))
