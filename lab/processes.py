# SPDX-License-Identifier: Apache-2.0

"""The processes of a lab: start them, know them again, end them.

A process is known by its pid file, which is a copy of the kernel's line
about it; the start time in there tells it from a later process with the
same pid. Each one leads a session of its own, and its children stay in
there. As a last resort all of them carry a mark in their environment.
Standard library only: ``down`` has to work when nothing else does.
"""

import os
import pathlib
import signal
import subprocess
import time
import typing

from lab import errors

_MARK = 'LAB_MEMBER_OF'
# The shell signs for the process that it then becomes, so that a command
# that is killed right after the fork leaves no process without a pid file.
_SIGN_AND_EXEC = ('cat /proc/$$/stat /proc/sys/kernel/random/boot_id'
                  ' > "$0.new" && mv "$0.new" "$0" && exec "$@"')


class Status(typing.NamedTuple):
    """What the kernel says about a process."""

    pid: int
    state: str
    session: int
    start: int


class Processes:
    """All processes of one lab.

    :param run: directory of the pid files
    :param logs: directory of the log files
    """

    def __init__(self, run, logs):
        self._run = pathlib.Path(run)
        self._logs = pathlib.Path(logs)
        self._mark = f'{_MARK}={self._run}'.encode()

    def names(self):
        """Names that have a pid file, sorted, alive or not."""
        return sorted(path.stem for path in self._run.glob('*.pid'))

    def log(self, name):
        """Path of the log file of a process."""
        return self._logs / f'{name}.log'

    def spawn(self, name, argv, environment):
        """Start a process; its output is appended to its log.

        :param argv: program and arguments
        :param environment: the whole environment of the process
        :returns: the subprocess.Popen of it
        :raises LabError: when it runs already or does not start
        """
        if self.state(name) != 'stopped':
            raise errors.LabError(f'{name} is running already.')
        for directory in (self._run, self._logs):
            directory.mkdir(parents=True, exist_ok=True)
        pid_file = self._pid_file(name)
        pid_file.unlink(missing_ok=True)
        environment = environment | {_MARK: str(self._run)}
        with open(self.log(name), 'ab') as log:
            process = subprocess.Popen(
                ['/bin/sh', '-c', _SIGN_AND_EXEC, str(pid_file), *argv],
                cwd=self._run, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True)
        while not pid_file.exists():
            if process.poll() is not None:
                raise errors.LabError(
                    f'{name} did not start: {self.tail(name, 1)}')
            time.sleep(0.005)
        return process

    def state(self, name):
        """'running', 'stopped' or 'paused'."""
        status = self._status(name)
        if status is None:
            return 'stopped'
        return 'paused' if status.state in 'Tt' else 'running'

    def pid(self, name):
        """The pid, or None when the process is gone."""
        status = self._status(name)
        return status.pid if status else None

    def tail(self, name, lines=15):
        """The last lines of the log as one string."""
        try:
            text = self.log(name).read_text(errors='replace')
        except OSError:
            return '(no log)'
        return '\n'.join(text.splitlines()[-lines:])

    def signal(self, name, number):
        """Send a signal to a process and to its children.

        The leader gets it first, so that it cannot replace a child.
        """
        for status in self._families([name]):
            _send(status, number)

    def stop(self, names, patience):
        """End processes, politely at first.

        :param names: iterable of names; they are ended at the same time
        :param patience: seconds from SIGTERM to SIGKILL
        """
        names = list(names)
        for name in names:
            leader = self._status(name)
            if leader:
                # A frozen process would never see the SIGTERM.
                _send(leader, signal.SIGTERM)
                self.signal(name, signal.SIGCONT)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._families(names):
            time.sleep(0.05)
        self.kill(names)

    def kill(self, names):
        """End processes and their children with SIGKILL, now."""
        names = list(names)
        self._until_gone(lambda: self._families(names))
        for name in names:
            self._pid_file(name).unlink(missing_ok=True)

    def sweep(self):
        """End whatever carries this lab's mark, with or without pid file."""
        self._until_gone(self._marked)

    def _until_gone(self, remaining):
        deadline = time.monotonic() + 20
        while family := remaining():
            if time.monotonic() > deadline:
                raise errors.LabError(
                    'These processes survive SIGKILL: {}; look at them with '
                    '"ps".'.format(', '.join(str(s.pid) for s in family)))
            for status in family:
                _send(status, signal.SIGKILL)
            time.sleep(0.02)

    def _pid_file(self, name):
        return self._run / f'{name}.pid'

    def _status(self, name):
        """Status of the leader, None when it is gone."""
        recorded = self._recorded(name)
        current = recorded and _status_of(recorded.pid)
        if not current or current.start != recorded.start:
            return None
        return current

    def _recorded(self, name):
        try:
            line, boot = self._pid_file(name).read_text().splitlines()
        except (OSError, ValueError):
            return None
        if boot != _boot():
            return None
        return _parsed(line)

    def _families(self, names):
        """The living processes with their children, parents first."""
        everything = _all()
        found = []
        for leader in filter(None, map(self._recorded, names)):
            family = [status for status in everything
                      if status.session == leader.pid
                      and status.start >= leader.start]
            if not any(status.pid == leader.pid
                       and status.start == leader.start
                       for status in family):
                # The session may be a stranger's that got our old number.
                family = [s for s in family if self._is_marked(s.pid)]
            found += sorted(
                family, key=lambda s: (s.pid != s.session, s.start))
        return found

    def _marked(self):
        return [s for s in _all() if self._is_marked(s.pid)]

    def _is_marked(self, pid):
        try:
            environment = pathlib.Path(f'/proc/{pid}/environ').read_bytes()
        except OSError:
            return False
        return self._mark in environment.split(b'\0')


def _boot():
    return pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()


def _all():
    """Status of every process that lives."""
    found = (_status_of(int(entry)) for entry in os.listdir('/proc')
             if entry.isdigit())
    return [status for status in found if status]


def _status_of(pid):
    """Status of a process, None when it is dead or a zombie."""
    try:
        line = pathlib.Path(f'/proc/{pid}/stat').read_text(errors='replace')
    except OSError:
        return None
    status = _parsed(line)
    return None if status.state in 'ZX' else status


def _parsed(line):
    # The name in parentheses may hold blanks and parentheses itself.
    head, _, rest = line.rpartition(')')
    fields = rest.split()
    return Status(pid=int(head.split()[0]), state=fields[0],
                  session=int(fields[3]), start=int(fields[19]))


def _send(status, number):
    """Signal a process unless its pid belongs to another one by now."""
    current = _status_of(status.pid)
    if current is None or current.start != status.start:
        return
    try:
        os.kill(status.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise errors.LabError(
            f'Process {status.pid} of this lab belongs to another user; '
            'run this command as that user or as root.') from error
