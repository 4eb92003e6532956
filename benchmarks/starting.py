# SPDX-License-Identifier: Apache-2.0

"""How long a nova-compute takes to start, until a build is accepted.

A real process, started as the lab starts its computes, with the rows of a
cloud at rest on it, see :mod:`.tracked`. A build is sent when the process is
started: a server is booted through nova's API, so that conductor and scheduler
choose one of a few nodes of a flavor of its own and send it into the queue of
this compute service, which a process before has made. nova gives up builds
that it finds waiting when it looks for those that a restart has interrupted
(ComputeManager._error_out_instances_whose_build_was_interrupted); another one
is then sent at once, as whoever boots would, so that one is there when the
process begins to listen.

The time goes from the start of the process to the moment at which the claim of
a build is done. That is when the server is on this host and its task is the
one that nova gives it next, ``networking`` or any that follows. The row is
read from nova's database every few milliseconds; the compute service is asked
nothing.

Figures are seconds of wall clock until then (accepted), and until that server
was active; of CPU of the compute service (client) and of the services until it
was accepted; and how many builds were given up before.
"""

import time

from benchmarks import auditing
from benchmarks import filling
from benchmarks import measured
from benchmarks import proportion
from benchmarks import tracked
from lab import cloud
from lab import computes
from lab import errors
from lab import processes

#: Free nodes of the flavor: as many builds can be sent.
BUILDS = 10

#: As nova has it by default; the lab audits more often.
OPTIONS = ('DEFAULT.update_resources_interval=60',)

#: Tasks of a server whose claim is done, in nova's order.
CLAIMED = ('networking', 'block_device_mapping', 'spawning')

#: Seconds between two looks at the row, for which to wait for the start at
#: least and for each node, and for a server to become active after that.
PAUSE = 0.02
PATIENCE, EACH = 240, 2
SETTLING = 60


def measure(settings, options, progress, nodes, stock):
    """Return what is measured.

    :param nodes: how many, all of one compute service.
    :param stock: how many nova's own driver has, at most as many.
    """
    started = Started(settings, (*options, *OPTIONS))
    with progress.step('have nova-compute make its queue'):
        started.prepare(progress)

    def start(driver, its):
        started.fill(progress, its)
        with progress.step(f'{driver}: start with {its} nodes'):
            return started.measure(driver, PATIENCE + EACH * its)

    # Of fewer it could not be told what grows with them.
    stock = min(nodes, max(stock, 2 * BUILDS))
    found = {driver: start(driver, its)
             for driver, its in (('stock', stock), ('ours', nodes))}
    if stock < nodes:
        # A part of it is the same for any number of nodes.
        few = start('stock', BUILDS)
        found['stock'] = proportion.grown(found['stock'], {
            name: (value - few[name]) * stock / (stock - BUILDS)
            for name, value in found['stock'].items() if name != 'given up'},
            nodes / stock)
    return {'nodes': nodes, 'stock nodes': stock, **found, 'ratio': round(
        found['stock']['accepted'] / found['ours']['accepted'], 1)}


class Started:
    """Starts nova-compute in a lab, again and again.

    :param settings: of a lab that is up.
    :param options: 'SECTION.OPTION=VALUE' strings for nova.
    """

    def __init__(self, settings, options):
        self._settings = settings
        self._options = options
        self._computes = computes.Computes(settings)
        self._processes = processes.Processes(settings.run, settings.logs)
        self._cloud = cloud.Cloud(settings)

    def fill(self, progress, nodes):
        """Put in a cloud at rest, all nodes on this compute service."""
        filling.Filling(self._settings, progress).fill(
            filling.machines(nodes, [auditing.HOST]), [auditing.HOST])
        tracked.Tracked(self._settings, progress).complete(fitting=BUILDS)

    def prepare(self, progress):
        """Have the queue made, from which builds are not lost."""
        self.fill(progress, BUILDS)
        self._start('stock')
        try:
            self._computes.wait([auditing.HOST], {auditing.HOST: None})
        finally:
            self._computes.kill(auditing.HOST)

    def measure(self, driver, patience):
        """Return the figures of one start.

        :param driver: 'stock' or 'ours'.
        :param patience: seconds.
        """
        before = measured.servers(self._processes)
        begin = time.monotonic()
        self._start(driver)
        try:
            server, failed = self._accepted(begin + patience)
            accepted = time.monotonic() - begin
            used = measured.servers(self._processes)
            client, = measured.cpu(self._computes.pid(auditing.HOST))
            self._until_active(server)
            return {
                'accepted': accepted, 'active': time.monotonic() - begin,
                'given up': failed, 'cpu': client, **{
                    f'{name} CPU': used[name] - before[name]
                    for name in before}}
        finally:
            self._computes.kill(auditing.HOST)

    def _start(self, driver):
        self._computes.configure([auditing.HOST], driver, self._options)
        self._computes.spawn([auditing.HOST])

    def _accepted(self, deadline):
        """Return a server whose claim is done, and how many have failed."""
        with filling.Connection(
                self._settings.database('nova_cell1')) as (_, cursor):
            for failed in range(BUILDS):
                server = self._cloud.create(f'build-{failed}')
                while not (row := _row(cursor, server)) or row[1] != 'error':
                    if is_claimed(*row):
                        return server, failed
                    self._may_wait(deadline, server)
        raise errors.LabError(
            f'nova has given up {BUILDS} builds, the last of them {server}; '
            f'see {self._settings.logs}.')

    def _until_active(self, server):
        deadline = time.monotonic() + SETTLING
        with filling.Connection(
                self._settings.database('nova_cell1')) as (_, cursor):
            while _row(cursor, server)[1] != 'active':
                self._may_wait(deadline, server)

    def _may_wait(self, deadline, server):
        if self._computes.process_state(auditing.HOST) != 'running':
            raise errors.LabError(
                f'nova-compute ended; see {self._computes.log(auditing.HOST)}')
        if time.monotonic() > deadline:
            raise errors.LabError(f'The build of {server} takes too long; '
                                  f'see {self._settings.logs}.')
        time.sleep(PAUSE)


def _row(cursor, server):
    """Return host, state and task of a server, nothing if there is none."""
    cursor.execute(' UNION '.join(
        f'SELECT host, vm_state, task_state FROM {cell}.instances WHERE '
        'uuid = %s' for cell in ('nova_cell1', 'nova_cell0')),
        (server, server))
    return cursor.fetchone() or ()


def is_claimed(host=None, vm_state=None, task_state=None):
    """Whether the claim of a server is done."""
    return host is not None and (
        task_state in CLAIMED or vm_state == 'active')


def table(found):
    """Return the figures as lines of text."""
    columns = {'accepted': 'accepted s', 'active': 'active s',
               'given up': 'given up', 'cpu': 'client s',
               'ironic CPU': 'Ironic s', 'placement CPU': 'placement s',
               'conductor CPU': 'conductor s', 'mariadb CPU': 'MariaDB s'}
    return [f'{"":8}' + ''.join(f'{title:>13}' for title in columns.values()),
            *(f'{driver:8}' + ''.join(
                f'{round(found[driver][name], 2):13}' for name in columns)
              for driver in ('stock', 'ours')),
            *proportion.note(found),
            f'stock / ours: accepted {found["ratio"]:.1f}']
