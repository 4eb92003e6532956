# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What it costs to know which nodes there are, nova's driver beside ours.

On a real Ironic API, MariaDB, RabbitMQ and nova-conductor. One compute
service of several audits as nova would, up to where its resource tracker
begins: the first time, again when nothing has changed, and when 200 and 2,000
nodes have. Besides it counts what a minute costs Ironic, the sweep included.

Figures are seconds of wall clock and of CPU of the compute service (client),
of Ironic's API and of MariaDB, megabytes of HTTP, and the growth of the memory
of the compute service at its peak.
"""

import json
import os
import subprocess

from benchmarks import filling
from lab import computes
from lab import errors
from lab import processes
from lab import services

CHANGES = (200, 2000)


class Measured:
    """A compute service that audits when it is told. A context manager."""

    def __init__(self, settings, driver, options):
        computes.Computes(settings).configure(
            ['compute-1'], driver, options)
        self._settings = settings
        self._processes = processes.Processes(settings.run, settings.logs)

    def __enter__(self):
        settings = self._settings
        self._log = open(settings.logs / 'benchmark.log', 'a')
        self._child = subprocess.Popen(
            [settings.program('python'), '-m', 'benchmarks.computing',
             str(settings.conf / 'nova' / 'compute-1.conf')],
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

    def __call__(self, command):
        """Have something done; return what it cost."""
        before = self._servers()
        self._child.stdin.write(f'{command}\n')
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
        return {name: cpu(self._processes.pid(service))
                for name, service in (('ironic', 'ironic'),
                                      ('mariadb', 'mariadb'))}


def cpu(pid):
    """Return the seconds that a process and its children have used."""
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
    family = {pid}
    while more := {child for child, parent in parents.items()
                   if parent in family} - family:
        family |= more
    return sum(used.get(one, 0) for one in family) / os.sysconf('SC_CLK_TCK')


def stock(settings, options, progress):
    """Return {case: figures} of nova's own driver."""
    with Measured(settings, 'stock', options) as ask:
        with progress.step('stock: first audit'):
            first = ask('audit')
        with progress.step('stock: second audit'):
            second = ask('audit')
    return {'first': first, 'steady': second, 'minute': second}


def ours(settings, options, progress, filled):
    """Return {case: figures} of our driver."""
    found = {}
    with Measured(settings, 'ours', options) as ask:
        with progress.step('ours: first audit'):
            found['first'] = ask('audit')
        # What the first one had to decide without a view of all.
        ask('audit')
        with progress.step('ours: nothing has changed'):
            found['steady'] = ask('audit')
        for count in CHANGES:
            filled.touch(count, seed=count)
            with progress.step(f'ours: {count} nodes have changed'):
                found[f'changed {count}'] = ask('audit')
        with progress.step('ours: a minute'):
            found['minute'] = ask('minute')
    return found


def measure(settings, options, progress, nodes, hosts):
    """Return what is measured in a cloud of a size.

    :param nodes: how many.
    :param hosts: how many compute services.
    """
    names = [f'compute-{number}' for number in range(1, hosts + 1)]
    filled = filling.Filling(settings, progress)
    filled.fill(filling.machines(nodes, names), names)
    found = {'stock': stock(settings, options, progress),
             'ours': ours(settings, options, progress, filled)}
    return {'nodes': nodes, 'hosts': hosts, **found,
            'ratios': ratios(found['stock'], found['ours'])}


def ratios(stock, ours):
    """Return {what: how many times more nova's own driver uses}."""
    def of(case, name):
        return round(stock[case][name] / max(ours[case][name], 1e-3), 1)

    return {'steady wall': of('steady', 'wall'),
            'steady client CPU': of('steady', 'cpu'),
            'first client CPU': of('first', 'cpu'),
            'first memory': of('first', 'peak'),
            'minute Ironic CPU': of('minute', 'ironic')}


def table(found):
    """Return the figures as lines of text."""
    lines = [f'{"":22}{"wall s":>9}{"client s":>10}{"Ironic s":>10}'
             f'{"MariaDB s":>11}{"MB":>8}{"peak MB":>9}{"requests":>10}']
    for driver in ('stock', 'ours'):
        for case, its in found[driver].items():
            lines.append(
                f'{driver + " " + case:22}{its["wall"]:9.2f}{its["cpu"]:10.3f}'
                f'{its["ironic"]:10.2f}{its["mariadb"]:11.2f}'
                f'{its["megabytes"]:8.1f}{its["peak"]:9.0f}'
                f'{its["requests"]:10}')
    lines += [f'{"stock / ours: " + name:36}{ratio:9.1f}'
              for name, ratio in found['ratios'].items()]
    return lines
