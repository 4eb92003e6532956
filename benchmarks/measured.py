# SPDX-License-Identifier: Apache-2.0

"""A process of :mod:`.computing`: told what to do, and asked what it cost."""

from concurrent import futures
import contextlib
import json
import os
import subprocess

from lab import computes
from lab import errors
from lab import processes
from lab import services


class Measured:
    """A compute service that audits when it is told. A context manager.

    :param settings: of a lab that is up.
    :param driver: 'ours' or 'stock'.
    :param options: 'SECTION.OPTION=VALUE' strings for nova.
    :param host: what it is called.
    """

    def __init__(self, settings, driver, options, host='compute-1'):
        computes.Computes(settings).configure([host], driver, options)
        self._settings = settings
        self._host = host
        self._processes = processes.Processes(settings.run, settings.logs)

    def __enter__(self):
        settings = self._settings
        self._log = open(settings.logs / 'benchmark.log', 'a')
        self._child = subprocess.Popen(
            [settings.program('python'), '-m', 'benchmarks.computing',
             str(settings.conf / 'nova' / f'{self._host}.conf')],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            text=True, bufsize=1, cwd=settings.repository,
            env=services.environment(settings)
            | {'PYTHONPATH': str(settings.repository)})
        self._answer()
        return self

    def __exit__(self, *error):
        self._child.stdin.close()
        self._child.wait()
        self._log.close()

    def __call__(self, command, *values):
        """Have something done; return what it cost.

        :param command: a method of :class:`.computing.Compute`.
        :param values: what it is called with.
        """
        before = self._servers()
        self._child.stdin.write(json.dumps([command, *values]) + '\n')
        found = self._answer()
        for name, seconds in self._servers().items():
            found[name] = seconds - before[name]
        return found

    def _answer(self):
        line = self._child.stdout.readline()
        if not line:
            raise errors.LabError(
                f'The compute service ended; see {self._log.name}')
        return json.loads(line)

    def _servers(self):
        return servers(self._processes)


class Together:
    """Compute services that do things at the same time. A context manager.

    :param services: of :class:`Measured`, which it enters.
    """

    def __init__(self, services):
        self._services = services

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self._ask = [stack.enter_context(one) for one in self._services]
            self._pool = stack.enter_context(
                futures.ThreadPoolExecutor(len(self._ask)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self._stack.__exit__(*error)

    def begin(self, command, *values):
        """Have each begin something; return a future of each."""
        return [self._pool.submit(ask, command, *values)
                for ask in self._ask]

    def __call__(self, command, *values):
        """Have each do something; return what it cost each."""
        return [one.result() for one in self.begin(command, *values)]


#: Names of processes by what their CPU is called.
SERVERS = {'ironic': 'ironic', 'mariadb': 'mariadb', 'placement': 'placement',
           'conductor': 'nova-conductor'}


def servers(processes):
    """Return {name: seconds} that the services of a lab have used.

    :param processes: :class:`lab.processes.Processes`.
    """
    return dict(zip(SERVERS, cpu(*(processes.pid(service) for service
                                   in SERVERS.values())), strict=True))


def cpu(*pids):
    """Return the seconds that each process and its children have used."""
    parents, used = {}, {}
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            try:
                with open(f'/proc/{entry}/stat') as stat:
                    rest = stat.read().rpartition(')')[2].split()
            except OSError:
                continue
            parents[int(entry)] = int(rest[1])
            used[int(entry)] = int(rest[11]) + int(rest[12])
    ticks = os.sysconf('SC_CLK_TCK')
    return [sum(used.get(one, 0) for one in _family(pid, parents)) / ticks
            for pid in pids]


def _family(pid, parents):
    family = {pid}
    while more := {child for child, parent in parents.items()
                   if parent in family} - family:
        family |= more
    return family
